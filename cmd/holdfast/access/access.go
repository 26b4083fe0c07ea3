// SPDX-License-Identifier: Apache-2.0

// Package access reads and changes the access rules of a volume as text: TOML, which people edit, so that changes by
// commands leave comments alone. Package shared/access decides what the rules permit, package volume keeps their versions.
package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Decode returns what the text of a version says, without a check of its words. Keys that rules do not have are errors. All
// errors say where in the text they are.
func Decode(text []byte) (*access.File, error) {
	f := &access.File{}
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(f)
	if err == nil {
		return f, nil
	}
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(e.Errors) > 0 {
		first := &e.Errors[0]
		line, column := first.Position()
		return nil, fmt.Errorf("line %d, column %d: unknown key %q", line, column, strings.Join(first.Key(), "."))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := e.Position()
		return nil, fmt.Errorf("line %d, column %d: %s", line, column, strings.TrimPrefix(e.Error(), "toml: "))
	}
	return nil, err
}

// Parse checks the text of a version of the rules, and makes it ready to be asked.
func Parse(text []byte, version uint64) (*access.Rules, error) {
	f, err := Decode(text)
	if err != nil {
		return nil, err
	}
	r, err := access.Compile(f, version)
	if e, ok := errors.AsType[*access.TableError](err); ok {
		if at := tables(text, e.Table); e.Number <= len(at) {
			return nil, fmt.Errorf("line %d: %w", at[e.Number-1]+1, err)
		}
	}
	return r, err
}

// tables returns the numbers of the lines, from 0, that begin a table of this name.
func tables(text []byte, name string) (all []int) {
	header := regexp.MustCompile(`^\s*\[\[\s*` + name + `\s*\]\]`)
	for i, line := range bytes.Split(text, []byte("\n")) {
		if header.Match(line) {
			all = append(all, i)
		}
	}
	return all
}

// AddKey returns the text with one more key.
func AddKey(text []byte, k access.Key) ([]byte, error) {
	b := fmt.Appendf(nil, "[[key]]\nname = %q\n", k.Name)
	if len(k.Groups) > 0 {
		b = fmt.Appendf(b, "groups = %s\n", words(k.Groups))
	}
	b = fmt.Appendf(b, "sha256 = %q\ncreated = %s\n", k.SHA256, instant(k.Created))
	if !k.Expires.IsZero() {
		b = fmt.Appendf(b, "expires = %s\n", instant(k.Expires))
	}
	return appendTable(text, b)
}

// AddRevocation returns the text with one more [[revoked]] table.
func AddRevocation(text []byte, x access.Revocation) ([]byte, error) {
	return appendTable(text, fmt.Appendf(nil, "[[revoked]]\nwho = %s\nbefore = %s\n", words(x.Who), instant(x.Before)))
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// words returns names without quotes and control characters as a list in TOML.
func words(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// appendTable returns the text with a table at its end, if it is good then.
func appendTable(text, table []byte) ([]byte, error) {
	changed := slices.Concat(text, []byte("\n"), table)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		changed = slices.Concat(text, []byte("\n\n"), table)
	}
	if _, err := Parse(changed, 0); err != nil {
		return nil, err
	}
	return changed, nil
}

// RemoveKey returns the text without the key of this name: its table goes, up to the comments before the next one.
func RemoveKey(text []byte, name string) ([]byte, error) {
	f, err := Decode(text)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(f.Keys, func(k access.Key) bool { return k.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no key %q", name)
	}
	byHand := fmt.Errorf("key %q is written in a way that cannot be removed by a command: type holdfast access edit", name)
	at := tables(text, "key")
	if len(at) != len(f.Keys) {
		return nil, byHand
	}
	lines := strings.SplitAfter(string(text), "\n")
	end := at[i] + 1
	for end < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[end]), "[") {
		end++
	}
	for end < len(lines) && end > at[i]+1 && strings.HasPrefix(strings.TrimSpace(lines[end-1]), "#") {
		end--
	}
	changed := []byte(strings.Join(slices.Delete(lines, at[i], end), ""))
	f.Keys = slices.Delete(f.Keys, i, i+1)
	after, err := Decode(changed)
	if err != nil || !sameFile(f, after) { // the lines were not what they seemed
		return nil, byHand
	}
	return changed, nil
}

func sameFile(a, b *access.File) bool {
	return len(a.Keys) == len(b.Keys) && (len(a.Keys) == 0 || reflect.DeepEqual(a.Keys, b.Keys)) &&
		reflect.DeepEqual(a.Admins, b.Admins) && reflect.DeepEqual(a.Rules, b.Rules) && reflect.DeepEqual(a.Ended, b.Ended) && reflect.DeepEqual(a.Quotas, b.Quotas)
}

// ErrNone means that a volume has no access rules.
var ErrNone = errors.New("the volume has no access rules: everybody may do everything (holdfast access set --policy team makes some)")

// Newest reads the newest version of a volume's rules. It returns 0 and no text if there is none.
func Newest(fsys vfs.FS) (version uint64, text []byte, err error) {
	all, err := volume.RulesVersions(fsys)
	if err != nil || len(all) == 0 {
		return 0, nil, err
	}
	version = all[len(all)-1]
	text, err = volume.ReadRules(fsys, version)
	return version, text, err
}

// updates is how often Update tries when others change the rules at the same time.
const updates = 5

// Update publishes what change makes of the newest version, and returns its number. It returns an error that wraps
// ErrNone if there is none. If somebody else publishes a version meanwhile, it changes that one.
func Update(fsys vfs.FS, random io.Reader, change func(text []byte) ([]byte, error)) (uint64, error) {
	for try := 1; ; try++ {
		version, text, err := Newest(fsys)
		if err == nil && version == 0 {
			err = ErrNone
		}
		if err != nil {
			return 0, err
		}
		if text, err = change(text); err != nil {
			return 0, err
		}
		err = volume.PublishRules(fsys, random, version, text)
		if err == nil || try == updates || !errors.Is(err, volume.ErrRulesChanged) {
			return version + 1, err
		}
	}
}
