// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
)

// naive reports whether a name fits a pattern, part by part and byte by byte; own is what {name} stands for.
func naive(pattern, name, own string) bool {
	if strings.Contains(pattern, "{name}") && (own == "" || own == "." || own == ".." || strings.Contains(own, "/")) {
		return false
	}
	return naiveParts(strings.Split(pattern, "/"), strings.Split(name, "/"), own)
}

func naiveParts(patterns, names []string, own string) bool {
	if head, ok := strings.CutSuffix(patterns[0], "**"); ok {
		for i := range len(names[0]) + 1 { // of the part, some beginning fits, and all else does
			if naivePart(head, names[0][:i], own) {
				return true
			}
		}
		return false
	}
	if !naivePart(patterns[0], names[0], own) {
		return false
	}
	if len(patterns) == 1 || len(names) == 1 {
		return len(patterns) == len(names)
	}
	return naiveParts(patterns[1:], names[1:], own)
}

func naivePart(pattern, name, own string) bool {
	switch {
	case pattern == "":
		return name == ""
	case strings.HasPrefix(pattern, "{name}"):
		return strings.HasPrefix(name, own) && naivePart(pattern[len("{name}"):], name[len(own):], own)
	case pattern[0] == '*':
		return naivePart(pattern[1:], name, own) || name != "" && naivePart(pattern, name[1:], own)
	}
	return name != "" && name[0] == pattern[0] && naivePart(pattern[1:], name[1:], own)
}

// agree fails if the compiled pattern and the naive matcher differ. It returns false for a text that is no pattern.
func agree(t *testing.T, pattern, name, own string) bool {
	t.Helper()
	c := &access.Caller{Identity: "user:" + own}
	r, err := access.Compile(&access.File{Rules: []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Read}, Locks: []string{pattern}, Files: []string{}}}}, 1)
	if err != nil || name == "" {
		return err == nil
	}
	x := r.Rights(c)
	want := naive(pattern, name, own)
	if got := x.May(access.Read, name, ""); got != want {
		t.Errorf("pattern %q, name %q of %q: %v, want %v", pattern, name, own, got, want)
	}
	for i := range len(name) + 1 {
		under := name[:i]
		all := x.LockPrefixes(access.Read, under)
		covers := func(p string) bool { return strings.HasPrefix(name, p) }
		if want && !slices.ContainsFunc(all, covers) {
			t.Errorf("pattern %q of %q: none of %q begins %q", pattern, own, all, name)
		}
		if slices.ContainsFunc(all, func(p string) bool { return !strings.HasPrefix(p, under) }) {
			t.Errorf("pattern %q of %q: %q do not all begin with %q", pattern, own, all, under)
		}
	}
	if x.MayPrefix(access.Read, name) {
		for _, more := range []string{"", "a", "/", "/a", "*", "\xff/b/"} {
			if !naive(pattern, name+more, own) {
				t.Errorf("pattern %q, prefix %q of %q: %q is not covered", pattern, name, own, name+more)
			}
		}
	}
	return true
}

// TestFitsAsNaive compares both matchers on short texts of few letters, in which nearly everything happens.
func TestFitsAsNaive(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(words []string, n int) (s string) {
		for range rnd.IntN(n + 1) {
			s += words[rnd.IntN(len(words))]
		}
		return s
	}
	patterns := 0
	for range 200000 {
		pattern := text([]string{"a", "b", "/", "*", "{name}"}, 6) + []string{"", "**"}[rnd.IntN(2)]
		name := text([]string{"a", "b", "/", "*", "a/", "\xff"}, 7)
		if agree(t, pattern, name, text([]string{"a", "b", "*", "/", "{name}"}, 2)) {
			patterns++
		}
	}
	if patterns < 50000 {
		t.Errorf("only %d of the texts were patterns", patterns)
	}
}

func FuzzFits(f *testing.F) {
	f.Add("home/{name}/**", "home/alice/x", "alice")
	f.Add("job-*/*x", "job-1/x/x", "*")
	f.Add("a*b*/c**", "\xffab/c\x00", "")
	f.Fuzz(func(t *testing.T, pattern, name, own string) {
		if len(pattern)+len(name)+len(own) < 60 { // the naive one takes exponential time
			agree(t, pattern, name, own)
		}
	})
}
