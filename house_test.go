// SPDX-License-Identifier: Apache-2.0

// Package holdfast_test is the house checking itself: who may import whom, and
// the manners of every file. docs/ARCHITECTURE.md says why, in section 2.
package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module      = "github.com/holdfast-lock/holdfast"
	spdx        = "// SPDX-License-Identifier: Apache-2.0"
	maxFunction = 70 // lines
	// forUsersTests is the package with which users test their programs.
	forUsersTests = "clientlib/holdfasttest"
)

// source is one parsed file.
type source struct {
	name    string // relative to the module's root
	dir     string // its package, relative to the module's root
	lines   []string
	set     *token.FileSet
	file    *ast.File
	imports []string // of this module, without its path, like "wal"; of others as they stand
}

func (s *source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s *source) generated() bool { return ast.IsGenerated(s.file) }

func (s *source) at(n ast.Node) string { return s.set.Position(n.Pos()).String() }

// sources parses every file of the module.
func sources(t *testing.T) (all []*source) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		s, err := parse(filepath.ToSlash(name))
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d files: the house is somewhere else", len(all))
	}
	return all
}

func parse(name string) (*source, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, dir: path.Dir(name), lines: strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), set: token.NewFileSet()}
	if s.file, err = parser.ParseFile(s.set, name, b, parser.ParseComments); err != nil {
		return nil, err
	}
	for _, x := range s.file.Imports {
		imp, err := strconv.Unquote(x.Path.Value)
		if err != nil {
			return nil, err
		}
		s.imports = append(s.imports, strings.TrimPrefix(imp, module+"/"))
	}
	return s, nil
}

// own reports whether an import is of this module.
func (s *source) own(imp string) bool {
	for _, x := range s.file.Imports {
		if x.Path.Value == strconv.Quote(module+"/"+imp) {
			return true
		}
	}
	return false
}

// standard reports whether an import is of the standard library.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// within reports whether a package is one of these or below one.
func within(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return dir == r || strings.HasPrefix(dir, r+"/") })
}

// importRule refuses imports of some files.
type importRule struct {
	name string
	of   func(s *source) bool
	bans func(s *source, imp string) bool
}

// effects are the packages that a pure one does without.
var effects = []string{"bufio", "context", "io", "log", "net", "os", "sync", "syscall", "runtime", "testing", "math/rand", "math/rand/v2", "crypto/rand", "github.com/rs/zerolog"}

func pure(s *source) bool {
	return !s.test() && (within(s.dir, "shared/cluster", "shared/locktable", "shared/history", "shared/access") || s.name == "election/rule.go")
}

func product(s *source) bool { return !s.test() && !within(s.dir, "faulttests") }

func importRules() []importRule {
	in := func(dirs ...string) func(*source) bool {
		return func(s *source) bool { return !s.test() && slices.Contains(dirs, s.dir) }
	}
	below := func(dirs ...string) func(*source) bool {
		return func(s *source) bool { return !s.test() && within(s.dir, dirs...) }
	}
	bans := func(dirs ...string) func(*source, string) bool {
		return func(s *source, imp string) bool { return s.own(imp) && within(imp, dirs...) }
	}
	tools := []string{"shared/volume/fsck", "shared/volume/recovery", "shared/volume/backup", "shared/volume/internal/inspect"}
	doubles := []string{"shared/volume/volumetest", "shared/nettest", "shared/frontend/fronttest", "clientlib/internal/watchtest", "cmd/holdfast/trace/collector", forUsersTests}
	only := func(allowed ...string) func(*source, string) bool {
		return func(s *source, imp string) bool { return s.own(imp) && !slices.Contains(allowed, imp) }
	}
	return []importRule{
		{"pure packages have no effects", pure, func(_ *source, imp string) bool { return within(imp, effects...) }},
		{"cluster stands alone", in("shared/cluster"), func(_ *source, imp string) bool { return !standard(imp) }},
		{"locktable knows cluster only", in("shared/locktable"), only("shared/cluster")},
		{"history knows cluster and locktable only", in("shared/history"), only("shared/cluster", "shared/locktable")},
		{"wal knows the standard library, xxhash and cluster only", in("wal"), func(s *source, imp string) bool {
			return !standard(imp) && imp != "github.com/cespare/xxhash/v2" && imp != "shared/cluster"
		}},
		{"shared knows only shared and wal", below("shared"), func(s *source, imp string) bool {
			return s.own(imp) && !within(imp, "shared", "wal") && imp != "clients/javascript" // which servers serve as it is
		}},
		{"front ends know no role", below("shared/frontend", "shared/serving", "shared/watch"), bans("primary", "replica", "election", "cmd", "clientlib")},
		{"neither roles nor the rest of shared know front ends", func(s *source) bool {
			return !s.test() && within(s.dir, "primary", "replica", "election", "wal", "shared") && !within(s.dir, "shared/frontend")
		}, bans("shared/frontend")},
		{"primary knows neither replica nor election", below("primary"), bans("replica", "election", "cmd", "clientlib")},
		{"replica knows neither primary nor election", below("replica"), bans("primary", "election", "cmd", "clientlib")},
		{"election knows no role and no storage", below("election"), only("shared/cluster", "shared/wake", "election")},
		// The servers in users' tests are those of the product, so forUsersTests imports what it likes. A program that does not
		// import it gets nothing of that.
		{"clientlib knows what servers and clients share only", func(s *source) bool {
			return !s.test() && within(s.dir, "clientlib") && !within(s.dir, forUsersTests)
		}, only("shared/wire", "shared/wire/frames", "shared/wire/pb", "shared/retry", "shared/cluster", "shared/sitemap", "shared/spelling", "clientlib", "clientlib/clientconfig", "clientlib/join", "clientlib/login", "clientlib/credential")},
		{"packages of users above clientlib know it only", below("clientlib/leader", "clientlib/watch", "clientlib/oteltrace", "clients/kubernetes"), only("clientlib")},
		{"who traces is one package of servers, and one for users without the SDK", product, func(s *source, imp string) bool {
			return within(imp, "go.opentelemetry.io") && !within(s.dir, "cmd/holdfast/trace") &&
				(s.dir != "clientlib/oteltrace" || within(imp, "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto"))
		}},
		{"nobody knows faulttests", func(s *source) bool { return !within(s.dir, "faulttests") }, bans("faulttests")},
		{"tests' filesystems and networks stay in tests", func(s *source) bool { return product(s) && !within(s.dir, doubles...) }, bans(doubles...)},
		{"the volume is reached through vfs.FS", below("primary", "election", "wal", "shared"), func(s *source, imp string) bool {
			return within(imp, "os", "io/ioutil", "github.com/google/renameio/v2", "github.com/gofrs/flock") && s.dir != "shared/volume/osfs"
		}},
		{"servers and the kernel do not import offline tools", func(s *source) bool {
			return !s.test() && within(s.dir, "shared/volume", "primary", "replica", "election") && !within(s.dir, tools...)
		}, bans(tools...)},
		{"who opens the volume is osfs, for cmd", product, func(s *source, imp string) bool {
			return s.own(imp) && imp == "shared/volume/osfs" && !within(s.dir, "cmd")
		}},
	}
}

func TestHouse(t *testing.T) {
	all := sources(t)
	for _, rule := range []struct {
		name  string
		check func(*testing.T, []*source)
	}{
		{"imports run one way", importsRunOneWay},
		{"pure packages have neither clock nor goroutine", pureIsPure},
		{"every package has one doc", packagesHaveOneDoc},
		{"every file has its header", filesHaveTheirHeader},
		{"functions are short", functionsAreShort},
		{"nobody sleeps", nobodySleeps},
		{"ages have nothing to do with the time of day", agesAreMonotonic},
		{"nothing happens at init", nothingHappensAtInit},
		{"no state is global", noStateIsGlobal},
		{"no table is changed", noTableIsChanged},
		{"users' programs need clientlib only", programsNeedClientlibOnly},
		{"clientlib names the servers' packages in one place", clientlibHasItsOwnWords},
		{"no server moves the clock of leases", noServerMovesItsClock},
		{"folders are known", foldersAreKnown},
		{"the product depends on few", productDependsOnFew},
		{"client-go's elections depend on few", electionsDependOnFew},
	} {
		t.Run(rule.name, func(t *testing.T) { rule.check(t, all) })
	}
}

func importsRunOneWay(t *testing.T, all []*source) {
	for _, rule := range importRules() {
		t.Run(rule.name, func(t *testing.T) {
			for _, s := range all {
				if !rule.of(s) {
					continue
				}
				for _, imp := range s.imports {
					if rule.bans(s, imp) {
						t.Errorf("%s imports %s", s.name, imp)
					}
				}
			}
		})
	}
}

func pureIsPure(t *testing.T, all []*source) {
	for _, s := range all {
		if !pure(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel in a pure package", s.at(n))
			case *ast.CallExpr:
				switch called(n) {
				case "time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick":
					t.Errorf("%s: %s in a pure package: time enters as data", s.at(n), called(n))
				}
			}
			return true
		})
	}
}

// called is the package and name of a called function, like "time.Now".
func called(n *ast.CallExpr) string {
	sel, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return pkg.Name + "." + sel.Sel.Name
}

func packagesHaveOneDoc(t *testing.T, all []*source) {
	docs := map[string][]string{}
	for _, s := range all {
		if s.test() {
			continue
		}
		docs[s.dir] = append(docs[s.dir], "")
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			docs[s.dir] = append(docs[s.dir], s.name)
		}
	}
	for dir, names := range docs {
		names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
		if len(names) != 1 {
			t.Errorf("package %s has %d docs, in %v", dir, len(names), names)
		}
	}
}

func filesHaveTheirHeader(t *testing.T, all []*source) {
	for _, s := range all {
		if !s.generated() && s.lines[0] != spdx {
			t.Errorf("%s begins with %q, not with %q", s.name, s.lines[0], spdx)
		}
	}
}

func functionsAreShort(t *testing.T, all []*source) {
	for _, s := range all {
		if s.generated() {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; n > maxFunction {
				t.Errorf("%s: %s has %d lines, at most %d", s.at(f), f.Name.Name, n, maxFunction)
			}
		}
	}
}

func nobodySleeps(t *testing.T, all []*source) {
	for _, s := range all {
		if !product(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && called(call) == "time.Sleep" {
				t.Errorf("%s: time.Sleep: wait for what you wait for, or for a context", s.at(n))
			}
			return true
		})
	}
}

// agesAreMonotonic refuses ages that follow the time of day, which operators and NTP set: a
// time made of a number has no monotonic reading, and so has none that was made a number.
func agesAreMonotonic(t *testing.T, all []*source) {
	for _, s := range all {
		if !product(s) || within(s.dir, "cmd/holdfast-bench", "cmd/holdfast/cli", "cmd/holdfast/offline") {
			continue // these tell people how old what stands in a file is
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "UnixNano":
				t.Errorf("%s: UnixNano is for ages, and this one follows the time of day: keep a time.Time, or a duration since one", s.at(n))
			case "Sub", "Since", "Until":
				for _, x := range append(slices.Clone(call.Args), sel.X) {
					if made, ok := x.(*ast.CallExpr); ok && strings.HasPrefix(called(made), "time.Unix") {
						t.Errorf("%s: %s of a time made of a number follows the time of day", s.at(n), sel.Sel.Name)
					}
				}
			}
			return true
		})
	}
}

func nothingHappensAtInit(t *testing.T, all []*source) {
	for _, s := range all {
		if s.generated() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: an init function", s.at(f))
			}
		}
	}
}

func noStateIsGlobal(t *testing.T, all []*source) {
	for _, s := range all {
		if s.generated() {
			continue
		}
		for _, v := range s.vars() {
			s.checkVars(t, v)
		}
	}
}

// vars are the variables at package level.
func (s *source) vars() (all []*ast.ValueSpec) {
	for _, d := range s.file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				all = append(all, spec.(*ast.ValueSpec))
			}
		}
	}
	return all
}

func (s *source) checkVars(t *testing.T, v *ast.ValueSpec) {
	for i, name := range v.Names {
		var value ast.Expr
		if i < len(v.Values) {
			value = v.Values[i]
		}
		if s.name == "cmd/holdfast/main.go" && name.Name == "linked" && value == nil {
			continue // the linker sets variables only
		}
		sentinel := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
		if name.Name != "_" && !sentinel && !s.constant(value) && !s.embedded(v) {
			t.Errorf("%s: var %s at package level: only errors, checks of interfaces, constant tables and embedded files", s.at(name), name.Name)
		}
	}
}

// constant reports whether a package-level value stands for a constant that the
// language cannot write: a table, or in a test a command-line flag.
func (s *source) constant(value ast.Expr) bool {
	switch value := value.(type) {
	case *ast.CompositeLit:
		switch value.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			return true
		}
	case *ast.CallExpr:
		switch name := called(value); {
		case name == "crc32.MakeTable", name == "regexp.MustCompile":
			return true
		case strings.HasPrefix(name, "flag."):
			return s.test()
		}
	}
	return false
}

// embedded reports whether a variable is what the compiler embeds: package embed takes no other.
func (s *source) embedded(v *ast.ValueSpec) bool {
	line := s.set.Position(v.Pos()).Line
	return len(v.Values) == 0 && strings.HasPrefix(s.lines[line-2], "//go:embed ")
}

// noTableIsChanged wants nobody to assign to a package-level name, or into one.
func noTableIsChanged(t *testing.T, all []*source) {
	tables := map[string]bool{} // by package and name
	for _, s := range all {
		for _, v := range s.vars() {
			for _, name := range v.Names {
				tables[s.dir+"."+name.Name] = true
			}
		}
	}
	for _, s := range all {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.generated() {
				continue
			}
			own := declared(f)
			ast.Inspect(f, func(n ast.Node) bool {
				assign, ok := n.(*ast.AssignStmt)
				if !ok || assign.Tok == token.DEFINE {
					return true
				}
				for _, left := range assign.Lhs {
					if x, ok := left.(*ast.IndexExpr); ok {
						left = x.X
					}
					if id, ok := left.(*ast.Ident); ok && !own[id.Name] && tables[s.dir+"."+id.Name] {
						t.Errorf("%s: %s at package level is assigned to", s.at(id), id.Name)
					}
				}
				return true
			})
		}
	}
}

// declared are the names that a function declares anywhere inside.
func declared(f *ast.FuncDecl) map[string]bool {
	own := map[string]bool{"_": true}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		case *ast.RangeStmt:
			for _, x := range []ast.Expr{n.Key, n.Value} {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					own[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					own[id.Name] = true
				}
			}
		}
		return true
	})
	return own
}

// usersFile reports whether a file shows users what a program of theirs looks like.
func usersFile(s *source) bool {
	return within(s.dir, "cmd/examples", "cmd/holdfast-bench", "clients/kubernetes") || within(s.dir, "clientlib") && strings.HasSuffix(s.name, "example_test.go")
}

// programsNeedClientlibOnly refuses examples, and code in documents, that import what the
// servers share: the aliases of clientlib have to be enough.
func programsNeedClientlibOnly(t *testing.T, all []*source) {
	found := false
	for _, s := range all {
		if !usersFile(s) {
			continue
		}
		found = true
		for _, imp := range s.imports {
			if s.own(imp) && within(imp, "shared") {
				t.Errorf("%s imports %s: take the name from clientlib", s.name, imp)
			}
		}
	}
	if !found {
		t.Error("there are no examples")
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(docs, "README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, module+"/shared/") {
				t.Errorf("%s:%d imports a package of the servers: take the name from clientlib", name, i+1)
			}
		}
	}
}

// clientlibHasItsOwnWords refuses exported declarations of clientlib and the packages below it
// that mention a package of shared. The aliases for users stand in one file; a package that
// does not import clientlib may have one of its own.
func clientlibHasItsOwnWords(t *testing.T, all []*source) {
	const place = "clientlib/names.go"
	aliases := 0
	for _, s := range all {
		if s.test() || !within(s.dir, "clientlib") || within(s.dir, "clientlib/internal") {
			continue
		}
		for _, d := range s.file.Decls {
			for _, n := range exported(d) {
				spec, ok := n.(*ast.TypeSpec)
				alias := ok && spec.Assign.IsValid() && !slices.Contains(s.imports, "clientlib")
				ast.Inspect(n, func(n ast.Node) bool {
					imp := s.mentioned(n)
					switch {
					case !within(imp, "shared"):
					case within(imp, "shared/wire/pb"):
						t.Errorf("%s: the exported API mentions a message of the protocol", s.at(n))
					case s.name == place:
						aliases++
					case !alias || s.dir == "clientlib":
						t.Errorf("%s: the exported API mentions %s: use or add an alias in %s", s.at(n), imp, place)
					}
					return true
				})
			}
		}
	}
	if aliases == 0 {
		t.Errorf("%s has no aliases: look where they are now", place)
	}
}

// noServerMovesItsClock refuses values for Jumps, which end leases before their time, anywhere but in tests and in
// forUsersTests. A node passes on what it got.
func noServerMovesItsClock(t *testing.T, all []*source) {
	const passedOn = "cmd/holdfast/node/node.go"
	set := 0
	for _, s := range all {
		if !product(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			var name ast.Expr
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				name = n.Key
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok {
						name = sel.Sel
					}
				}
			}
			if id, ok := name.(*ast.Ident); ok && id.Name == "Jumps" {
				set++
				if s.dir != forUsersTests && s.name != passedOn {
					t.Errorf("%s: a server must not end leases before their time", s.at(n))
				}
			}
			return true
		})
	}
	if set != 2 {
		t.Errorf("Jumps is set in %d places: look where it is now", set)
	}
}

// mentioned is the package of the module whose name an expression uses, "" for any other node.
func (s *source) mentioned(n ast.Node) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, imp := range s.imports {
		if s.own(imp) && path.Base(imp) == pkg.Name {
			return imp
		}
	}
	return ""
}

// exported lists what a declaration shows to other packages: the types of functions, methods and
// fields, and constants and variables with their values.
func exported(d ast.Decl) (all []ast.Node) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || receiverIsExported(d)) {
			return []ast.Node{d.Type}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				if slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
					all = append(all, spec)
				}
			case *ast.TypeSpec:
				if x, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
					all = append(all, exportedFields(x)...)
				} else if spec.Name.IsExported() {
					all = append(all, spec)
				}
			}
		}
	}
	return all
}

func receiverIsExported(d *ast.FuncDecl) bool {
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

func exportedFields(x *ast.StructType) (all []ast.Node) {
	for _, f := range x.Fields.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			all = append(all, f.Type)
		}
	}
	return all
}

// productDependsOnFew lists what the product's module requires, since every program that uses
// clientlib takes part in that. Test tools and the clients of peers are required elsewhere.
func productDependsOnFew(t *testing.T, _ []*source) {
	allowed := []string{
		"github.com/cespare/xxhash/v2", "github.com/coder/websocket",
		"github.com/coreos/go-systemd/v22", // what a service manager is told
		"github.com/gofrs/flock", "github.com/golang-jwt/jwt/v5", "github.com/google/renameio/v2",
		"github.com/pelletier/go-toml/v2",
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", // metrics, in both kinds of histograms
		"github.com/rs/zerolog", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sync", "golang.org/x/sys",
		// Traces. Servers need the SDK and the exporter, clientlib/oteltrace the API only, and what collects in tests the messages.
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/sdk",
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc", "go.opentelemetry.io/proto/otlp",
		"golang.org/x/time", // rates of quotas
		"google.golang.org/grpc", "google.golang.org/protobuf",
	}
	for _, words := range directives(t, "go.mod") {
		switch {
		case words[0] == "tool" || words[0] == "replace":
			t.Errorf("go.mod has a %s directive: it belongs into the module of faulttests", words[0])
		case len(words) == 2 && strings.HasPrefix(words[1], "v") && !slices.Contains(allowed, words[0]):
			t.Errorf("go.mod requires %s", words[0])
		}
	}
}

// electionsDependOnFew lists what the module for client-go's elections requires: programs that use it have that anyway.
func electionsDependOnFew(t *testing.T, _ []*source) {
	const name = "clients/kubernetes/go.mod"
	allowed := []string{module, "k8s.io/apimachinery", "k8s.io/client-go"}
	required := 0
	for _, words := range directives(t, name) {
		if len(words) == 2 && strings.HasPrefix(words[1], "v") {
			if required++; !slices.Contains(allowed, words[0]) {
				t.Errorf("%s requires %s", name, words[0])
			}
		}
	}
	if required != len(allowed) {
		t.Errorf("%s requires %d modules, and %d are allowed", name, required, len(allowed))
	}
}

// directives returns the words of each line of a go.mod that has any.
func directives(t *testing.T, name string) (all [][]string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

func foldersAreKnown(t *testing.T, all []*source) {
	known := []string{
		"primary", "replica", "election", "wal", "shared", "clientlib", "cmd", "faulttests",
		"clients", // for other languages than Go, which have their own ways to package what is in one folder, and for libraries that clientlib is to do without
	}
	for _, s := range all {
		top, _, below := strings.Cut(s.name, "/")
		if below && !slices.Contains(known, top) {
			t.Errorf("%s: the top-level folders are %v", s.name, known)
		}
	}
	if b, err := os.ReadFile("go.mod"); err != nil || !strings.HasPrefix(string(b), "module "+module+"\n") {
		t.Errorf("go.mod names another module than %s: %v", module, err)
	}
}
