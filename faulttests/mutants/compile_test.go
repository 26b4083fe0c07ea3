// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMutantsCompile wants every mutant to be a program: one that does not compile
// breaks no rule. It type-checks the packages that a mutant changes, which takes a
// hundredth of the time of compiling and linking them. Where a mutant changes a test, too, that is compiled.
func TestMutantsCompile(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not there to find the packages")
	}
	l := &lab{t: t, root: moduleRoot(t), dir: t.TempDir()}
	k := newChecker(t, l.root)
	for _, m := range List() {
		err := k.check(&m)
		if err == nil && slices.ContainsFunc(m.Edits, func(e Edit) bool { return strings.HasSuffix(e.File, "_test.go") }) {
			err = l.compileMutant(&m, filepath.Join(l.dir, "killer.test"))
		}
		if err != nil {
			t.Errorf("mutant %s does not compile: %v", m.Name, err)
		}
	}
}

// TestCheckerFindsWhatDoesNotCompile is the control of TestMutantsCompile.
func TestCheckerFindsWhatDoesNotCompile(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not there to find the packages")
	}
	k := newChecker(t, moduleRoot(t))
	const file, imports = "shared/cluster/identifiers.go", "\t\"unicode/utf8\"\n"
	for _, x := range []struct{ name, added, want string }{
		{"nothing", ")\n", ""},
		{"a variable that is not used", ")\nfunc unused() { x := 1 }\n", "declared and not used"},
		{"a name that is not there", ")\nvar x = absent\n", "undefined: absent"},
		{"a type that does not fit", ")\nconst x int = \"word\"\n", "cannot use"},
		{"an import that is not used", "\t\"unsafe\"\n)\n", "imported and not used"},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := k.check(&Mutant{Name: x.name, Edits: []Edit{{File: file, Old: imports + ")\n", New: imports + x.added}}})
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("got %v, want %q", err, x.want)
			}
		})
	}
}

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Deps           []string
	Module                  *struct{ Main bool }
}

// checker type-checks mutants.
type checker struct {
	root     string
	set      *token.FileSet
	order    []string // packages of the module, those that others import first
	packages map[string]listed
	parsed   map[string]*ast.File // of the product as it is, by path
	clean    types.Importer       // of the product as it is
}

func newChecker(t *testing.T, root string) *checker {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Deps,Module", "work")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	k := &checker{root: root, set: token.NewFileSet(), packages: map[string]listed{}, parsed: map[string]*ast.File{}}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		k.packages[p.ImportPath] = p
		if p.Module != nil && p.Module.Main {
			k.order = append(k.order, p.ImportPath)
		}
	}
	k.clean = importer.ForCompiler(k.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(k.packages[path].Export)
	})
	return k
}

// overlaid imports the packages of a mutant, and all others as they are.
type overlaid struct {
	changed map[string]*types.Package
	clean   types.Importer
}

func (o overlaid) Import(path string) (*types.Package, error) {
	if p := o.changed[path]; p != nil {
		return p, nil
	}
	return o.clean.Import(path)
}

// check type-checks the packages that a mutant changes, in the order of their imports.
func (k *checker) check(m *Mutant) error {
	files, err := m.patch(k.root)
	if err != nil {
		return err
	}
	texts := map[string]string{} // by path
	dirs := map[string]bool{}
	for name, text := range files {
		path := filepath.Join(k.root, name)
		texts[path], dirs[filepath.Dir(path)] = text, true
	}
	var changed []string
	for _, path := range k.order {
		if dir := k.packages[path].Dir; dirs[dir] {
			changed = append(changed, path)
			delete(dirs, dir)
		}
	}
	if len(dirs) > 0 {
		return fmt.Errorf("no package in %v", slices.Collect(maps.Keys(dirs)))
	}
	imp := overlaid{changed: map[string]*types.Package{}, clean: k.clean}
	for _, path := range k.between(changed) {
		if imp.changed[path], err = k.checkPackage(path, texts, imp); err != nil {
			return err
		}
	}
	return nil
}

// between returns the changed packages, and those through which one of them imports another:
// all of these have to see the same types.
func (k *checker) between(changed []string) (all []string) {
	imports := func(a, b string) bool { return slices.Contains(k.packages[a].Deps, b) }
	for _, path := range k.order {
		above := slices.ContainsFunc(changed, func(c string) bool { return imports(path, c) })
		below := slices.ContainsFunc(changed, func(c string) bool { return imports(c, path) })
		if slices.Contains(changed, path) || above && below {
			all = append(all, path)
		}
	}
	return all
}

func (k *checker) checkPackage(path string, texts map[string]string, imp types.Importer) (*types.Package, error) {
	p := k.packages[path]
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := k.parse(filepath.Join(p.Dir, name), texts)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: imp, GoVersion: "go1.26"}
	return conf.Check(path, k.set, files, nil)
}

// parse parses a file, the mutant's where it has one.
func (k *checker) parse(path string, texts map[string]string) (*ast.File, error) {
	if text, mutated := texts[path]; mutated {
		return parser.ParseFile(k.set, path, text, parser.SkipObjectResolution)
	}
	if f := k.parsed[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(k.set, path, nil, parser.SkipObjectResolution)
	k.parsed[path] = f
	return f, err
}
