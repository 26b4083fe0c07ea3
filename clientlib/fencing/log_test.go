// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// FuzzParse: what is taken in is a beginning of the file, and written again is the same.
func FuzzParse(f *testing.F) {
	good := appendLine(appendLine(nil, "a", 1), "b\x00\"", 1<<63)
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte("00000000 1 \"a\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		seen, lines, whole, err := parse(b)
		if err != nil {
			return
		}
		if whole < 0 || whole > len(b) || len(seen) > lines {
			t.Fatalf("%d of %d bytes, %d lines, %d keys", whole, len(b), lines, len(seen))
		}
		again, n, size, err := parse(b[:whole])
		if err != nil || n != lines || size != whole || len(again) != len(seen) {
			t.Fatalf("its good part: %v, %d lines of %d bytes", err, n, size)
		}
	})
}

// A process that had lost its lock may have written a lower token behind a higher one.
func TestTheHighestLineCounts(t *testing.T) {
	seen, lines, _, err := parse(appendLine(appendLine(appendLine(nil, "a", 5), "a", 9), "a", 7))
	if err != nil || lines != 3 || seen["a"] != 9 {
		t.Errorf("%d lines tell %v, %v", lines, seen, err)
	}
}

func TestLines(t *testing.T) {
	for key, token := range map[string]cluster.Token{"": 1, "a b\n": 2, "\xff\x00": 1<<64 - 1, `"`: 3} {
		line := appendLine(nil, key, token)
		if gotKey, got, ok := parseLine(string(line[:len(line)-1])); !ok || gotKey != key || got != token {
			t.Errorf("%q: %q, %d, %v", key, gotKey, got, ok)
		}
	}
}
