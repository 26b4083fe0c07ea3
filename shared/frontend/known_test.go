// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"net"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/serving"
)

// What a client shows counts before what its connection says; what was revoked counts neither way.
func TestCredentialBeforeConnection(t *testing.T) {
	d := newDoors(t)
	of := func(who string) net.Addr {
		return &serving.KnownAddr{Addr: &net.UnixAddr{}, Caller: d.g.callers[who]}
	}
	for _, x := range []struct {
		credential string
		from       net.Addr
		want       string
	}{
		{"", nil, ""}, {"", &net.UnixAddr{}, ""}, {"", of("nobody"), ""}, {"", of("alice"), "user:alice"}, {"bob", of("alice"), "user:bob"}, {"bob", nil, "user:bob"},
		{"nonsense", of("alice"), "refused"}, {"", of("fired"), "refused"}, {"bob", of("fired"), "user:bob"}, {"fired", of("alice"), "refused"},
	} {
		c, err := d.s.Authenticate(x.credential, x.from)
		got := c.Name()
		if err != nil {
			got = "refused"
		}
		if got != x.want {
			t.Errorf("%q over a connection of %v is %s, want %s", x.credential, serving.CallerAt(x.from).Name(), got, x.want)
		}
	}
}
