// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestBatches(t *testing.T) {
	for _, x := range []struct {
		name, in, want, rest string
		split, end           bool
		refused              string
	}{
		{name: "nothing"},
		{name: "a line that has begun", in: "ab"},
		{name: "a line that has begun, at the end", in: "ab", want: "ab", end: true},
		{name: "whole lines only", in: "a\nb\nc", want: "a\nb\n"},
		{name: "no more than fits", in: "a\nb\nc\nd\nefg\n", want: "a\nb\nc\nd\n", rest: "fg\n"},
		{name: "too long", in: "123456789\n", rest: "9\n", refused: "line 1 of the standard input has more than 9 bytes"},
		{name: "too long, cut", in: "123456789\n", split: true, want: "123456789", rest: "\n"},
		{name: "not too long, at the end", in: "123456789", end: true, want: "123456789"},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := &batcher{limit: 9, split: x.split}
			if strings.HasPrefix(x.refused, "line 1") {
				b.limit = 9
			}
			rest := b.add([]byte(x.in))
			got, err := b.batch(x.end)
			if x.refused != "" {
				if !errors.Is(err, wire.ErrTooLarge) || !strings.Contains(err.Error(), x.refused) {
					t.Fatalf("got %v, want %q", err, x.refused)
				}
				return
			}
			if err != nil || string(got) != x.want {
				t.Errorf("got %q, %v, want %q", got, err, x.want)
			}
			if want := x.rest; x.rest != "" && string(rest) != want {
				t.Errorf("the rest is %q, want %q", rest, want)
			}
		})
	}
}

// The number of a line that is too long counts those before it.
func TestTooLongLineIsNumbered(t *testing.T) {
	b := &batcher{limit: 4}
	b.add([]byte("a\nb\n"))
	data, err := b.batch(false)
	if err != nil {
		t.Fatal(err)
	}
	b.cut(len(data))
	b.add([]byte("12345"))
	if _, err := b.batch(false); err == nil || !strings.Contains(err.Error(), "line 3 of the standard input") {
		t.Errorf("got %v", err)
	}
}

// FuzzBatches wants every byte once and in its place, in batches of whole lines.
func FuzzBatches(f *testing.F) {
	f.Add([]byte("a\nbc\n\nd"), uint8(3), true)
	f.Add([]byte("\n\n\n"), uint8(1), false)
	f.Fuzz(func(t *testing.T, in []byte, limit uint8, split bool) {
		b := &batcher{limit: int(limit) + 1, split: split}
		var out []byte
		for rest := in; ; {
			rest = b.add(rest)
			data, err := b.batch(len(rest) == 0)
			if err != nil {
				if split {
					t.Fatal(err)
				}
				return
			}
			if len(data) > b.limit {
				t.Fatalf("a batch of %d bytes, with a limit of %d", len(data), b.limit)
			}
			if !split && len(rest) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
				t.Fatalf("the batch %q ends within a line", data)
			}
			out = append(out, data...)
			b.cut(len(data))
			if len(rest) == 0 {
				break
			}
		}
		if !bytes.Equal(out, in) {
			t.Fatalf("got %q, want %q", out, in)
		}
	})
}

// What is committed comes into the file as soon as that can be written: before that, its absence is no reason to append it
// again.
func TestStreamAdvice(t *testing.T) {
	const look = "look at the end of the file with holdfast tail log; if the next bytes are not there, go on after them: tail -c +1 INPUT | holdfast append a log"
	for _, x := range []struct {
		err  error
		want string
	}{
		{&wire.Error{Status: cluster.StatusUnknown, Committed: true}, "first correct what holdfast status shows: the servers write the next bytes then. After that, " + look},
		{&wire.Error{Status: cluster.StatusUnknown}, look},
		{&wire.Error{Status: cluster.StatusFileQuarantined, Committed: true}, look},
	} {
		e := &streamError{lock: "a", file: "log", doubtful: 8, err: &doubtError{x.err}}
		if got := e.advice(); got != x.want {
			t.Errorf("%v: got %q, want %q", x.err, got, x.want)
		}
	}
}
