// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"net"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// TestCallerOf wants the caller that was set last, and none where none was.
func TestCallerOf(t *testing.T) {
	if c := serving.CallerOf(t.Context()); c != nil {
		t.Errorf("a context without a caller has %v", c)
	}
	alice := &access.Caller{Identity: "user:alice"}
	ctx := serving.WithCaller(t.Context(), alice)
	if c := serving.CallerOf(ctx); c != alice {
		t.Errorf("the caller is %v", c)
	}
	if c := serving.CallerOf(serving.WithCaller(ctx, nil)); c != nil || c.Name() != "" {
		t.Errorf("a call without a credential has %v", c)
	}
}

// TestOverheard wants plain text from other hosts alone to be overheard, and all plain text that comes through a gateway.
func TestOverheard(t *testing.T) {
	near, far := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	socket := &net.UnixAddr{Name: "/run/x", Net: "unix"}
	for name, x := range map[string]struct {
		from net.Addr
		want bool
	}{
		"this host":                       {near, false},
		"another host":                    {far, true},
		"a socket":                        {socket, false},
		"nowhere":                         {nil, false},
		"another host, over TLS":          {&serving.KnownAddr{Addr: far, TLS: true}, false},
		"a gateway on this host":          {&serving.KnownAddr{Addr: near, Gateway: true}, true},
		"a gateway at a socket":           {&serving.KnownAddr{Addr: socket, Gateway: true}, true},
		"a gateway on this host, and TLS": {&serving.KnownAddr{Addr: near, Gateway: true, TLS: true}, false},
	} {
		if got := serving.Overheard(x.from); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
