// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"strings"
)

// glob is a compiled pattern: literal texts with a * between each two of them.
type glob struct {
	texts []string
	rest  bool // ** follows the last text
	named bool // the texts have {name} in them
}

const nameWord = "{name}"

// compileGlob compiles a pattern. The error says what is wrong with it.
func compileGlob(s string) (g glob, err error) {
	if s == "" {
		return g, errors.New("an empty pattern")
	}
	text, rest := strings.CutSuffix(s, "**")
	switch bare := strings.ReplaceAll(text, nameWord, ""); {
	case strings.Contains(text, "**"), rest && strings.HasSuffix(text, "*"):
		return g, fmt.Errorf("pattern %q: ** stands at the end only", s)
	case strings.ContainsAny(bare, "{}"):
		return g, fmt.Errorf("pattern %q: the only word in braces is %s", s, nameWord)
	}
	return glob{texts: strings.Split(text, "*"), rest: rest, named: strings.Contains(text, nameWord)}, nil
}

// of returns the pattern for an identity with this name, and false if it fits nothing: the name is missing, or not one part
// of a path.
func (g glob) of(name string) (glob, bool) {
	if !g.named {
		return g, true
	}
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return g, false
	}
	texts := make([]string, len(g.texts))
	for i, text := range g.texts {
		texts[i] = strings.ReplaceAll(text, nameWord, name)
	}
	return glob{texts: texts, rest: g.rest}, true
}

// all reports whether the pattern fits every name.
func (g glob) all() bool { return g.rest && len(g.texts) == 1 && g.texts[0] == "" }

// fits reports whether the whole name fits the pattern. The first place for a text that follows a * is always good: if
// the text has a slash, there is no other place that the * reaches, and if not, what follows has more room.
func (g glob) fits(name string) bool {
	name, ok := strings.CutPrefix(name, g.texts[0])
	if !ok {
		return false
	}
	for i, text := range g.texts[1:] {
		at := strings.Index(name, text)
		if i == len(g.texts)-2 && !g.rest { // the end of the pattern is the end of the name
			if !strings.HasSuffix(name, text) {
				return false
			}
			at = len(name) - len(text)
		}
		if at < 0 || strings.Contains(name[:at], "/") {
			return false
		}
		name = name[at+len(text):]
	}
	return g.rest || name == ""
}
