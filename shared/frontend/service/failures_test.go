// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// onlyGood takes two credentials, and knows one of them before it is asked; it is an access.Authenticator.
type onlyGood struct{ asked int }

func (g *onlyGood) Authenticate(credential string) (*access.Caller, error) {
	if g.asked++; credential != "good" && credential != "known" {
		return nil, errors.New("wrong")
	}
	return &access.Caller{Identity: "user:alice"}, nil
}
func (g *onlyGood) Known(credential string) bool   { return credential == "known" }
func (g *onlyGood) PassOn(*access.Caller) string   { return "" }
func (g *onlyGood) Rules() *access.Rules           { return nil }
func (g *onlyGood) Begin() (string, string, error) { return "nonce", "challenge", nil }
func (g *onlyGood) Finish(_ context.Context, challenge string, _ time.Duration) (string, *access.Caller, error) {
	if g.asked++; challenge != "good" {
		return "", nil, &wire.Error{Status: cluster.StatusUnauthenticated, Message: "wrong"}
	}
	return "ticket", &access.Caller{Identity: "user:alice"}, nil
}

func tcp(host string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: 1} }

func over(a net.Addr) *serving.KnownAddr {
	return &serving.KnownAddr{Addr: a, TLS: true, Proof: &serving.Proof{}}
}

// wants wants the first of two statuses to be the second.
func wants(t *testing.T, all map[string][2]cluster.Status) {
	t.Helper()
	for name, x := range all {
		if x[0] != x[1] {
			t.Errorf("%s: %v, want %v", name, x[0], x[1])
		}
	}
}

// Of an address from which too much fails in a second, nothing more is looked at in it, whichever way it comes in; but what costs nothing
// to look at, and those who have proved who they are, are not kept out, nor are other addresses and this host.
func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, failures := &onlyGood{}, &Failures{}
		s := &Service{opt: Options{Authenticator: g, Logins: g, Failures: failures}}
		other := &Service{opt: Options{Authenticator: g, Failures: failures}} // of another front end
		proved := over(tcp("2001:db8::5"))
		if _, err := s.Authenticate("good", proved); err != nil {
			t.Fatal(err)
		}
		try := func(from net.Addr, credential string) cluster.Status {
			_, err := other.Authenticate(credential, from)
			if e, ok := errors.AsType[*wire.Error](err); ok {
				return e.Status
			}
			return cluster.StatusOK
		}
		login := func(from net.Addr, challenge string) cluster.Status {
			r, err := s.Login(serving.WithRemote(t.Context(), from), &pb.LoginRequest{Challenge: challenge})
			if err != nil {
				t.Fatal(err)
			}
			return wire.FromStatus(r.GetStatus())
		}
		const unauthenticated, wait = cluster.StatusUnauthenticated, cluster.StatusStorageUnavailable
		for range 2 {
			for i := range maxFailures {
				from := over(tcp(fmt.Sprintf("2001:db8::%d", i+10))) // hosts of one /64
				f := try
				if i%2 == 0 {
					f = login
				}
				if got := f(from, "bad"); got != unauthenticated {
					t.Errorf("failure %d: %v", i, got)
				}
			}
			asked := g.asked
			wants(t, map[string][2]cluster.Status{
				"one more":                 {try(over(tcp("2001:db8::1")), "bad"), wait},
				"a good one":               {try(over(tcp("2001:db8::1")), "good"), wait},
				"one more login":           {login(over(tcp("2001:db8::1")), "good"), wait},
				"no credential":            {try(over(tcp("2001:db8::1")), ""), cluster.StatusOK},
				"the beginning of a login": {login(over(tcp("2001:db8::1")), ""), cluster.StatusOK},
			})
			if g.asked != asked {
				t.Errorf("%d were looked at", g.asked-asked)
			}
			wants(t, map[string][2]cluster.Status{
				"a known one":             {try(over(tcp("2001:db8::1")), "known"), cluster.StatusOK},
				"a new one of who proved": {try(proved, "good"), cluster.StatusOK},
				"another network":         {try(over(tcp("2001:db8:0:1::1")), "bad"), unauthenticated},
				"another address":         {try(over(tcp("192.0.2.1")), "bad"), unauthenticated},
			})
			for range 2 * maxFailures {
				if got := try(tcp("::1"), "bad"); got != unauthenticated {
					t.Fatalf("this host: %v", got)
				}
				if got := try(&net.UnixAddr{Name: "@"}, "bad"); got != unauthenticated {
					t.Fatalf("the socket: %v", got)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// However many addresses fail, few are remembered, and the others count as one.
func TestFailuresAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := &Failures{}
		for i := range 2 * maxFailing {
			failures.count(tcp(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)))
		}
		if n := len(failures.of); n > maxFailing+1 {
			t.Errorf("failures of %d addresses are counted", n)
		}
		if !failures.many(tcp("10.9.9.9")) || failures.many(tcp("10.0.0.1")) {
			t.Error("addresses that are not remembered do not count as one, or others do")
		}
	})
}
