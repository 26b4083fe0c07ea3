// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
)

// stride is how many bytes lie between those that are tried, so that all is quick under -short.
func stride() int {
	if testing.Short() {
		return 13
	}
	return 1
}

func TestNoCutSnapshotIsAccepted(t *testing.T) {
	state, requests := encode(t, everything(t))
	whole := append(requests, state...)
	for n := 0; n < len(whole); n += stride() {
		if _, err := checkpoint.ReadSnapshot(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d of %d bytes are taken for a snapshot", n, len(whole))
		}
	}
	for name, b := range map[string][]byte{
		"twice": append(slices.Clone(whole), whole...), "more": append(slices.Clone(whole), '\n'),
		"only the state": state, "the state first": append(slices.Clone(state), requests...),
	} {
		if _, err := checkpoint.ReadSnapshot(bytes.NewReader(b)); err == nil {
			t.Errorf("%s is taken for a snapshot", name)
		}
	}
}

// FuzzSnapshot wants what is not a snapshot refused, however it is cut into pieces, as it
// is and with the right sums.
func FuzzSnapshot(f *testing.F) {
	for _, s := range []checkpoint.Snapshot{{Epoch: 1, Table: locktable.New()}, everything(f)} {
		state, requests := encode(f, s)
		f.Add(state, requests, 7)
	}
	f.Add([]byte(`{"cluster_id":"0000000000000000000000000000000000"`+"\n"), []byte{}, 1)
	f.Fuzz(func(t *testing.T, state, requests []byte, piece int) {
		for range 2 {
			whole := append(slices.Clone(requests), state...)
			d := checkpoint.NewDecoder()
			for rest := whole; len(rest) > 0; {
				n := min(max(1, piece), len(rest))
				d.Write(rest[:n]) //nolint:errcheck // Close tells
				rest = rest[n:]
			}
			s, err := d.Close()
			again, once := checkpoint.ReadSnapshot(bytes.NewReader(whole))
			if (err == nil) != (once == nil) || err == nil && s.Table.Hash() != again.Table.Hash() {
				t.Errorf("in pieces %v, at once %v", err, once)
			}
			state, requests = seal(state, requests)
		}
	})
}
