// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInvariantsAreNumberedAndProved(t *testing.T) {
	all := Invariants()
	if len(all) != invariantCount {
		t.Fatalf("%d invariants, want %d", len(all), invariantCount)
	}
	for i, x := range all {
		if int(x.Number) != i+1 || x.Words == "" || x.Checker == "" && len(x.Tests) == 0 {
			t.Errorf("entry %d: %+v", i, x)
		}
	}
}

// TestNamedTestsExist keeps the table honest: what it names must be there.
func TestNamedTestsExist(t *testing.T) {
	for _, x := range Invariants() {
		for _, test := range x.Tests {
			dir, name, _ := strings.Cut(test, " ")
			files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, file := range files {
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)")
			}
			if !found {
				t.Errorf("%v names %s, which is not there", x.Number, test)
			}
		}
	}
}

// sample has one result of each kind.
func sample() *Report {
	r := &Report{}
	r.Checked(I1, 10)
	r.Checked(I5, 3)
	r.Findings([]string{"I5: a zero byte | at 3", "I99: of no invariant", "something else"})
	r.NotApplicable(I2, "all leases were long")
	r.Figure("failovers", "%d", 4)
	return r
}

func TestReportCountsAndSorts(t *testing.T) {
	r := sample()
	want := map[Number]State{Run: Violated, I1: Held, I2: NotApplicable, I3: Unchecked, I5: Violated, I8: Unchecked}
	for _, x := range r.Results() {
		if s, ok := want[x.Invariant.Number]; ok && x.State != s {
			t.Errorf("%v is %s, want %s", x.Invariant.Number, x.State, s)
		}
	}
	if bad := r.Violations(); len(bad) != 3 || bad[0] != "run: I99: of no invariant" || bad[2] != "I5: a zero byte | at 3" {
		t.Errorf("violations: %q", bad)
	}
	for _, n := range r.Unchecked() {
		if n == I8 || n == I1 || n == I2 {
			t.Errorf("%v counts as unchecked", n)
		}
	}
	r.Checked(I2, 1)
	if x := r.Results()[2]; x.Invariant.Number != I2 || x.State != Held {
		t.Errorf("an excuse outweighs a check: %+v", x)
	}
}

func TestReportKeepsCountBeyondItsLimit(t *testing.T) {
	r := &Report{}
	for range findingLimit + 7 {
		r.Violation(I7, "again")
	}
	sum := sample()
	sum.Add(r)
	sum.Add(r)
	bad := sum.Violations()
	if last := bad[len(bad)-1]; last != "I7: 64 more" {
		t.Errorf("the last line is %q", last)
	}
	if x := sum.Results()[1]; x.Invariant.Number != I1 || x.Checked != 10 {
		t.Errorf("the sum lost a count: %+v", x)
	}
}

func TestReportRenders(t *testing.T) {
	r := sample()
	for _, want := range []string{"I5   VIOLATED 1 times", "- a zero byte", "I8   by tests", "failovers: 4", "all leases were long"} {
		if text := r.Text(); !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"| I1 |", "a zero byte \\| at 3", "| failovers | 4 |"} {
		if md := r.Markdown(); !strings.Contains(md, want) {
			t.Errorf("the Markdown lacks %q:\n%s", want, md)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Results []resultJSON
		Figures []Figure
	}
	if err := json.Unmarshal(b, &back); err != nil || len(back.Results) != invariantCount+1 || len(back.Figures) != 1 {
		t.Errorf("%v: %s", err, b)
	}
}
