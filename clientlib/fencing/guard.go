// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

var (
	// ErrStale is wrapped by every *StaleError.
	ErrStale = errors.New("the token is older than one that was seen")
	// ErrClosed is the error of a guard that was closed, or closed itself because a write to its
	// file failed or another process has written to it. Open it again.
	ErrClosed = errors.New("the guard is closed")
	// ErrInUse is the error of Open when another process has the guard open.
	ErrInUse = errors.New("the guard is open in another process")
)

// Token is the fencing token of a lock: clientlib.Lock has it, and every grant has a higher
// one than those before. 0 is no token.
type Token = cluster.Token

// StaleError is the error of a token that is lower than one that was seen for the key: its holder
// was replaced. It wraps ErrStale.
type StaleError struct {
	Key string
	// Token was refused, because Seen is the highest one that was seen; 0 = not known, see Exec.
	Token, Seen Token
}

// Error says what to do now.
func (e *StaleError) Error() string {
	if e.Seen == 0 {
		return fmt.Sprintf("token %d for %q changed no row: there is none, or its fence is higher: acquire the lock again and begin anew", e.Token, e.Key)
	}
	return fmt.Sprintf("token %d for %q is old, %d was seen: acquire the lock again and begin anew", e.Token, e.Key, e.Seen)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Guard remembers the highest token of each key, over restarts too. It is safe for use
// by several goroutines.
type Guard struct {
	dir    string
	unlock func() error // the guard has the lock for as long as it is open
	// calls are under way; they are counted with mu held, while the guard is not closed.
	calls sync.WaitGroup

	mu struct {
		sync.Mutex
		keys   map[string]*entry
		log    *log
		closed error
	}
}

// entry is one key. Its mutex is held while something is done under a token, so that
// nothing of an old holder is under way when the first thing of a new one begins. It
// is taken before Guard.mu.
type entry struct {
	sync.Mutex
	seen Token // owned by Guard.mu
}

// Open opens the guard in a directory, which is made if need be and belongs to the guard. It
// should be on a local filesystem: see the package documentation. It returns ErrInUse if another
// process has it open, and ErrDamaged if its file is not what was written.
func Open(dir string) (*Guard, error) {
	g, err := open(osDisk{}, dir)
	if err != nil {
		return nil, fmt.Errorf("open the guard in %s: %w", dir, err)
	}
	return g, nil
}

func open(d disk, dir string) (*Guard, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(d, path); err != nil {
		return nil, err
	}
	g := &Guard{dir: dir}
	if g.unlock, err = d.lock(filepath.Join(path, "lock")); err != nil {
		return nil, err
	}
	l, seen, err := openLog(d, filepath.Join(path, "tokens"))
	if err != nil {
		return nil, errors.Join(err, g.unlock())
	}
	g.mu.log, g.mu.keys = l, map[string]*entry{}
	for key, token := range seen {
		g.mu.keys[key] = &entry{seen: token}
	}
	return g, nil
}

// Do calls f unless a higher token was seen for the key: then it returns a *StaleError. While f
// runs nothing else is done for this key, so it should take no longer than it must. A token that
// is higher than all before is durable before f is called, whatever becomes of f. An error of f
// is returned as it is.
func (g *Guard) Do(key string, token Token, f func() error) error {
	e, err := g.begin(key)
	if err != nil {
		return err
	}
	defer g.calls.Done()
	e.Lock()
	defer e.Unlock()
	if err := g.admit(e, key, token); err != nil {
		return err
	}
	return f()
}

// Admit is Do for a resource that gets the token itself and orders by it: when it returns nil, no
// lower token is admitted any more. What an older holder was admitted to do may still be under
// way.
func (g *Guard) Admit(key string, token Token) error {
	e, err := g.begin(key)
	if err != nil {
		return err
	}
	defer g.calls.Done()
	return g.admit(e, key, token)
}

// Dir returns the directory of the guard.
func (g *Guard) Dir() string { return g.dir }

// Seen returns the highest token seen for a key; 0 for none.
func (g *Guard) Seen(key string) Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.mu.keys[key]; e != nil {
		return e.seen
	}
	return 0
}

// begin begins a call for a key.
func (g *Guard) begin(key string) (*entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed != nil {
		return nil, g.mu.closed
	}
	e := g.mu.keys[key]
	if e == nil {
		e = &entry{}
		g.mu.keys[key] = e
	}
	g.calls.Add(1)
	return e, nil
}

// admit compares, and makes a new highest token durable.
func (g *Guard) admit(e *entry, key string, token Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.closed != nil:
		return g.mu.closed
	case token == 0:
		return fmt.Errorf("token 0 for %q: bring the token of the lock", key)
	case token < e.seen:
		return &StaleError{Key: key, Token: token, Seen: e.seen}
	}
	if err := g.note(e, key, token); err != nil {
		// A failed sync is never tried again: what is on the disk is not known.
		g.mu.closed = fmt.Errorf("%w: %w", ErrClosed, err)
		return g.mu.closed
	}
	return nil
}

// note makes a token durable that is not lower than those before it, and checks that no other
// process has admitted a higher one.
func (g *Guard) note(e *entry, key string, token Token) error {
	if token > e.seen {
		if err := g.mu.log.add(key, token); err != nil {
			return err
		}
	}
	if err := g.mu.log.check(); err != nil {
		return err
	}
	e.seen = token
	if g.mu.log.wasteful(len(g.mu.keys)) {
		return g.compact()
	}
	return nil
}

// compact writes the file anew.
func (g *Guard) compact() error {
	seen := make(map[string]Token, len(g.mu.keys))
	for key, e := range g.mu.keys {
		if e.seen != 0 {
			seen[key] = e.seen
		}
	}
	l, err := g.mu.log.rewrite(seen)
	if err != nil {
		return err
	}
	g.mu.log = l
	return nil
}

// Close waits for the calls under way, which may act for older holders than the first call of the
// next process, and lets another process open the guard. So no function that Do calls may call
// it. Later calls return ErrClosed.
func (g *Guard) Close() error {
	g.mu.Lock()
	if g.mu.closed == nil {
		g.mu.closed = ErrClosed
	}
	g.mu.Unlock()
	g.calls.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.log == nil {
		return nil
	}
	err := errors.Join(g.mu.log.close(), g.unlock())
	g.mu.log = nil
	return err
}
