// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("mutants.readme", false, "write the list of mutants into faulttests/README.md")

// TestReadmeListsMutants keeps the list for readers the same as the one that runs.
func TestReadmeListsMutants(t *testing.T) {
	const name, begin, end = "../README.md", "<!-- mutants begin -->\n", "<!-- mutants end -->\n"
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	listed, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s does not say where the list of mutants stands", name)
	}
	want := markdown()
	switch {
	case listed == want:
	case *rewrite:
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the list of mutants in %s is old: go test ./faulttests/mutants -mutants.readme", name)
	}
}

// markdown is the list as a table.
func markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d mutants; fast ones have a star.\n\n| mutant | also | rule that it breaks | who must notice |\n|---|---|---|---|\n", len(List()))
	for _, m := range List() {
		star := ""
		if m.Fast {
			star = " *"
		}
		by := fmt.Sprintf("`%s` `%s`", m.By.Pkg, strings.ReplaceAll(m.By.Run, "|", "\\|"))
		if m.By.Flags != "" {
			by += " `" + m.By.Flags + "`"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s |\n", m.Name, star, m.Also, m.Rule, by)
	}
	return b.String()
}
