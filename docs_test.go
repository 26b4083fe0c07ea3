// SPDX-License-Identifier: Apache-2.0

package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tree is what a document may name.
type tree struct {
	files    map[string]map[string]bool // what each Go file declares
	packages map[string]map[string]bool // what the files of each package declare, tests included
	declared map[string]bool            // what any file declares
	mutants  map[string]bool
}

func newTree() *tree {
	return &tree{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

// add enters what a file of a package declares.
func (x *tree) add(file, pkg string, names ...string) {
	if x.files[file] = map[string]bool{}; x.packages[pkg] == nil {
		x.packages[pkg] = map[string]bool{}
	}
	for _, n := range names {
		x.files[file][n], x.packages[pkg][n], x.declared[n] = true, true, true
	}
}

// treeOf enters all files, and the mutants, each of which is a literal with a Name.
func treeOf(all []*source) *tree {
	x := newTree()
	for _, s := range all {
		x.add(s.name, s.dir, s.declares()...)
		if s.dir != "faulttests/mutants" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				key, _ := kv.Key.(*ast.Ident)
				value, _ := kv.Value.(*ast.BasicLit)
				if key != nil && key.Name == "Name" && value != nil && value.Kind == token.STRING {
					if name, err := strconv.Unquote(value.Value); err == nil {
						x.mutants[name] = true
					}
				}
			}
			return true
		})
	}
	return x
}

// declares lists the functions, methods, types, constants and variables of a file.
func (s *source) declares() (names []string) {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// folder reports whether there are Go files in a folder or below it.
func (x *tree) folder(name string) bool {
	for pkg := range x.packages {
		if within(pkg, name) {
			return true
		}
	}
	return false
}

// absent lists what a document names that is not there: in backquotes a Go file, a Go file and
// what it declares (`wal/log.go Append, Mark`), a test, with or without its package, a package, a
// mutant, an identifier; outside of them, Go files.
func (x *tree) absent(text string) (all []string) {
	goFile := regexp.MustCompile(`[A-Za-z0-9_/.-]+\.go\b`)
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		report := func(format string, args ...any) {
			all = append(all, fmt.Sprintf("line %d: ", i+1)+fmt.Sprintf(format, args...))
		}
		for _, name := range goFile.FindAllString(line, -1) {
			if x.files[name] == nil {
				report("there is no file %s", name)
			}
		}
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		spans := strings.Split(line, "`")
		if len(spans)%2 == 0 {
			report("a backquote without its second")
		}
		for j := 1; j < len(spans); j += 2 {
			if why := x.span(spans[j]); why != "" {
				report("%s", why)
			}
		}
	}
	return all
}

// span says what is wrong with what stands in one pair of backquotes; "" where nothing is.
func (x *tree) span(s string) string {
	first, rest, _ := strings.Cut(s, " ")
	names := strings.Split(rest, ", ")
	switch {
	case strings.HasSuffix(first, ".go") && rest != "":
		return missing(first, x.files[first], names)
	case strings.HasPrefix(rest, "Test"):
		return missing(first, x.packages[first], names)
	case regexp.MustCompile(`^Test[A-Z]\w*$`).MatchString(s), regexp.MustCompile(`^\w*[a-z]\w*[A-Z]\w*$|^[A-Z]\w*[a-z]\w*$`).MatchString(s):
		return missing("the tree", x.declared, []string{s})
	case regexp.MustCompile(`^(clientlib|cmd|election|faulttests|primary|replica|shared|wal)(/[a-z0-9-]+)*$`).MatchString(s):
		if !x.folder(s) {
			return "there is no package " + s
		}
	case regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)+$`).MatchString(s):
		if !x.mutants[s] {
			return "there is no mutant " + s
		}
	}
	return ""
}

func missing(where string, there map[string]bool, names []string) string {
	for _, n := range names {
		if !there[n] {
			return fmt.Sprintf("there is no %s in %s", n, where)
		}
	}
	return ""
}

func TestDocsNameWhatIsThere(t *testing.T) {
	x := treeOf(sources(t))
	for _, doc := range []string{"docs/ARCHITECTURE.md", "docs/PROTOCOL.md", "docs/GLOSSARY.md"} {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range x.absent(string(b)) {
			t.Errorf("%s, %s", doc, why)
		}
	}
}

// TestEveryPackageHasItsSubject wants a row for each package of the product. Those of the tests and of the
// benchmark are told of in their own documents.
func TestEveryPackageHasItsSubject(t *testing.T) {
	b, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i, name := range strings.Split(cells[1], "`") {
			rows[name] = rows[name] || i%2 == 1
		}
	}
	for pkg := range treeOf(sources(t)).packages {
		if pkg != "." && !rows[pkg] && !within(pkg, "faulttests") && !within(pkg, "cmd/holdfast-bench") {
			t.Errorf("docs/ARCHITECTURE.md, section 2, has no row for %s", pkg)
		}
	}
}

// TestAbsentNamesAreFound is the control of TestDocsNameWhatIsThere.
func TestAbsentNamesAreFound(t *testing.T) {
	x := newTree()
	x.add("wal/log.go", "wal", "Log", "Append")
	x.add("wal/log_test.go", "wal", "TestClose")
	x.add("shared/volume/vfs/vfs.go", "shared/volume/vfs", "FS")
	x.mutants["no-check"] = true
	for _, c := range []struct {
		text string
		want string // of the one complaint; "" for none
	}{
		{"`wal/log.go`, [log](wal/log.go), `wal/log.go Append`, `wal/log.go Append, Log`", ""},
		{"`wal`, `shared`, `shared/volume`, `TestClose`, `wal TestClose`, `no-check`, `Append`", ""},
		{"`START`, `epochs/<epoch>/fence`, `claim.json`, `--seen-lsn`, `holdfast init`", ""},
		{"`wal/lag.go`", "there is no file wal/lag.go"},
		{"```\nwal/lag.go\n```", "line 2: there is no file wal/lag.go"},
		{"see wal/lag.go", "there is no file wal/lag.go"},
		{"`wal/log.go Append, Prepend`", "there is no Prepend in wal/log.go"},
		{"`wal/log.go TestClose`", "there is no TestClose in wal/log.go"},
		{"`TestOpen`", "there is no TestOpen in the tree"},
		{"`wal TestOpen`", "there is no TestOpen in wal"},
		{"`shared TestClose`", "there is no TestClose in shared"},
		{"`shared/wal`", "there is no package shared/wal"},
		{"`no-chuck`", "there is no mutant no-chuck"},
		{"`Prepend`", "there is no Prepend in the tree"},
		{"`takeOver`", "there is no takeOver in the tree"},
		{"`wal/log.go\nAppend`", "a backquote without its second"},
	} {
		got := x.absent(c.text)
		if fine := len(got) == 0; fine != (c.want == "") || !fine && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
