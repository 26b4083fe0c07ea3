// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"sync"
	"time"

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

// At returns the Source of a client whose endpoint is the path of a volume: by that, FromEnvironment can log in. keep, unless it is
// nil, is called with each ticket; only this process has it otherwise.
func (s Source) At(volume string, keep func(*login.Ticket)) Source {
	l := &logins{dir: volume, keep: keep, ask: login.Get}
	return func(ctx context.Context, cluster string) (string, error) {
		return s(context.WithValue(ctx, volumeKey{}, l), cluster)
	}
}

// logins logs in to one volume, once at a time.
type logins struct {
	dir  string
	keep func(*login.Ticket) // or nil
	ask  func(ctx context.Context, dir string, period time.Duration) (*login.Ticket, error)

	mu      sync.Mutex
	ticket  *login.Ticket // the newest, or nil
	failed  time.Time     // when the last login failed
	pending chan struct{} // is closed when the login that is under way ends; nil if none is
}

// get returns a ticket for a server of this cluster, "" where there is none: then holdfast login says why. It logs in if need
// be, which goes on when ctx ends.
func (l *logins) get(ctx context.Context, cluster string) (string, error) {
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
			go l.login()
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
func (l *logins) login() {
	ctx, cancel := context.WithTimeout(context.Background(), loginTime)
	defer cancel()
	t, err := l.ask(ctx, l.dir, 0)
	if err == nil && l.keep != nil {
		l.keep(t)
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
