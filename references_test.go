// SPDX-License-Identifier: Apache-2.0

package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// references are what comments, strings and documents may refer to.
type references struct {
	documents map[string]bool // Markdown files, relative to the module's root
	anchors   map[string]bool // docs/guide.md#a-heading
	sections  map[string]bool // of docs/PROTOCOL.md, as in 7.2
	hazards   map[string]bool // of docs/ARCHITECTURE.md, as in H13
	models    map[string]bool // mutants of docs/model, as in fence NO_CHECK

	document, section, number, hazard, stray *regexp.Regexp // how a text refers to them
}

func newReferences() *references {
	return &references{
		documents: map[string]bool{}, anchors: map[string]bool{}, sections: map[string]bool{},
		hazards: map[string]bool{}, models: map[string]bool{},
		document: regexp.MustCompile(`(?:\$\w+/)?([A-Za-z0-9_./-]+\.md)(#[a-z0-9_-]+)?`),
		section:  regexp.MustCompile(`\bPROTOCOL ((?:\d+(?:\.\d+)?(?:, | and | to )?)+)`),
		number:   regexp.MustCompile(`\d+(?:\.\d+)?`),
		hazard:   regexp.MustCompile(`\bH[1-9]\d?\b`),
		stray:    regexp.MustCompile(`\b(DESIGN|RELIABILITY|STYLE|HOUSE)(\b|_)|\bthe (style|design), section`),
	}
}

// addDocument enters a Markdown file with its headings, and what it numbers.
func (x *references) addDocument(name, text string) {
	x.documents[name] = true
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		heading := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		x.anchors[name+"#"+strings.ReplaceAll(heading, " ", "-")] = true
	}
	switch name {
	case "docs/PROTOCOL.md":
		for _, m := range regexp.MustCompile(`(?m)^(?:## (\d+)\.|\*\*(\d+\.\d+)) `).FindAllStringSubmatch(text, -1) {
			x.sections[m[1]+m[2]] = true
		}
	case "docs/ARCHITECTURE.md":
		for _, m := range regexp.MustCompile(`(?m)^\| (H\d+) \|`).FindAllStringSubmatch(text, -1) {
			x.hazards[m[1]] = true
		}
	}
}

// addModel enters the mutants that the header of a model lists.
func (x *references) addModel(name, text string) {
	model := strings.TrimSuffix(path.Base(name), ".pml")
	for _, m := range regexp.MustCompile(`(?m)^     ([A-Z_]+)  +\S`).FindAllStringSubmatch(text, -1) {
		if strings.Contains(text, "MUT_"+m[1]+"\n") || strings.Contains(text, "MUT_"+m[1]+")") {
			x.models[model+" "+m[1]] = true
		}
	}
}

// dangling lists what a text refers to that is not there: documents, headings, sections of the
// protocol, hazards. The text is a document, or a comment or string of a file.
func (x *references) dangling(file, text string) (all []string) {
	report := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, m := range x.document.FindAllStringSubmatch(text, -1) {
		name := x.find(file, m[1])
		if name == "" {
			report("there is no document %s", m[1])
		} else if m[2] != "" && !x.anchors[name+m[2]] {
			report("there is no heading %s in %s", m[2], name)
		}
	}
	for _, m := range x.section.FindAllStringSubmatch(text, -1) {
		for _, n := range x.number.FindAllString(m[1], -1) {
			if !x.sections[n] {
				report("there is no section %s in PROTOCOL.md", n)
			}
		}
	}
	for _, h := range x.hazard.FindAllString(text, -1) {
		if !x.hazards[h] {
			report("there is no hazard %s in ARCHITECTURE.md", h)
		}
	}
	for _, m := range x.stray.FindAllString(text, -1) {
		report("%q is no document of this repository", m)
	}
	return all
}

// find returns which document a file means by a name; "" for none. Reports are made, and not here.
func (x *references) find(file, name string) string {
	if path.Base(name) == "report.md" {
		return name
	}
	for _, at := range []string{path.Join(path.Dir(file), name), path.Clean(name), path.Join("docs", name)} {
		if x.documents[at] {
			return at
		}
	}
	return ""
}

// inside lists what a document of the protocol refers to by numbers in brackets, as in (7.2, 9),
// and the mutants of models it names, where these are not there.
func (x *references) inside(text string) (all []string) {
	for _, m := range regexp.MustCompile(`\((?:see )?(\d+(?:\.\d+)?(?:(?:,| to| and) \d+(?:\.\d+)?)*)\)`).FindAllStringSubmatch(text, -1) {
		for _, n := range x.number.FindAllString(m[1], -1) {
			if !x.sections[n] {
				all = append(all, fmt.Sprintf("there is no section %s", n))
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z]+)` `([A-Z_]+)`").FindAllStringSubmatch(text, -1) {
		if !x.models[m[1]+" "+m[2]] {
			all = append(all, fmt.Sprintf("there is no mutant %s of the model %s", m[2], m[1]))
		}
	}
	return all
}

// texts reads what is no Go source and may refer to something.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".md", ".sh", ".pml", ".proto"}, path.Ext(name)) && d.Name() != "Makefile":
			return nil
		}
		b, err := os.ReadFile(name)
		all[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// prose lists the comments and strings of a Go file.
func (s *source) prose() (all []string) {
	for _, c := range s.file.Comments {
		all = append(all, c.Text())
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			all = append(all, lit.Value)
		}
		return true
	})
	return all
}

func TestReferencesLeadSomewhere(t *testing.T) {
	x, all := newReferences(), texts(t)
	for name, text := range all {
		switch path.Ext(name) {
		case ".md":
			x.addDocument(name, text)
		case ".pml":
			x.addModel(name, text)
		}
	}
	for _, n := range []int{len(x.sections), len(x.hazards), len(x.models)} {
		if n < 19 {
			t.Errorf("only %d sections of the protocol, hazards or mutants of models: they are written in another way now", n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, why := range x.dangling(name, all[name]) {
			t.Errorf("%s: %s", name, why)
		}
	}
	for _, name := range []string{"docs/PROTOCOL.md", "docs/GLOSSARY.md"} {
		for _, why := range x.inside(all[name]) {
			t.Errorf("%s: %s", name, why)
		}
	}
	for _, s := range sources(t) {
		if s.name == "references_test.go" || s.generated() {
			continue
		}
		for _, text := range s.prose() {
			for _, why := range x.dangling(s.name, text) {
				t.Errorf("%s: %s", s.name, why)
			}
		}
	}
}

// TestDanglingReferencesAreFound is the control of TestReferencesLeadSomewhere.
func TestDanglingReferencesAreFound(t *testing.T) {
	x := newReferences()
	x.addDocument("docs/PROTOCOL.md", "# The protocol\n\n## 7. Takeover\n\n**7.2 START** is one sector.\n")
	x.addDocument("docs/ARCHITECTURE.md", "## Hazards\n\n| H13 | A lock is free. |\n")
	x.addDocument("docs/guide.md", "# Guide\n\n## Who, why: since `when`\n")
	x.addModel("docs/model/fence.pml", "     NO_CHECK   answers\n     NO_SUCH    thing\n#if !defined(MUT_NO_CHECK)\n")
	for _, c := range []struct {
		text string
		want string // of the one complaint; "" for none
	}{
		{"see PROTOCOL 7.2, H13, or PROTOCOL 7, and docs/guide.md#who-why-since-when", ""},
		{"PROTOCOL.md says it (PROTOCOL 7 and 7.2); report.md is made", ""},
		{"(7.2, 7) `fence` `NO_CHECK` (100, 3.4 MB)", ""},
		{"docs/STORY.md", "there is no document docs/STORY.md"},
		{"guide.md#where", "there is no heading #where in docs/guide.md"},
		{"PROTOCOL 7.3", "there is no section 7.3 in PROTOCOL.md"},
		{"PROTOCOL 7.2 and 8", "there is no section 8 in PROTOCOL.md"},
		{"(PROTOCOL 7.2, H14)", "there is no hazard H14"},
		{"DESIGN 3.3", `"DESIGN" is no document`},
		{"the style, section 3", "is no document"},
		{"as above (7.2, 8)", "there is no section 8"},
		{"`fence` `NO_SUCH`", "there is no mutant NO_SUCH of the model fence"},
	} {
		got := append(x.dangling("docs/page.md", c.text), x.inside(c.text)...)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
