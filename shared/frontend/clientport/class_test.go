// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

func TestClasses(t *testing.T) {
	for class, all := range map[Class][]string{
		Sessions: {frames.Preface, frames.Preface + "\x00\x00\x00\x05hello", frames.Preface + "GET / HTTP/1.1\r\n"},
		GRPC:     {"PRI ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		HTTP: {
			"GET / HTTP/1.1\r\n", "GET ", "POST /v1/acquire HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n", "CONNECT evil.example:443 HTTP/1.1\r\n",
			"GET http://localhost:7601/ HTTP/1.1\r\n", "LOCK /a HTTP/1.1\r\n", "UNLOCK /a HTTP/1.1\r\n", "QUIT / HTTP/1.1\r\n", "patch / HTTP/1.1\r\n",
			"PRIX * HTTP/2.0\r\n", "PR * HTTP/2.0\r\n", "pri * HTTP/2.0\r\n", "X-a.b_c~! / HTTP/1.1\r\n", "LOCK db,me", "own  ",
			"BASELINE-CONTROL / HTTP/1.1\r\n", strings.Repeat("A", 1100) + " / HTTP/1.1\r\n",
		},
		overTLS: {"\x16\x03\x01\x02\x00\x01", "\x16\x03"},
		Text: {
			"LOCK,db,me\n", "lock,db,me,30\n", "OWN,", "QUIT\n", "quit\r\n", "\n", "\r\n", " GET / HTTP/1.1\r\n", ",", "PRI,", "PRI\n", "GET\t/ HTTP/1.1\r\n",
			"\x16\x02", "\x16LOCK,db,me\n", "\xf1HOLDF\x00\x02", "\xf1HOLDX", "\xff\xfb\x1f", "{\"op\":1}", "\x00", "LOCK\xff",
		},
		undecided: {
			"", "G", "GET", "LOCK", "PRI", "PR", "QUIT", "\x16", frames.Preface[:1], frames.Preface[:7], strings.Repeat("A", maxFirst-1),
		},
	} {
		for _, s := range all {
			if got := classify([]byte(s)); got != class {
				t.Errorf("%.40q: class %d, want %d", s, got, class)
			}
		}
	}
}

// chunked is a connection that has so many bytes at once.
func chunked(b []byte, first int) io.Reader {
	n := min(first, len(b))
	return io.MultiReader(bytes.NewReader(b[:n]), bytes.NewReader(b[n:]))
}

// A connection has one class, however its bytes come, and the front end reads all of them. What net/http would serve is
// a line of text in no case.
func FuzzFirstBytes(f *testing.F) {
	for _, s := range []string{
		frames.Preface + "hello", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "\x16\x03\x01", "\x16\x04",
		"LOCK,db,me\n", "QUIT\r\n", "LOCK /db HTTP/1.1\r\nHost: a\r\n\r\nLOCK,db,me\n", "\xf1HOLDF\x01", strings.Repeat("M", 40) + " / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		want := undecided
		for n := range len(b) + 1 {
			got := classify(b[:n])
			if want != undecided && got != want {
				t.Fatalf("%q is of class %d and %q of class %d", b[:n-1], want, b[:n], got)
			}
			if want = got; n >= maxFirst && got == undecided {
				t.Fatalf("%q is undecided", b[:n])
			}
		}
		for _, r := range []io.Reader{bytes.NewReader(b), iotest.OneByteReader(bytes.NewReader(b)), iotest.DataErrReader(bytes.NewReader(b)), chunked(b, max(0, cut%maxFirst))} {
			first, got, err := readFirst(r, nil)
			if got != want || (err != nil) != (want == undecided) {
				t.Fatalf("%q: class %d, %v, want %d", b, got, err, want)
			}
			rest, _ := io.ReadAll(r) // from memory
			if err == nil && !bytes.Equal(append(first, rest...), b) {
				t.Fatalf("%q and %q were read of %q", first, rest, b)
			}
		}
		if q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b))); err == nil && want != HTTP && (want != GRPC || q.Method != "PRI") {
			t.Fatalf("%q is a request over HTTP, and was taken for class %d", b, want)
		}
	})
}
