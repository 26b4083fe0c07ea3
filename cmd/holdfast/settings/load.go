// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/spelling"
)

// Sources are where settings come from.
type Sources struct {
	// Flags has the values by name, see Given.
	Flags map[string][]string
	// Getenv returns the value of an environment variable; nil = there is none.
	Getenv func(string) string
	// File is the name of the configuration file; "" = none.
	File string
}

// Load returns the settings of all sources. It reports every mistake, not only the first: each is an *Error, and they
// are joined. A file that cannot be read is another error. A server needs id and volume, too, see Complete.
func Load(from Sources) (*Server, error) {
	text, err := from.text()
	if err != nil {
		return nil, err
	}
	return load(from, from.File, text)
}

// text returns what is in the configuration file, nil if there is none.
func (from Sources) text() ([]byte, error) {
	if from.File == "" {
		return nil, nil
	}
	text, err := os.ReadFile(from.File)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return text, nil
}

func load(from Sources, file string, text []byte) (*Server, error) {
	s := New()
	if err := s.load(from, file, text, s.checkTiming); err != nil {
		return nil, err
	}
	return s, nil
}

// load sets what the sources have, and checks each value, and then with further what concerns several of them.
func (s *set) load(from Sources, file string, text []byte, further func() error) error {
	errs := s.readFile(file, text)
	for i := range s.all {
		x := &s.all[i]
		if from.Getenv != nil {
			if v := from.Getenv(x.Environment()); v != "" {
				errs = append(errs, s.setFrom(x, split(x, v), Origin{Environment: x.Environment()}))
			}
		}
		if v, ok := from.Flags[x.Name]; ok {
			errs = append(errs, s.setFrom(x, v, Origin{Flag: x.Name}))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(s.check(), further())
}

// split returns the values of an environment variable: a list has commas.
func split(x *Setting, text string) []string {
	if x.list() == nil {
		return []string{text}
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// setFrom replaces the value that a source has set which counts less.
func (s *set) setFrom(x *Setting, values []string, at Origin) error {
	if err := x.set(values); err != nil {
		return &Error{at, x.Name, err.Error()}
	}
	s.origins[x.Name] = at
	return nil
}

// check returns what is wrong with the values that count.
func (s *set) check() error {
	var errs []error
	for i := range s.all {
		x := &s.all[i]
		if x.check == nil {
			continue
		}
		if err := x.check(); err != nil {
			errs = append(errs, &Error{s.origins[x.Name], x.Name, err.Error()})
		}
	}
	return errors.Join(errs...)
}

// checkTiming returns what is wrong with the durations together.
func (s *Server) checkTiming() error {
	t := s.Timing()
	if e, ok := errors.AsType[*cluster.TimingError](t.Validate()); ok {
		return &Error{s.origins[e.Name], e.Name, e.Text}
	}
	return nil
}

// readFile sets what the file has. It returns what is wrong with it.
func (s *set) readFile(name string, text []byte) (errs []error) {
	entries, errs := parse(name, text)
	known := make([]string, 0, len(s.all))
	for _, x := range s.all {
		known = append(known, x.Name)
	}
	for _, e := range entries {
		x := s.Find(e.key)
		switch before, ok := s.origins[strings.ReplaceAll(e.key, "_", "-")]; {
		case x == nil:
			errs = append(errs, &Error{e.at, "", fmt.Sprintf("unknown key %q%s", e.key, spelling.Meant(strings.ReplaceAll(e.key, "_", "-"), known))})
		case ok:
			errs = append(errs, &Error{e.at, x.Name, fmt.Sprintf("is set twice: it is in line %d, too", before.Line)})
		case e.wrong != "":
			errs = append(errs, &Error{e.at, x.Name, e.wrong})
		default:
			errs = append(errs, s.setFrom(x, e.values, e.at))
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int {
		x, y := where(a), where(b)
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return errs
}

// where returns the position of a mistake in the file.
func where(err error) Origin {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.At
	}
	return Origin{}
}

// Difference returns the names of the settings whose values differ: those that a reload changes, and those that need a restart.
func (s *Server) Difference(next *Server) (live, restart []string) {
	for i := range s.all {
		x, y := &s.all[i], &next.all[i]
		switch {
		case x.Value() == y.Value():
		case x.Live:
			live = append(live, x.Name)
		default:
			restart = append(restart, x.Name)
		}
	}
	return live, restart
}
