// SPDX-License-Identifier: Apache-2.0

package cluster

import "testing"

// Clients and servers of all versions must agree: these numbers are for ever.
func TestDigest(t *testing.T) {
	var d Digest
	for _, x := range []struct {
		with Token
		want Digest
	}{{1, 0x910a2dec89025cc1}, {2, 0x286263caa599b38f}, {1<<64 - 1, 0}} {
		if d = d.With(x.with); x.want != 0 && d != x.want {
			t.Errorf("with %d it is %#x", x.with, uint64(d))
		}
	}
	if d.Without(2).Without(1<<64-1).Without(1) != 0 {
		t.Error("it remembers tokens that are gone")
	}
	if (Digest(0).With(3)) == Digest(0).With(4) || Digest(0).With(3).With(6) == Digest(0).With(4).With(5) {
		t.Error("other tokens have the same digest")
	}
}
