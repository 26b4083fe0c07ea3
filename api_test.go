// SPDX-License-Identifier: Apache-2.0

package holdfast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apiFile has the API of clientlib and the packages for users below it, one declaration, field or method to a line.
const apiFile = "docs/api/clientlib.txt"

// usersPackages returns the packages with the promise. Those beside them are shared with the commands.
func usersPackages() []string {
	return []string{"clientlib", "clientlib/fencing", forUsersTests, "clientlib/leader", "clientlib/oteltrace", "clientlib/watch"}
}

// The API of clientlib is what apiFile says: docs/promises.md promises that no line of it is removed or changed. After a
// line was added on purpose, HOLDFAST_REWRITE=1 go test . -run TestAPI writes the file anew.
func TestAPI(t *testing.T) {
	now := clientlibAPI(t)
	text := strings.Join(now, "\n") + "\n"
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		if err := os.MkdirAll(filepath.Dir(apiFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(apiFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(apiFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	removed, added := compareAPI(strings.Split(strings.TrimSpace(string(b)), "\n"), now)
	for _, line := range removed {
		t.Errorf("removed or changed: %s\nPrograms may need it: keep it (see docs/promises.md)", line)
	}
	for _, line := range added {
		t.Errorf("added: %s\nIf that is on purpose, type: HOLDFAST_REWRITE=1 go test . -run TestAPI", line)
	}
}

// compareAPI returns the lines that only one of two lists has.
func compareAPI(before, now []string) (removed, added []string) {
	minus := func(a, b []string) (all []string) {
		for _, line := range a {
			if !slices.Contains(b, line) {
				all = append(all, line)
			}
		}
		return all
	}
	return minus(before, now), minus(now, before)
}

func TestCompareAPI(t *testing.T) {
	removed, added := compareAPI([]string{"func A()", "func B()", "type C int"}, []string{"func A()", "func B(int)", "type C int", "type D int"})
	if fmt.Sprint(removed, added) != "[func B()] [func B(int) type D int]" {
		t.Errorf("removed %q, added %q", removed, added)
	}
}

// clientlibAPI lists the API as the compiler has it.
func clientlibAPI(t *testing.T) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", "./clientlib/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range usersPackages() {
		p, err := imports.Import(module + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, packageAPI(p)...)
	}
	if len(lines) < 100 {
		t.Fatalf("only %d lines: the packages are somewhere else", len(lines))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// packageAPI lists the API of one package. What is an alias for a type of another package is listed with its fields and methods,
// but for methods that speak of messages of the protocol.
func packageAPI(p *types.Package) (lines []string) {
	name := strings.TrimPrefix(p.Path(), module+"/")
	qualify := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	add := func(format string, args ...any) { lines = append(lines, name+": "+fmt.Sprintf(format, args...)) }
	for _, word := range p.Scope().Names() {
		o := p.Scope().Lookup(word)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			add("%s = %s", types.ObjectString(o, qualify), o.Val())
		case *types.TypeName:
			typeAPI(o, qualify, add)
		case *types.Func:
			add("func %s%s", o.Name(), signature(o, qualify))
		default:
			add("%s", types.ObjectString(o, qualify))
		}
	}
	return lines
}

// signature returns what a function takes and returns, without the names of parameters, which no program needs.
func signature(f *types.Func, qualify types.Qualifier) string {
	unnamed := func(t *types.Tuple) *types.Tuple {
		var all []*types.Var
		for v := range t.Variables() {
			all = append(all, types.NewVar(token.NoPos, nil, "", v.Type()))
		}
		return types.NewTuple(all...)
	}
	s := f.Signature()
	s = types.NewSignatureType(nil, nil, nil, unnamed(s.Params()), unnamed(s.Results()), s.Variadic())
	return strings.TrimPrefix(types.TypeString(s, qualify), "func")
}

func typeAPI(o *types.TypeName, qualify types.Qualifier, add func(string, ...any)) {
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		add("type %s struct", o.Name())
		for f := range u.Fields() {
			if f.Exported() && !ofProtocol(f.Type()) {
				add("type %s struct, field %s %s", o.Name(), f.Name(), types.TypeString(f.Type(), qualify))
			}
		}
	default:
		add("type %s %s", o.Name(), types.TypeString(u, qualify))
	}
	if types.IsInterface(o.Type()) {
		return
	}
	methods := types.NewMethodSet(types.NewPointer(types.Unalias(o.Type())))
	for m := range methods.Methods() {
		if f, ok := m.Obj().(*types.Func); ok && f.Exported() && !ofProtocol(f.Type()) {
			add("method (%s) %s%s", o.Name(), f.Name(), signature(f, qualify))
		}
	}
}

// ofProtocol reports whether a type mentions messages of the protocol, or gRPC.
func ofProtocol(t types.Type) bool {
	s := types.TypeString(t, nil)
	return strings.Contains(s, "/shared/wire/pb.") || strings.Contains(s, "google.golang.org/grpc")
}
