// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// fromKnown is a connection whose address says whose it is.
type fromKnown struct {
	net.Conn
	from *serving.KnownAddr
}

func (c *fromKnown) RemoteAddr() net.Addr { return c.from }

// A connection is closed when nobody has proved in time on it who he is, where the rules demand that, and only then.
func TestNobodyStaysUnproven(t *testing.T) {
	socket := &net.UnixAddr{Name: "@"}
	for name, x := range map[string]struct {
		from   *serving.KnownAddr // nil = as it comes
		open   bool               // the rules demand nothing
		first  string
		during func(a net.Addr) // at the beginning
		closed time.Duration    // 0 = never
	}{
		"a stranger with lines":  {first: "LOCK,l,me\n", closed: 15 * time.Second},
		"a stranger with HTTP":   {first: "GET / HTTP/1.1\r\n\r\n", closed: 15 * time.Second},
		"a stranger with gRPC":   {first: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", closed: 15 * time.Second},
		"on a socket of nobody":  {from: &serving.KnownAddr{Addr: socket}, first: "LOCK,l,me\n", closed: 15 * time.Second},
		"where nothing is asked": {open: true, first: "LOCK,l,me\n"},
		"who has proved it":      {first: "LOCK,l,me\n", during: serving.Prove},
		"whose connection says it": {
			from: &serving.KnownAddr{Addr: socket, Caller: &access.Caller{Identity: "user:alice"}}, first: "LOCK,l,me\n",
		},
		"who logs in":           {first: "GET / HTTP/1.1\r\n\r\n", during: serving.BeginLogin, closed: 45 * time.Second},
		"who logs in, and does": {first: "GET / HTTP/1.1\r\n\r\n", during: func(a net.Addr) { serving.BeginLogin(a); serving.Prove(a) }},
		"who is told": {first: "LOCK,l,me\n", closed: 18 * time.Second, during: func(a net.Addr) {
			serving.WhenUnproven(a, func() {})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				s.DemandIdentity(func() bool { return !x.open })
				here, there := net.Pipe()
				defer here.Close() //nolint:errcheck // a pipe
				if x.from != nil {
					there = &fromKnown{there, x.from}
				}
				s.l.conns <- there
				say(t, here, x.first)
				c := s.next().conn
				if x.during != nil {
					x.during(c.RemoteAddr())
				}
				ended := time.Duration(0)
				go func() {
					began := time.Now()
					if _, err := io.Copy(io.Discard, here); err == nil {
						ended = time.Since(began)
					}
				}()
				time.Sleep(time.Hour)
				synctest.Wait()
				if ended != x.closed {
					t.Errorf("closed after %v, want %v", ended, x.closed)
				}
				c.Close() //nolint:errcheck // a pipe
			})
		})
	}
}

// Rules that come later count for who is there; and of a connection that has ended nothing is left.
func TestRulesDemandIdentityLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		var strict atomic.Bool
		s.DemandIdentity(strict.Load)
		c, left := s.dial(), s.dial()
		say(t, c, "LOCK,l,me\n")
		x := s.next()
		say(t, left, "LOCK,l,me\n")
		other := s.next()
		told := 0
		serving.WhenUnproven(other.conn.RemoteAddr(), func() { told++ })
		other.conn.Close() //nolint:errcheck // a pipe
		time.Sleep(time.Hour)
		if gone(c) {
			t.Fatal("closed although nothing is demanded")
		}
		strict.Store(true)
		time.Sleep(16 * time.Second)
		if !gone(c) || told != 0 {
			t.Errorf("open under the rules; who had gone was told %d times", told)
		}
		x.conn.Close() //nolint:errcheck // a pipe
		// Who says nothing has no more time than who speaks.
		mute := s.dial()
		time.Sleep(16 * time.Second)
		if !gone(mute) {
			t.Error("a silent connection stays")
		}
	})
}
