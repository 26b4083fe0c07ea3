// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// findingLimit bounds what a report keeps of one invariant: the rest is the same again.
const findingLimit = 50

// State is what became of an invariant in a run.
type State string

// The states.
const (
	// Held: it was checked, and nothing was found.
	Held State = "held"
	// Violated: something was found.
	Violated State = "violated"
	// NotApplicable: nothing in this run could have broken it, and the report says why.
	NotApplicable State = "not applicable"
	// Unchecked: no checker looked. That is no proof of anything.
	Unchecked State = "unchecked"
)

// Result is what became of one invariant.
type Result struct {
	Invariant Invariant
	State     State
	// Checked is how often it was looked at, over all checkers.
	Checked int
	// Violations is how many findings there were; Findings are the first of them.
	Violations int
	Findings   []string
	// Why it is not applicable.
	Why string
}

// Report collects, for each invariant, how often it was checked and what was
// found. The zero value is ready, and it is safe for use by several goroutines.
type Report struct {
	mu struct {
		sync.Mutex
		results [invariantCount + 1]counted // by Number
		figures []Figure
	}
}

// Figure is a number worth reporting that is no verdict.
type Figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type counted struct {
	checked, violations int
	findings            []string
	why                 string
}

// Checked says that an invariant was looked at n more times.
func (r *Report) Checked(i Number, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.results[i].checked += n
}

// Violation notes that an invariant does not hold.
func (r *Report) Violation(i Number, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.mu.results[i]
	c.violations++
	if len(c.findings) < findingLimit {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

// NotApplicable says that nothing in this run could break an invariant, and why.
// It counts for nothing once somebody checked.
func (r *Report) NotApplicable(i Number, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.results[i].why = why
}

// Figure adds a number worth reporting.
func (r *Report) Figure(name, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.figures = append(r.mu.figures, Figure{Name: name, Value: fmt.Sprintf(format, args...)})
}

// Figures are all so far, in the order in which they came.
func (r *Report) Figures() []Figure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Figure(nil), r.mu.figures...)
}

// finding reads the number that a finding begins with.
var finding = regexp.MustCompile(`(?s)^I(\d+): (.*)$`)

// Findings notes violations that name their invariants, like "I5: a zero byte".
// What names none goes to Run.
func (r *Report) Findings(all []string) {
	for _, text := range all {
		if m := finding.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n >= 1 && n <= invariantCount {
				r.Violation(Number(n), "%s", m[2])
				continue
			}
		}
		r.Violation(Run, "%s", text)
	}
}

// Results are those of all invariants in order; Run is the first, where anything
// was found about the run itself.
func (r *Report) Results() (all []Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.mu.results[Run]; c.violations > 0 {
		all = append(all, c.result(Invariant{Number: Run, Words: "the run itself went as it should"}))
	}
	for _, i := range Invariants() {
		all = append(all, r.mu.results[i.Number].result(i))
	}
	return all
}

func (c *counted) result(i Invariant) Result {
	x := Result{Invariant: i, Checked: c.checked, Violations: c.violations, Findings: append([]string(nil), c.findings...)}
	switch {
	case c.violations > 0:
		x.State = Violated
	case c.checked > 0:
		x.State = Held
	case c.why != "":
		x.State, x.Why = NotApplicable, c.why
	default:
		x.State = Unchecked
	}
	return x
}

// Violations are the findings of all invariants, each behind its number.
func (r *Report) Violations() (all []string) {
	for _, x := range r.Results() {
		for _, f := range x.Findings {
			all = append(all, fmt.Sprintf("%v: %s", x.Invariant.Number, f))
		}
		if more := x.Violations - len(x.Findings); more > 0 {
			all = append(all, fmt.Sprintf("%v: %d more", x.Invariant.Number, more))
		}
	}
	return all
}

// Unchecked are the invariants that a run can prove and that nobody looked at
// or excused in this one.
func (r *Report) Unchecked() (all []Number) {
	for _, x := range r.Results() {
		if x.State == Unchecked && x.Invariant.Checker != "" {
			all = append(all, x.Invariant.Number)
		}
	}
	return all
}

// Add takes over what another report found, as of one more round.
func (r *Report) Add(o *Report) {
	o.mu.Lock()
	results, figures := o.mu.results, append([]Figure(nil), o.mu.figures...)
	o.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range results {
		c := &r.mu.results[i]
		c.checked += x.checked
		c.violations += x.violations
		c.findings = append(c.findings, x.findings[:min(len(x.findings), findingLimit-len(c.findings))]...)
		if c.why == "" {
			c.why = x.why
		}
	}
	r.mu.figures = append(r.mu.figures, figures...)
}
