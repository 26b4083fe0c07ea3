// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// findingLimit bounds the findings that a report keeps for one invariant: more would repeat the same.
const findingLimit = 50

// State is the state of an invariant after a run.
type State string

// The states.
const (
	// Held means that it was checked, and no violation was found.
	Held State = "held"
	// Violated means that a violation was found.
	Violated State = "violated"
	// NotApplicable means that nothing in this run could have broken it; Why has the reason.
	NotApplicable State = "not applicable"
	// Unchecked means that no checker ran, which proves nothing.
	Unchecked State = "unchecked"
)

// Result is the result for one invariant.
type Result struct {
	Invariant Invariant
	State     State
	// Checked is how often it was checked, by all checkers together.
	Checked int
	// Violations is how many findings there were; Findings are the first of them.
	Violations int
	Findings   []string
	// Why is the reason if it is not applicable.
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

// Checked records that an invariant was checked n more times.
func (r *Report) Checked(i Number, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.results[i].checked += n
}

// Violation records a violation of an invariant.
func (r *Report) Violation(i Number, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.mu.results[i]
	c.violations++
	if len(c.findings) < findingLimit {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

// NotApplicable records that nothing in this run could break an invariant, and why.
// It has no effect if the invariant is also checked.
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

// Figures returns all figures so far, in the order in which they were added.
func (r *Report) Figures() []Figure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Figure(nil), r.mu.figures...)
}

// finding reads the number that a finding begins with.
var finding = regexp.MustCompile(`(?s)^I(\d+): (.*)$`)

// Findings records violations that begin with their invariants, like "I5: a zero byte".
// Others are recorded for Run.
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

// Results returns the results of all invariants in order; Run is the first, if there are findings
// about the run itself.
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

// Violations returns the findings of all invariants, each with its number in front.
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

// Unchecked returns the invariants that a run can prove, but that were neither checked nor
// recorded as not applicable in this one.
func (r *Report) Unchecked() (all []Number) {
	for _, x := range r.Results() {
		if x.State == Unchecked && x.Invariant.Checker != "" {
			all = append(all, x.Invariant.Number)
		}
	}
	return all
}

// Add adds the results and figures of another report, such as that of one more round.
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

// AddResults adds results that were saved by another run.
func (r *Report) AddResults(all []Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range all {
		c := &r.mu.results[x.Invariant.Number]
		c.checked += x.Checked
		c.violations += x.Violations
		c.findings = append(c.findings, x.Findings[:min(len(x.Findings), findingLimit-len(c.findings))]...)
		if c.why == "" {
			c.why = x.Why
		}
	}
}
