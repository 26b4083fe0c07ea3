// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"strings"
)

// verdict is the one word of a result, with its number of findings.
func (x Result) verdict() string {
	switch x.State {
	case Violated:
		return fmt.Sprintf("VIOLATED %d times", x.Violations)
	case Unchecked:
		if x.Invariant.Checker == "" {
			return "by tests"
		}
	}
	return string(x.State)
}

// proof returns which checker checked it, or which tests prove it.
func (x Result) proof() string {
	switch {
	case x.State == NotApplicable:
		return x.Why
	case x.State == Unchecked && x.Invariant.Checker == "":
		return strings.Join(x.Invariant.Tests, ", ")
	}
	return x.Invariant.Checker
}

// Text is the report for a terminal or a test's log.
func (r *Report) Text() string {
	var b strings.Builder
	for _, x := range r.Results() {
		fmt.Fprintf(&b, "%-4v %-15s %9d  %s\n", x.Invariant.Number, x.verdict(), x.Checked, x.proof())
		for _, f := range x.Findings {
			fmt.Fprintf(&b, "     - %s\n", f)
		}
	}
	for _, f := range r.Figures() {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

// Markdown is the report as tables, with the findings below.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString("| | invariant | in this run | checked | by |\n|---|---|---|---:|---|\n")
	results := r.Results()
	for _, x := range results {
		fmt.Fprintf(&b, "| %v | %s | %s | %d | %s |\n", x.Invariant.Number, cell(x.Invariant.Words), x.verdict(), x.Checked, cell(x.proof()))
	}
	if bad := r.Violations(); len(bad) > 0 {
		b.WriteString("\nViolations:\n\n")
		for _, f := range bad {
			fmt.Fprintf(&b, "- %s\n", cell(f))
		}
	}
	if figures := r.Figures(); len(figures) > 0 {
		b.WriteString("\n| figure | value |\n|---|---|\n")
		for _, f := range figures {
			fmt.Fprintf(&b, "| %s | %s |\n", cell(f.Name), cell(f.Value))
		}
	}
	return b.String()
}

// cell makes any text fit into one cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
}

// resultJSON is a result as JSON shows it.
type resultJSON struct {
	Invariant  string   `json:"invariant"`
	Words      string   `json:"words"`
	State      State    `json:"state"`
	Checked    int      `json:"checked"`
	Violations int      `json:"violations"`
	Findings   []string `json:"findings"`
	Checker    string   `json:"checker"`
	Tests      []string `json:"tests"`
	Why        string   `json:"why"`
}

// MarshalJSON implements json.Marshaler: {"results":[…],"figures":[…]}.
func (r *Report) MarshalJSON() ([]byte, error) {
	out := struct {
		Results []resultJSON `json:"results"`
		Figures []Figure     `json:"figures"`
	}{Results: []resultJSON{}, Figures: append([]Figure{}, r.Figures()...)}
	for _, x := range r.Results() {
		out.Results = append(out.Results, resultJSON{
			Invariant: x.Invariant.Number.String(), Words: x.Invariant.Words, State: x.State, Checked: x.Checked,
			Violations: x.Violations, Findings: append([]string{}, x.Findings...),
			Checker: x.Invariant.Checker, Tests: append([]string{}, x.Invariant.Tests...), Why: x.Why,
		})
	}
	return json.Marshal(out)
}
