// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

// lineConn is a connection of lines whose caller is alice.
type lineConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (d *doors) lineConn() *lineConn {
	d.t.Helper()
	c, err := net.Dial("tcp", d.text.Addr().String())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over
	x := &lineConn{d.t, c, bufio.NewReader(c)}
	x.say("AUTH,alice")
	x.hears("SUCCESS")
	return x
}

func (x *lineConn) say(lines ...string) {
	x.t.Helper()
	if _, err := fmt.Fprint(x, strings.Join(lines, "\n")+"\n"); err != nil {
		x.t.Fatal(err)
	}
}

// hears wants these answers next.
func (x *lineConn) hears(want ...string) {
	x.t.Helper()
	for i, want := range want {
		got, err := x.r.ReadString('\n')
		if err != nil || strings.TrimSpace(got) != want {
			x.t.Fatalf("answer %d is %q, %v, want %s", i, got, err, want)
		}
	}
}

// TestRenewalsDoNotWaitForHeldLines: a line that is too fast is held while it is the last one of its connection, and refused at once where
// others wait for it.
func TestRenewalsDoNotWaitForHeldLines(t *testing.T) {
	const hold = time.Minute // an answer that waited for it is told from one that the machine delays
	d := newDoorsThat(t, service.Options{MaxHold: hold})
	x := d.lineConn()
	d.quota(nil)
	x.say("LOCK,l,me,60")
	x.hears("SUCCESS")
	d.quota(map[string]any{"requests_per_s": int64(1)})
	p := d.s.Permission(d.g.callers["alice"], nil)
	p.Take(make([]int, 1), &service.Held{})
	p.Take(make([]int, 4), &service.Held{Proceed: func(int, int) {}}) // so what comes next waits for five seconds
	began := time.Now()
	x.say("OWN,l", "OWN,l", "LOCK,l2,me", "OWN,l", "RENEW,l,me", "UNLOCK,l,me")
	x.hears("LIMITED", "LIMITED", "LIMITED", "LIMITED", "SUCCESS", "SUCCESS")
	x.say("OWN,l")
	x.say("RENEW,l,me")
	x.hears("LIMITED", "FAIL")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("they waited %v", took)
	}
	x.say("LOCK,l2,me") // nothing waits for it
	x.hears("SUCCESS")
}
