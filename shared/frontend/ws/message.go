// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxID bounds an id as it is written, in bytes.
const maxID = 128

// message is a decoded message of a client.
type message struct {
	id     json.RawMessage // as the client wrote it; nil while none was understood
	op     string
	fields []field // the others, in their order
	size   int     // of all of it, in bytes
}

type field struct {
	name string
	raw  json.RawMessage
}

// decode decodes a message. With an error the ID is set all the same, if it came first.
func decode(b []byte) (m message, err error) {
	if !utf8.Valid(b) {
		return m, wire.Invalid("the message is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return m, wire.Invalid("the message is no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return m, notJSON(err)
		}
		var f field
		f.name, _ = key.(string) // the decoder lets nothing else be a key
		if err := d.Decode(&f.raw); err != nil {
			return m, notJSON(err)
		}
		if seen[f.name] {
			return m, wire.Invalid(fmt.Sprintf("field %q is given twice", f.name))
		}
		seen[f.name] = true
		if err := m.set(f); err != nil {
			return m, err
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return m, notJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, wire.Invalid("there is something behind the JSON object")
	}
	switch {
	case m.id == nil:
		return m, wire.Invalid(`field "id" is missing: use a number or a string that is distinct`)
	case m.op == "":
		return m, wire.Invalid(`field "op" is missing: use the name of an operation, such as "acquire"`)
	}
	return m, nil
}

func notJSON(err error) error { return wire.Invalid("not JSON: " + err.Error()) }

func (m *message) set(f field) error {
	switch f.name {
	case "id":
		if err := checkID(f.raw); err != nil {
			return err
		}
		m.id = f.raw
	case "op":
		return f.text(&m.op)
	default:
		m.fields = append(m.fields, f)
	}
	return nil
}

// checkID returns an error unless an id is a number or a string of at most maxID bytes.
func checkID(raw json.RawMessage) error {
	if c := raw[0]; len(raw) > maxID || c != '"' && c != '-' && (c < '0' || c > '9') {
		return wire.Invalid(fmt.Sprintf("an id is a number or a string, and takes at most %d bytes", maxID))
	}
	return nil
}

// text reads a string.
func (f *field) text(into *string) error {
	var s *string
	if json.Unmarshal(f.raw, &s) != nil || s == nil {
		return wire.Invalid(fmt.Sprintf("field %q: use a string", f.name))
	}
	if !wire.WholeText(f.raw) {
		return wire.Invalid(fmt.Sprintf("field %q holds half a character: use UTF-8, and both halves of a pair of surrogates", f.name))
	}
	*into = *s
	return nil
}

// number reads a whole number.
func (f *field) number(into *uint64) error {
	var n *uint64
	if json.Unmarshal(f.raw, &n) != nil || n == nil {
		return wire.Invalid(fmt.Sprintf("field %q: use a whole number from 0 to 18446744073709551615", f.name))
	}
	*into = *n
	return nil
}

// has reports whether a field was given.
func (m *message) has(name string) bool {
	return slices.ContainsFunc(m.fields, func(f field) bool { return f.name == name })
}

// addClient adds a client ID where the message needs one and has none. A request without any ID is
// of a client that the server makes for it.
func (m *message) addClient(client string) {
	o := ops.Named(m.op)
	if client != "" && !m.has("client_id") && (m.has("request_id") || o != nil && o.OfClient()) {
		m.fields = append(m.fields, field{"client_id", encode(client)})
	}
}

// body returns the request as HTTP takes it, without the white space of the client: it is kept for
// as long as the request waits.
func (m *message) body() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range m.fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(f.name))
		b.WriteByte(':')
		if err := json.Compact(&b, f.raw); err != nil {
			b.Write(f.raw) // decoding it will give the error
		}
	}
	b.WriteByte('}')
	return bytes.Clone(b.Bytes()) // the buffer may be much larger
}

// appending returns the request of an append as HTTP takes it: parameters, and the data.
func (m *message) appending() (url.Values, []byte, error) {
	query, size := url.Values{}, 0
	var data []byte
	for _, f := range m.fields {
		var s string
		switch c := f.raw[0]; {
		case c == '"' && f.name == "data" && !wire.WholeText(f.raw):
			return nil, nil, wire.Invalid(fmt.Sprintf(`field %q holds half a character: use "data_base64" for what is no text`, f.name))
		case c == '"':
			if err := f.text(&s); err != nil {
				return nil, nil, err
			}
		case c == '{', c == '[', c == 'n':
			return nil, nil, wire.Invalid(fmt.Sprintf("field %q: use a string, a number, true or false", f.name))
		default:
			s = string(f.raw)
		}
		if f.name != "data" && f.name != "data_base64" {
			query.Set(f.name, s)
			if size += len(f.name) + len(s); size > maxBody {
				return nil, nil, tooLong()
			}
			continue
		}
		if f.raw[0] != '"' || data != nil {
			return nil, nil, wire.Invalid(`give one of "data" and "data_base64", a string`)
		}
		data = []byte(s)
		if f.name == "data_base64" {
			var err error
			if data, err = base64.StdEncoding.DecodeString(s); err != nil {
				return nil, nil, wire.Invalid(`field "data_base64": ` + err.Error())
			}
		}
	}
	return query, data, nil
}

// greeting is what a hello has.
type greeting struct {
	client string
	after  uint64 // losses after this LSN are sent again; 0 = none
}

func (m *message) greeting() (g greeting, err error) {
	return g, m.each(map[string]func(*field) error{
		"client_id":        func(f *field) error { return f.text(&g.client) },
		"losses_after_lsn": func(f *field) error { return f.number(&g.after) },
	})
}

// maxBookmark is the longest interval of bookmarks.
const maxBookmark = time.Hour

// watch returns the request of a watch.
func (m *message) watch() (*pb.WatchRequest, error) {
	q := &pb.WatchRequest{}
	target, bookmark := "", ""
	err := m.each(map[string]func(*field) error{
		"lock":     func(f *field) error { q.Target = &pb.WatchRequest_Lock{}; return f.text(&target) },
		"prefix":   func(f *field) error { q.Target = &pb.WatchRequest_Prefix{}; return f.text(&target) },
		"after":    func(f *field) error { q.AfterLsn = proto.Uint64(0); return f.number(q.AfterLsn) },
		"kinds":    func(f *field) error { return f.kinds(&q.Kinds) },
		"bookmark": func(f *field) error { return f.text(&bookmark) },
	})
	if err != nil {
		return nil, err
	}
	switch t := q.Target.(type) {
	case *pb.WatchRequest_Lock:
		t.Lock = target
	case *pb.WatchRequest_Prefix:
		t.Prefix = target
	}
	if m.has("lock") && m.has("prefix") {
		return nil, wire.Invalid("give lock or prefix, not both")
	}
	if bookmark != "" {
		every, err := time.ParseDuration(bookmark)
		if err != nil || every < time.Millisecond || every > maxBookmark {
			return nil, wire.Invalid(fmt.Sprintf(`field "bookmark": %q: use a duration up to %v, such as "5s"`, bookmark, maxBookmark))
		}
		q.BookmarkMs = wire.CeilMillis(every)
	}
	return q, nil
}

func (f *field) kinds(into *[]pb.EventKind) error {
	var words []string
	if json.Unmarshal(f.raw, &words) != nil || words == nil {
		return wire.Invalid(fmt.Sprintf("field %q: use a list of words", f.name))
	}
	for _, word := range words {
		k, err := wire.ParseEventWord(word)
		if err != nil {
			return err
		}
		*into = append(*into, k)
	}
	return nil
}

// unwatch returns the ID of the watch that is to end.
func (m *message) unwatch() (id json.RawMessage, err error) {
	err = m.each(map[string]func(*field) error{
		"watch": func(f *field) error { id = f.raw; return checkID(f.raw) },
	})
	if err == nil && id == nil {
		err = wire.Invalid(`field "watch" is missing: use the id of a watch`)
	}
	return id, err
}

// each reads the fields with these functions, by name. Any other field is an error.
func (m *message) each(known map[string]func(*field) error) error {
	for i := range m.fields {
		f := &m.fields[i]
		read, ok := known[f.name]
		if !ok {
			return wire.Invalid(fmt.Sprintf("unknown field %q of %s", f.name, m.op))
		}
		if err := read(f); err != nil {
			return err
		}
	}
	return nil
}

// answer returns an answer as HTTP sends it, with the ID in front.
func answer(id json.RawMessage, body []byte) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	b := append([]byte(`{"id":`), id...)
	return append(append(b, ','), bytes.TrimPrefix(bytes.TrimSpace(body), []byte("{"))...)
}

// event returns the message with an event of a watch.
func event(id json.RawMessage, b *wire.EventBody) []byte {
	m := append([]byte(`{"watch":`), id...)
	m = append(append(m, `,"event":`...), encode(b)...)
	return append(m, '}')
}
