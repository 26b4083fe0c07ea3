// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// field is the destination of one JSON field or query parameter.
type field struct {
	name string
	into any // *string, *uint32, *uint64, *int64, *bool, *pb.Mode, ttl, wait, checksum, offset or a nested []field
}

type (
	ttl      struct{ ms *int64 }
	wait     struct{ ms **int64 }
	checksum struct{ crc **uint32 }
	offset   struct{ at **int64 }
)

// Decode parses a request from JSON: one object, no unknown or repeated field, no
// null, durations as Go duration strings in whole milliseconds, "forever" for a
// wait without end. It returns an *Error with StatusInvalidArgument that says what
// to change.
func Decode(body []byte, q proto.Message) error {
	return decodeJSON(body, fieldsOf(q))
}

// DecodeAppend parses an append: its query parameters under the same rules as Decode, and
// its data, of which it keeps the slice.
func DecodeAppend(query url.Values, data []byte) (*pb.FileAppendRequest, error) {
	q := &pb.FileAppendRequest{Data: data}
	fields := append(requester(&q.ClientId, &q.RequestId, &q.LowWater),
		field{"lock", &q.Lock}, field{"token", &q.Token}, field{"file", &q.File},
		field{"adopt_existing", &q.AdoptExisting}, field{"crc32c", checksum{&q.Crc32C}},
		field{"expected_offset", offset{&q.ExpectedOffset}})
	for name, values := range query {
		f, err := lookup(fields, name)
		if err != nil {
			return nil, err
		}
		if len(values) != 1 {
			return nil, Invalid(fmt.Sprintf("parameter %q is given %d times", name, len(values)))
		}
		if err := f.setText(values[0]); err != nil {
			return nil, Invalid(fmt.Sprintf("parameter %q: %v", name, err))
		}
	}
	return q, nil
}

// fieldsOf returns the fields of a request, which are those of its message unless it is one here.
func fieldsOf(q proto.Message) []field {
	switch q := q.(type) {
	case *pb.AcquireRequest:
		q.Holder = &pb.Holder{}
		return append(requester(&q.ClientId, &q.RequestId, &q.LowWater),
			field{"lock", &q.Lock}, field{"ttl", ttl{&q.TtlMs}}, field{"wait", wait{&q.WaitMs}},
			field{"holder", []field{{"user", &q.Holder.User}, {"host", &q.Holder.Host}, {"pid", &q.Holder.Pid}, {"command", &q.Holder.Command}}},
			field{"metadata", &q.Metadata}, field{"max_hold", ttl{&q.MaxHoldMs}}, field{"heartbeat", &q.Heartbeat}, field{"mode", &q.Mode},
			field{"after_token", &q.AfterToken}, field{"remember", &q.Remember}, field{"once", &q.Once},
			field{"limit", &q.Limit}, field{"weight", &q.Weight})
	case *pb.KeepAliveRequest:
		return []field{{"client_id", &q.ClientId}, {"held", &q.Held}}
	}
	return messageFields(q)
}

// messageFields returns the fields of a message of numbers, texts and truth values. A field in
// milliseconds is a duration over HTTP, without the end of its name.
func messageFields(q proto.Message) (fields []field) {
	v := reflect.ValueOf(q).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",") // the name in the .proto file
		if name == "" {
			continue // not a field of the message
		}
		into := v.Field(i).Addr().Interface()
		if short, ok := strings.CutSuffix(name, "_ms"); ok {
			name, into = short, ttl{into.(*int64)}
		}
		fields = append(fields, field{name, into})
	}
	return fields
}

func requester(client *string, id, lowWater *uint64) []field {
	return []field{{"client_id", client}, {"request_id", id}, {"low_water", lowWater}}
}

func lookup(fields []field, name string) (field, error) {
	names := make([]string, len(fields))
	for i, f := range fields {
		if f.name == name {
			return f, nil
		}
		names[i] = f.name
	}
	return field{}, Invalid(fmt.Sprintf("unknown field %q: allowed are %s", name, strings.Join(names, ", ")))
}

func decodeJSON(body []byte, fields []field) error {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return Invalid("the body is empty: send a JSON object")
	case !utf8.Valid(body):
		return Invalid("the body is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil {
		return badJSON(err)
	} else if t != json.Delim('{') {
		return Invalid("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return badJSON(err)
		}
		name, _ := key.(string) // the decoder accepts no other key
		f, err := lookup(fields, name)
		if err != nil {
			return err
		}
		if seen[name] {
			return Invalid(fmt.Sprintf("field %q is given twice", name))
		}
		seen[name] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return badJSON(err)
		}
		if err := f.setJSON(raw); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return badJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Invalid("there is something behind the JSON object")
	}
	return nil
}

func badJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Invalid("the JSON is cut off")
	}
	return Invalid("not JSON: " + err.Error())
}

// setJSON sets the field from a JSON value of the right type.
func (f field) setJSON(raw json.RawMessage) error {
	var err error
	switch p := f.into.(type) {
	case []field:
		if err := decodeJSON(raw, p); err != nil {
			return Invalid(fmt.Sprintf("field %q: %s", f.name, messageOf(err)))
		}
		return nil
	case *string, *pb.Mode, ttl, wait:
		var s *string
		if json.Unmarshal(raw, &s) != nil || s == nil {
			err = errors.New("use a string" + f.example())
		} else if !WholeText(raw) {
			err = errors.New("it holds half a character: use UTF-8, and both halves of a pair of surrogates")
		} else {
			err = f.setText(*s)
		}
	case *bool:
		var b *bool
		if json.Unmarshal(raw, &b) != nil || b == nil {
			err = errors.New("use true or false")
		} else {
			*p = *b
		}
	default:
		// setText parses the JSON text of a number and refuses anything else.
		err = f.setText(string(raw))
	}
	if err != nil {
		return Invalid(fmt.Sprintf("field %q: %v", f.name, err))
	}
	return nil
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}

func (f field) example() string {
	switch f.into.(type) {
	case *pb.Mode:
		return `, "exclusive" or "shared"`
	case ttl:
		return ` such as "30s"`
	case wait:
		return ` such as "5s", or "forever"`
	}
	return ""
}

// setText sets the field from its text.
func (f field) setText(s string) error {
	switch p := f.into.(type) {
	case *string:
		*p = s
		return nil
	case *pb.Mode:
		mode, ok := ParseMode(s)
		if *p = mode; !ok {
			return fmt.Errorf("unknown mode %q: use \"exclusive\" or \"shared\"", s)
		}
		return nil
	case *uint64:
		n, err := strconv.ParseUint(s, 10, 64)
		*p = n
		return number(err, "0", "18446744073709551615")
	case *uint32:
		n, err := strconv.ParseUint(s, 10, 32)
		*p = uint32(n)
		return number(err, "0", "4294967295")
	case checksum:
		n, err := strconv.ParseUint(s, 10, 32)
		crc := uint32(n)
		*p.crc = &crc
		return number(err, "0", "4294967295")
	case *int64:
		n, err := strconv.ParseInt(s, 10, 64)
		*p = n
		return number(err, "-9223372036854775808", "9223372036854775807")
	case offset:
		n, err := strconv.ParseUint(s, 10, 63)
		at := int64(n)
		*p.at = &at
		return number(err, "0", "9223372036854775807")
	case *bool:
		if s != "true" && s != "false" {
			return errors.New("use true or false")
		}
		*p = s == "true"
		return nil
	case ttl:
		ms, err := parseMillis(s)
		*p.ms = ms
		return err
	case wait:
		ms := int64(-1)
		var err error
		if s != "forever" {
			ms, err = parseMillis(s)
		}
		*p.ms = &ms
		return err
	}
	return fmt.Errorf("field of type %T", f.into) // lookup returns no other
}

func number(err error, low, high string) error {
	if err != nil {
		return fmt.Errorf("use a whole number from %s to %s", low, high)
	}
	return nil
}

func parseMillis(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration: use a Go duration string such as \"30s\" or \"1m30s\"", s)
	case d < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case d%time.Millisecond != 0:
		return 0, fmt.Errorf("%q is finer than a millisecond", s)
	}
	return d.Milliseconds(), nil
}

// WholeText reports whether a JSON string is a valid text: all of it is UTF-8, and it escapes no
// half of a pair of UTF-16 surrogates. A decoder replaces either by U+FFFD, so that two names
// would become one.
func WholeText(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for i := 0; i < len(raw)-1; i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' {
			continue
		}
		r := escaped(raw[i-1:])
		if i += 4; !utf16.IsSurrogate(r) {
			continue
		}
		if i+1 > len(raw) || utf16.DecodeRune(r, escaped(raw[i+1:])) == utf8.RuneError {
			return false
		}
		i += 6
	}
	return true
}

// escaped returns the code unit that raw begins with as \uXXXX, 0 if it does not.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
