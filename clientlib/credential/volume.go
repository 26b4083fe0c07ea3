// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/clientlib/login"
)

const (
	// nearEnd is how long before its end a ticket is replaced.
	nearEnd = time.Minute
	// againAfter is after how long a login is tried again that failed.
	againAfter = 10 * time.Second
	// loginTime bounds a login.
	loginTime = 15 * time.Second
)

type volumeKey struct{}

// ofVolume returns the logins that At has put into ctx, nil if there are none.
func ofVolume(ctx context.Context) *logins {
	l, _ := ctx.Value(volumeKey{}).(*logins)
	return l
}

// At returns the Source of a client whose endpoint is the path of a volume: by that, FromEnvironment can log in. With keep, the
// ticket is written to the file of a ticket, for later commands; else only this process has it.
func (s Source) At(volume string, keep bool) Source {
	l := &logins{dir: volume, keep: keep, ask: login.Get}
	return func(ctx context.Context, cluster string) (string, error) {
		return s(context.WithValue(ctx, volumeKey{}, l), cluster)
	}
}

// logins logs in to one volume, once at a time.
type logins struct {
	dir  string
	keep bool
	ask  func(ctx context.Context, dir string, period time.Duration) (*login.Ticket, error)

	mu      sync.Mutex
	ticket  *login.Ticket // the newest, or nil
	failed  time.Time     // when the last login failed
	pending chan struct{} // is closed when the login that is under way ends; nil if none is
}

// get returns a ticket for a server of this cluster, "" where there is none: then holdfast login says why. It logs in if need
// be, which goes on when ctx ends.
func (l *logins) get(ctx context.Context, getenv func(string) string, cluster string) (string, error) {
	if l == nil {
		return "", nil
	}
	for range 2 { // a ticket of another cluster is not logged in for again and again
		l.mu.Lock()
		if t := l.ticket; t != nil && t.Cluster == cluster && time.Until(t.Expires) > nearEnd {
			l.mu.Unlock()
			return t.Text, nil
		}
		if l.pending == nil && time.Since(l.failed) < againAfter {
			l.mu.Unlock()
			return "", nil
		}
		if l.pending == nil {
			l.pending = make(chan struct{})
			go l.login(getenv)
		}
		done := l.pending
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return "", nil
}

// login logs in, and ends what is pending.
func (l *logins) login(getenv func(string) string) {
	ctx, cancel := context.WithTimeout(context.Background(), loginTime)
	defer cancel()
	t, err := l.ask(ctx, l.dir, 0)
	if err == nil && l.keep {
		if name := TicketFile(getenv, t.Cluster); name != "" {
			_ = WriteTicket(name, t.Text) // the next command logs in itself
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = time.Now()
	} else {
		l.ticket = t
	}
	close(l.pending)
	l.pending = nil
}

// WriteTicket writes a ticket to a file that only its owner may read. Others never see a part of it, and an older file with
// another mode does not stay.
func WriteTicket(name, text string) error {
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = renameio.WriteFile(name, []byte(text+"\n"), 0o600, renameio.IgnoreUmask())
	}
	if err != nil {
		return fmt.Errorf("write the ticket: %w", err)
	}
	return nil
}
