// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/audit"
)

func moment() time.Time { return time.Date(2026, 11, 28, 10, 0, 0, 5e6, time.UTC) }

func full() audit.Event {
	until := moment().Add(time.Hour)
	return audit.Event{
		Time: moment(), Kind: audit.KindBreak, Server: 2, Identity: "user:alice", Via: "ticket", From: "10.0.0.1:99", Verb: "break", Lock: "a/b", File: "f",
		Token: 1<<63 + 1, Actor: "me", Reason: "stuck\n\"it\"", GraceMs: 1500, To: 3, Level: 4, Status: "OK", Message: "done", Expires: &until, Count: 7, Host: "h",
		Command: "key create ci", Program: "v1", Version: 12, Diff: []string{"-a", "+b"},
	}
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	want := full()
	for i, f := range reflect.VisibleFields(reflect.TypeOf(want)) {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Fatalf("this test leaves out %s", f.Name)
		}
	}
	b := want.AppendLine(nil)
	if n := bytes.IndexByte(b, '\n'); n != len(b)-1 {
		t.Fatalf("not one line: %q", b)
	}
	got, err := audit.ParseLine(b[:len(b)-1])
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// A secret that somebody typed where it does not belong is not kept for 90 days.
func TestSecretsAreLeftOut(t *testing.T) {
	for _, secret := range []string{
		"hfk_" + strings.Repeat("A1-_b", 9), "hft_" + "eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJ4In0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
		"eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJ4In0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
	} {
		text := "before " + secret + " and " + secret + "; after"
		e := audit.Event{Time: moment(), Kind: audit.KindBreak, Diff: []string{text}}
		v := reflect.ValueOf(&e).Elem()
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.String && v.Type().Field(i).Name != "Kind" {
				v.Field(i).SetString(text)
			}
		}
		line := string(e.AppendLine(nil))
		if strings.Contains(line, secret[8:]) {
			t.Errorf("%s is in %s", secret, line)
		}
		if n := strings.Count(line, "(left out)"); n != 2*(strings.Count(line, "before ")) || !strings.Contains(line, "; after") {
			t.Errorf("%s: it left out %d in %s", secret, n, line)
		}
	}
	plain := audit.Event{Time: moment(), Kind: audit.KindBreak, Lock: "hfk_short/eyJob", Message: "use a key (hfk_...)"}
	if got, err := audit.ParseLine(bytes.TrimSpace(plain.AppendLine(nil))); err != nil || got.Lock != plain.Lock || got.Message != plain.Message {
		t.Errorf("names that are no secrets became %q and %q", got.Lock, got.Message)
	}
}

func TestLinesAreBounded(t *testing.T) {
	const worst = "\x00\x01"
	e := full()
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.String && v.Type().Field(i).Name != "Kind" {
			v.Field(i).SetString(strings.Repeat(worst, 1<<17))
		}
	}
	for name, diff := range map[string][]string{
		"long": {strings.Repeat(worst, 1<<20)}, "many": slicesOf("+x", 1<<20), "empty": slicesOf("", 1<<20), "both": slicesOf(strings.Repeat(worst, 4000), 1<<10),
	} {
		e.Diff = diff
		b := e.AppendLine(nil)
		got, err := audit.ParseLine(b[:len(b)-1])
		if len(b) >= audit.MaxLine || err != nil {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if last := got.Diff[len(got.Diff)-1]; len(diff) > 1 && !strings.HasSuffix(last, " more lines") {
			t.Errorf("%s: it ends with %.40q", name, last)
		}
	}
}

func slicesOf(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestQueries(t *testing.T) {
	alice := audit.Event{Time: moment(), Kind: audit.KindDenied, Identity: "user:alice", From: "10.0.0.1:5"}
	stranger := audit.Event{Time: moment(), Kind: audit.KindCredential, From: "10.0.0.1:5"}
	broke := audit.Event{Time: moment(), Kind: audit.KindBreak, Identity: "user:alice"}
	for name, test := range map[string]struct {
		q    audit.Query
		want [3]bool
	}{
		"all":                {audit.Query{}, [3]bool{true, true, true}},
		"denied":             {audit.Query{Denied: true}, [3]bool{true, true, false}},
		"an identity":        {audit.Query{Who: "user:alice"}, [3]bool{true, false, true}},
		"an address":         {audit.Query{Who: "10.0.0.1:5"}, [3]bool{false, true, false}},
		"a host":             {audit.Query{Who: "10.0.0.1"}, [3]bool{false, true, false}},
		"since then":         {audit.Query{Since: moment()}, [3]bool{true, true, true}},
		"since a bit later":  {audit.Query{Since: moment().Add(1)}, [3]bool{}},
		"part of a name":     {audit.Query{Who: "user:ali"}, [3]bool{}},
		"part of an address": {audit.Query{Who: "10.0.0"}, [3]bool{}},
	} {
		for i, e := range []audit.Event{alice, stranger, broke} {
			if got := test.q.Matches(&e); got != test.want[i] {
				t.Errorf("%s: event %d: %v", name, i, got)
			}
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(bytes.TrimSpace(full().AppendLine(nil)))
	f.Add([]byte(`{"time":"2026-11-28T10:00:00Z","kind":"denied"}`))
	f.Add([]byte(`{"time":"2026-11-28T10:00:00Z","kind":"den`))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := audit.ParseLine(b)
		if err != nil {
			return
		}
		line := e.AppendLine(nil)
		if bytes.IndexByte(line, '\n') != len(line)-1 || len(line) > audit.MaxLine {
			t.Fatalf("no line: %q", line)
		}
		again, err := audit.ParseLine(line[:len(line)-1])
		if err != nil {
			t.Fatalf("%q becomes %q: %v", b, line, err)
		}
		if twice := again.AppendLine(nil); !bytes.Equal(twice, line) && len(line) < 2<<10 {
			t.Fatalf("%q, then %q", line, twice)
		}
	})
}
