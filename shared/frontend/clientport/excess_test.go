// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// excess connects where there is no room.
func (s *site) excess() net.Conn {
	here, there := net.Pipe()
	s.t.Cleanup(func() { here.Close() }) //nolint:errcheck // a pipe
	s.l.conns <- &Excess{there}
	return here
}

// For whom there is no room is told when to come again, if it is a client library, also over TLS; others are closed. None of
// them keeps anybody waiting, and those above a few are closed at once.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t)
		library, secured, lines := s.excess(), tls.Client(s.excess(), offering(frames.Protocol)), s.excess()
		for _, c := range []net.Conn{library, secured} {
			begun := time.Now()
			go io.WriteString(c, frames.Preface) //nolint:errcheck // there is no answer then
			if m, err := refusal(c); err != nil || m.GetRetryAfterMs() != comeAgain.Milliseconds() || time.Since(begun) > 0 {
				t.Errorf("%v, %v after %v", m, err, time.Since(begun))
			}
		}
		say(t, lines, "QUIT\n")
		if synctest.Wait(); !gone(lines) || len(s.taken) > 0 {
			t.Errorf("a client of lines is not refused; %d were taken", len(s.taken))
		}
		begun := time.Now()
		var mute [maxExcess + 1]net.Conn
		for i := range mute {
			mute[i] = s.excess()
		}
		if synctest.Wait(); gone(mute[0]) || !gone(mute[maxExcess]) {
			t.Error("not the last of too many is closed at once")
		}
		say(t, s.dial(), "QUIT\n")
		if s.next(); time.Since(begun) > 0 {
			t.Errorf("a client for whom there is room waited for %v", time.Since(begun))
		}
		time.Sleep(refusalWait)
		synctest.Wait()
		for i, c := range mute {
			if !gone(c) {
				t.Errorf("silent connection %d stays", i)
			}
		}
		last := s.excess()
		if synctest.Wait(); gone(last) {
			t.Error("there is no place again")
		}
		s.Close() //nolint:errcheck // never fails
		if !gone(last) {
			t.Error("open behind the end of the port")
		}
	})
}
