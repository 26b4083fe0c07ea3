// SPDX-License-Identifier: Apache-2.0

// Package clientconfig reads what a host and a user have configured for clients, in files in TOML:
//
//	endpoints = "/mnt/share/holdfast"       as holdfast --endpoints takes them
//	ca = "/etc/holdfast/ca.crt"             a certificate of the servers' authority, for these endpoints
//	key-file = "/etc/holdfast/backup.key"   a file with a credential
//	cert = "/etc/holdfast/backup.crt"       a file with a certificate by which the client proves who it is,
//	cert-key = "/etc/holdfast/backup.pem"   and one with its key
//	output = "json"                         of the command line
//
// The file of the host is /etc/holdfast/client.toml. That of the user, ~/.config/holdfast/config.toml, wins over it, key by key; flags
// and environment variables win over both. HOLDFAST_CLIENT_CONFIG names one file instead of them.
package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/holdfast-lock/holdfast/shared/spelling"
)

// ofHost is the file of the host.
const ofHost = "/etc/holdfast/client.toml"

// Config is what is configured; "" = not.
type Config struct {
	Endpoints string `toml:"endpoints"`
	CA        string `toml:"ca"`
	KeyFile   string `toml:"key-file"`
	Cert      string `toml:"cert"`
	CertKey   string `toml:"cert-key"`
	Output    string `toml:"output"`
}

// Sourced is a Config with the file that each value is from, by its key.
type Sourced struct {
	Config
	From map[string]string
}

// Directory returns the user's directory for the configuration of programs; "" if there is none.
func Directory(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// files returns the files to read. The later wins.
func files(getenv func(string) string) (all []string, needed bool) {
	if name := getenv("HOLDFAST_CLIENT_CONFIG"); name != "" {
		return []string{name}, true
	}
	all = []string{ofHost}
	if dir := Directory(getenv); dir != "" {
		all = append(all, filepath.Join(dir, "holdfast", "config.toml"))
	}
	return all, false
}

// Read returns what is configured. Files that are not there are none, but for that of HOLDFAST_CLIENT_CONFIG. An error says where in a file a
// mistake is.
func Read(getenv func(string) string) (Sourced, error) {
	s := Sourced{From: map[string]string{}}
	all, needed := files(getenv)
	for _, name := range all {
		text, err := os.ReadFile(name)
		if !needed && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Sourced{}, fmt.Errorf("read the configuration of clients: %w", err)
		}
		c, err := Parse(name, text)
		if err != nil {
			return Sourced{}, err
		}
		s.take(c, name)
	}
	return s, nil
}

// take replaces what a file says.
func (s *Sourced) take(c Config, name string) {
	to, from := reflect.ValueOf(&s.Config).Elem(), reflect.ValueOf(c)
	for i, key := range Keys() {
		if v := from.Field(i).String(); v != "" {
			to.Field(i).SetString(v)
			s.From[key] = name
		}
	}
}

// Keys returns the keys of a file.
func Keys() (all []string) {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		all = append(all, t.Field(i).Tag.Get("toml"))
	}
	return all
}

// Get returns the value of a key.
func (c Config) Get(key string) string {
	for i, k := range Keys() {
		if k == key {
			return reflect.ValueOf(c).Field(i).String()
		}
	}
	return ""
}

// Parse returns what the text of a file says. Keys that are not known are errors.
func Parse(name string, text []byte) (Config, error) {
	var c Config
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&c)
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(e.Errors) > 0 {
		first := &e.Errors[0]
		line, column := first.Position()
		key := strings.Join(first.Key(), ".")
		return Config{}, fmt.Errorf("%s:%d:%d: unknown key %q%s", name, line, column, key, spelling.Meant(key, Keys()))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := e.Position()
		return Config{}, fmt.Errorf("%s:%d:%d: %s", name, line, column, strings.TrimPrefix(e.Error(), "toml: "))
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	if c.Output != "" && c.Output != "text" && c.Output != "json" {
		return Config{}, fmt.Errorf("%s: output %q: use text or json", name, c.Output)
	}
	return c, nil
}
