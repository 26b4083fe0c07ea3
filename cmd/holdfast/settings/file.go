// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// entry is one key of a file.
type entry struct {
	key    string
	values []string
	wrong  string // what is wrong with the value, "" = nothing
	at     Origin
}

// parse returns the keys of a file in TOML, or, where it begins with a brace, of one JSON object.
func parse(name string, text []byte) ([]entry, []error) {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		return parseJSON(name, text)
	}
	return parseTOML(name, text)
}

func parseTOML(name string, text []byte) (all []entry, errs []error) {
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		at, text := Origin{File: name, Line: 1, Column: 1}, strings.TrimPrefix(err.Error(), "toml: ")
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			at.Line, at.Column = e.Position()
		}
		return nil, []error{&Error{At: at, Text: text}}
	}
	// The text is valid. What follows only finds the positions.
	var p unstable.Parser
	p.Reset(text)
	in := "" // the table that is open
	for p.NextExpression() {
		x := p.Expression()
		var key []string
		var at Origin
		for it := x.Key(); it.Next(); {
			if at == (Origin{}) {
				start := p.Shape(it.Node().Raw).Start
				at = Origin{File: name, Line: start.Line, Column: start.Column}
			}
			key = append(key, string(it.Node().Data))
		}
		switch full := strings.Join(key, "."); {
		case x.Kind != unstable.KeyValue:
			in = full
			errs = append(errs, &Error{At: at, Text: fmt.Sprintf("unknown table %q: settings have no tables, such as log-level = \"info\"", full)})
		case in != "": // in an unknown table
		case len(key) > 1:
			errs = append(errs, &Error{At: at, Text: fmt.Sprintf("unknown key %q: settings have no dots, such as log-level = \"info\"", full)})
		default:
			e := entry{key: full, at: at}
			e.values, e.wrong = texts(values[full])
			all = append(all, e)
		}
	}
	return all, errs
}

// texts returns a value as texts, one for each element of a list.
func texts(value any) (all []string, wrong string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, v := range list {
		switch v := v.(type) {
		case string, bool, int64, float64, json.Number:
			all = append(all, fmt.Sprint(v))
		default:
			return nil, "has to be a text, a number, true or false, or a list of these"
		}
	}
	return all, ""
}

// parseJSON reads one object, key by key: so it is known where each is.
func parseJSON(name string, text []byte) (all []entry, errs []error) {
	at := func(offset int64) Origin {
		before := text[:offset]
		return Origin{File: name, Line: 1 + bytes.Count(before, []byte("\n")), Column: len(before) - bytes.LastIndexByte(before, '\n')}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	fail := func(err error) ([]entry, []error) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		where := d.InputOffset()
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			where = min(e.Offset, int64(len(text)))
		}
		return nil, []error{&Error{At: at(where), Text: fmt.Sprintf("%v: want one JSON object with the names of settings, or TOML", err)}}
	}
	if _, err := d.Token(); err != nil { // the brace
		return fail(err)
	}
	for d.More() {
		offset := d.InputOffset()
		for int(offset) < len(text) && strings.IndexByte(" \t\r\n,", text[offset]) >= 0 {
			offset++
		}
		key, err := d.Token()
		if err != nil {
			return fail(err)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return fail(err)
		}
		e := entry{key: fmt.Sprint(key), at: at(offset)}
		e.values, e.wrong = texts(value)
		all = append(all, e)
	}
	if _, err := d.Token(); err != nil {
		return fail(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail(errors.New("something follows the object"))
	}
	return all, nil
}
