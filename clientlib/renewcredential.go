// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// minRenewCredential is the shortest time after which a Credential is asked for again.
const minRenewCredential = 10 * time.Second

// renewCredential replaces the credential of the connection when half of its time is over, until the connection ends.
// One that does not expire stays.
func (s *session) renewCredential(f *framed) {
	for shown := f.shown; ; {
		end := credential.Expiry(shown)
		if end.IsZero() {
			return
		}
		t := time.NewTimer(max(time.Until(end)/2, minRenewCredential))
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		text, err := credential.Source(s.c.opt.Credential).For(s.ctx, f.Conn)
		if err != nil {
			s.c.opt.Log.Warn("the credential cannot be renewed", "server", s.to.addr, "error", err)
			continue
		}
		if text != "" && text != shown {
			s.replaceCredential(text)
			shown = text
		}
	}
}

// replaceCredential sends another credential of the same identity.
func (s *session) replaceCredential(text string) {
	s.mu.Lock()
	if s.mu.err != nil {
		s.mu.Unlock()
		return
	}
	b := s.message(len(text))
	*b, _ = wire.AppendRequest(*b, &pb.SessionRequest{Credential: text}) // it has ASCII only
	send := !s.mu.sending && !s.delivering.Load()
	s.mu.sending = s.mu.sending || send
	s.mu.Unlock()
	if send {
		s.flush()
	}
}
