// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"net"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
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

// A ticket is not issued where others could read it on its way.
func TestLoginInPlainText(t *testing.T) {
	d := newDoors(t)
	other, own := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for name, x := range map[string]struct {
		from      net.Addr
		overheard bool
	}{
		"plain text": {other, true}, "plain text, with a caller": {&serving.KnownAddr{Addr: other}, true}, "TLS": {&serving.KnownAddr{Addr: other, TLS: true}, false},
		"this host": {own, false}, "a socket": {&serving.KnownAddr{Addr: &net.UnixAddr{}}, false}, "nothing known": {nil, false},
	} {
		ctx := t.Context()
		if x.from != nil {
			ctx = serving.WithRemote(ctx, x.from)
		}
		r, err := d.s.Login(ctx, &pb.LoginRequest{})
		if err != nil || r.GetStatus() != pb.Status_STATUS_INVALID_ARGUMENT || strings.Contains(r.GetMessage(), "over TLS") != x.overheard {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}
