// SPDX-License-Identifier: Apache-2.0

// Package settings has the settings of a server in one table (see table.go), and those of a gateway in another one (gateway.go). Flags, environment
// variables, the configuration file and the tables in docs/configuration.md and docs/gateway.md are made of them, so that each has the same names, types and checks.
//
// A setting has one name everywhere: the flag --log-level is HOLDFAST_SERVER_LOG_LEVEL in the environment, or HOLDFAST_GATEWAY_LOG_LEVEL, and
// log-level or log_level in the file. A flag wins over the environment, that over the file, and that over the default.
// Load is strict: a key that is no setting, or a value that its check refuses, is an error that says where it is, and
// then nothing of the file is used.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Prefix begins the names of the environment variables of a server, and GatewayPrefix those of a gateway.
const (
	Prefix        = "HOLDFAST_SERVER_"
	GatewayPrefix = "HOLDFAST_GATEWAY_"
)

// FileFlag is the flag, without dashes, that names the configuration file. It is no setting: the file cannot name another.
const FileFlag = "config"

// Setting is one setting of a program. Its value is a field of a Server or a Gateway.
type Setting struct {
	// Name is that of the flag, without dashes.
	Name string
	// Help says what it does. Words in backquotes stand for the value in the help of the flag.
	Help string
	// Group is the heading under which docs/configuration.md has it.
	Group Group
	// Live settings take effect by a reload; others need a restart of the server.
	Live bool
	// Hidden settings are older names, which the help does not show.
	Hidden bool

	flag   *pflag.Flag
	check  func() error // nil = every value of its type is good
	prefix string       // of the environment variable
}

// Group is a heading.
type Group string

// The groups.
const (
	Identity Group = "The server and its volume"
	Servers  Group = "The servers"
	Clients  Group = "Connections of clients"
	TLS      Group = "TLS with clients"
	Logs     Group = "The log of the server"
	Traces   Group = "Traces"
	History  Group = "The history of grants"
	Timing   Group = "Timing: the same on all servers of a volume"
)

// Value returns the value as text, which Load would read as the same value.
func (s *Setting) Value() string {
	if list, ok := s.flag.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return s.flag.Value.String()
}

// Default returns the default value as text.
func (s *Setting) Default() string { return strings.Trim(s.flag.DefValue, "[]") }

// Type returns a word for the values: bool, duration, int, list, number or string.
func (s *Setting) Type() string {
	switch t := s.flag.Value.Type(); {
	case s.list() != nil:
		return "list"
	case t == "uint32" || t == "int64":
		return "int"
	case t == "float64":
		return "number"
	default:
		return t
	}
}

// Environment returns the name of the environment variable.
func (s *Setting) Environment() string {
	return s.prefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

func (s *Setting) list() pflag.SliceValue {
	list, _ := s.flag.Value.(pflag.SliceValue)
	return list
}

// set sets the value. The error says what kind of value the setting has.
func (s *Setting) set(values []string) error {
	if list := s.list(); list != nil {
		return list.Replace(values)
	}
	if len(values) != 1 {
		return errors.New("is a list, and has to be one value")
	}
	if err := s.flag.Value.Set(values[0]); err != nil {
		return fmt.Errorf("%q: want %s", values[0], wanted(s.Type()))
	}
	return nil
}

// wanted describes the values of a type.
func wanted(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 300ms, 10s or 2h"
	case "int":
		return "a whole number that is not too large"
	case "number":
		return "a number such as 0.01"
	default:
		return "a " + kind
	}
}

// New returns the defaults of a server.
func New() *Server {
	s := &Server{}
	s.set = newSet(Prefix, s.table())
	return s
}

// set has the settings of one program, and where their values are from.
type set struct {
	all     []Setting
	origins map[string]Origin
}

func newSet(prefix string, all []Setting) set {
	for i := range all {
		all[i].prefix = prefix
	}
	return set{all, map[string]Origin{}}
}

// All returns the settings in the order of the documentation.
func (s *set) All() []Setting { return s.all }

// Find returns the setting of this name, in which _ may stand for -; nil if there is none.
func (s *set) Find(name string) *Setting {
	name = strings.ReplaceAll(name, "_", "-")
	for i := range s.all {
		if s.all[i].Name == name {
			return &s.all[i]
		}
	}
	return nil
}

// OriginOf returns where the value of the setting of this name is from.
func (s *set) OriginOf(name string) Origin { return s.origins[name] }

// AddFlags adds the flags of those settings of a server that are chosen, nil for all of them. Their values are read by Given.
func AddFlags(fl *pflag.FlagSet, chosen func(*Setting) bool) { New().addFlags(fl, chosen) }

func (s *set) addFlags(fl *pflag.FlagSet, chosen func(*Setting) bool) {
	for i := range s.all {
		if x := &s.all[i]; chosen == nil || chosen(x) {
			fl.AddFlag(x.flag)
		}
	}
}

// Given returns the values of the flags of settings of a server that the command line has.
func Given(fl *pflag.FlagSet) map[string][]string { return New().given(fl) }

func (s *set) given(fl *pflag.FlagSet) map[string][]string {
	given := map[string][]string{}
	fl.Visit(func(f *pflag.Flag) {
		if s.Find(f.Name) == nil {
			return
		}
		given[f.Name] = []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given[f.Name] = list.GetSlice()
		}
	})
	return given
}

// Origin is where a value is from. The zero value is the default.
type Origin struct {
	Flag, Environment string // the name of the flag or of the variable
	File              string // or the name of the file, with the position of the key, from 1
	Line, Column      int
}

// String returns a word for people: default, --flag, VARIABLE or file:line:column.
func (o Origin) String() string {
	switch {
	case o.File != "":
		return fmt.Sprintf("%s:%d:%d", o.File, o.Line, o.Column)
	case o.Flag != "":
		return "--" + o.Flag
	default:
		return cmp.Or(o.Environment, "default")
	}
}

// Error is a mistake in a configuration. Its text begins with where it is.
type Error struct {
	At Origin
	// Name is the setting that is wrong; "" where there is none.
	Name string
	// Text says what is wrong, beginning with the value or a verb.
	Text string
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case e.At.File == "" && e.At != (Origin{}):
		return e.At.String() + " " + e.Text // which names the setting
	case e.At == Origin{}:
		return e.Name + " " + e.Text
	case e.Name == "":
		return e.At.String() + ": " + e.Text
	default:
		return e.At.String() + ": " + e.Name + " " + e.Text
	}
}
