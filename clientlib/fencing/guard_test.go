// SPDX-License-Identifier: Apache-2.0

package fencing_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func open(t *testing.T, dir string) *fencing.Guard {
	t.Helper()
	g, err := fencing.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestLowerTokensAreRefused(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	done := 0
	do := func(key string, token cluster.Token) error {
		return g.Do(key, token, func() error { done++; return nil })
	}
	for i, x := range []struct {
		key   string
		token cluster.Token
		ok    bool
	}{{"a", 5, true}, {"a", 5, true}, {"a", 4, false}, {"b", 4, true}, {"a", 9, true}, {"a", 5, false}, {"b", 0, false}, {"", 1, true}, {"új\n", 2, true}} {
		before := done
		err := do(x.key, x.token)
		if (err == nil) != x.ok || (done > before) != x.ok {
			t.Errorf("%d: token %d for %q: %v, done %v", i, x.token, x.key, err, done > before)
		}
		if e, stale := errors.AsType[*fencing.StaleError](err); x.token > 0 && !x.ok && (!stale || e.Seen <= x.token || !errors.Is(err, fencing.ErrStale)) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := do("a", 100); !errors.Is(err, fencing.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	again := open(t, dir)
	for key, want := range map[string]cluster.Token{"a": 9, "b": 4, "": 1, "új\n": 2, "c": 0} {
		if got := again.Seen(key); got != want {
			t.Errorf("after a restart token %d of %q, want %d", got, key, want)
		}
	}
}

// TestDurableBeforeDone looks at the disk while something is done: what a process
// that is killed now leaves refuses the old token.
func TestDurableBeforeDone(t *testing.T) {
	g := open(t, t.TempDir())
	killed := t.TempDir()
	err := g.Do("a", 7, func() error {
		b, err := os.ReadFile(filepath.Join(g.Dir(), "tokens"))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(killed, "tokens"), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, killed).Admit("a", 6); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("after a crash: %v", err)
	}
	failed := errors.New("the store is full")
	if err := g.Do("a", 8, func() error { return failed }); !errors.Is(err, failed) || g.Seen("a") != 8 {
		t.Errorf("%v, token %d", err, g.Seen("a"))
	}
}

// TestNothingOldIsUnderWay: the first thing under a new token begins when the last
// one under the old token has ended.
func TestNothingOldIsUnderWay(t *testing.T) {
	g := open(t, t.TempDir())
	var mu sync.Mutex
	var order []cluster.Token
	begun, let := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = g.Do("a", 1, func() error {
			close(begun)
			<-let
			mu.Lock()
			defer mu.Unlock()
			order = append(order, 1)
			return nil
		})
	})
	<-begun
	ran := make(chan struct{})
	all.Go(func() {
		_ = g.Do("a", 2, func() error {
			close(ran)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, 2)
			return nil
		})
	})
	if err := g.Do("other", 1, func() error { return nil }); err != nil {
		t.Error(err) // it need not wait
	}
	select {
	case <-ran:
		t.Error("the new holder's first thing begins while the old one's is under way")
	case <-time.After(300 * time.Millisecond):
	}
	close(let)
	all.Wait()
	if fmt.Sprint(order) != "[1 2]" {
		t.Errorf("order: %v", order)
	}
}

// TestCloseWaitsForWhatIsUnderWay: another process that opens the guard may let a newer
// holder in, so nothing of an older one runs on in this one.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	closed := make(chan error, 1)
	err := g.Do("a", 1, func() error {
		go func() { closed <- g.Close() }()
		for g.Admit("b", 1) == nil { // until it has begun
			runtime.Gosched()
		}
		another, err := fencing.Open(dir)
		if err == nil {
			return errors.Join(errors.New("open elsewhere while something is under way"), another.Close())
		}
		if !errors.Is(err, fencing.ErrInUse) {
			return err
		}
		return nil
	})
	if err := errors.Join(err, <-closed); err != nil {
		t.Error(err)
	}
	open(t, dir)
}

// TestTornEnd cuts the file at every byte: what is left is a beginning of what was
// written, and the guard goes on.
func TestTornEnd(t *testing.T) {
	whole := t.TempDir()
	g := open(t, whole)
	for token := range cluster.Token(4) {
		if err := g.Admit("a", token+1); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(whole, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	line := len(b) / 4
	for n := range len(b) + 1 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokens"), b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		g := open(t, dir)
		if got, want := g.Seen("a"), cluster.Token(n/line); got != want {
			t.Fatalf("%d of %d bytes: token %d, want %d", n, len(b), got, want)
		}
		if err := g.Admit("a", 9); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if got := open(t, dir).Seen("a"); got != 9 {
			t.Fatalf("%d of %d bytes: token %d afterwards", n, len(b), got)
		}
	}
	b[3] ^= 1
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "tokens"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fencing.Open(bad); !errors.Is(err, fencing.ErrDamaged) {
		t.Errorf("a damaged first line: %v", err)
	}
	if err := os.Remove(filepath.Join(bad, "tokens")); err != nil {
		t.Fatal(err)
	}
	open(t, bad) // the lock was given back
}

// TestInterruptedRewrite leaves a file that the next process replaces.
func TestInterruptedRewrite(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "tokens.new")
	if err := os.WriteFile(left, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := open(t, dir)
	if err := g.Admit("a", 5); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there")
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	if _, err := fencing.Open(dir); !errors.Is(err, fencing.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

// TestRemovedLockIsNoticed: whoever removes the file of the lock lets two processes in.
func TestRemovedLockIsNoticed(t *testing.T) {
	dir := t.TempDir()
	g, err := fencing.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // its lock is gone
	if err := errors.Join(g.Admit("a", 5), os.Remove(filepath.Join(dir, "lock"))); err != nil {
		t.Fatal(err)
	}
	other := open(t, dir)
	for _, token := range []cluster.Token{5, 6} {
		if err := g.Admit("a", token); !errors.Is(err, fencing.ErrInUse) {
			t.Errorf("token %d beside another process: %v", token, err)
		}
	}
	if err := other.Admit("a", 7); err != nil {
		t.Error(err)
	}
}

// TestLineGoesToTheEnd of the file, wherever another process has moved that.
func TestLineGoesToTheEnd(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	if err := g.Admit("a", 5); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "tokens")
	line, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.Write(line); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(foreign.Close(), os.Remove(filepath.Join(dir, "lock"))); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit("a", 6); !errors.Is(err, fencing.ErrInUse) {
		t.Errorf("behind a foreign line: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || len(b) != 3*len(line) {
		t.Errorf("the file has %d bytes, %v, want three lines of %d", len(b), err, len(line))
	}
}

// TestTheFileStaysSmall and loses nothing.
func TestTheFileStaysSmall(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	for token := range cluster.Token(3000) {
		if err := g.Admit(fmt.Sprint("key", token%7), token+1); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "tokens"))
	if err != nil || info.Size() > 1100*24 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	for i := range 7 {
		if got := again.Seen(fmt.Sprint("key", i)); got < 2990 {
			t.Errorf("key%d: token %d", i, got)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	g := open(t, t.TempDir())
	var all sync.WaitGroup
	inside, highest := 0, cluster.Token(0)
	for i := range 8 {
		all.Go(func() {
			for n := range 30 {
				token := cluster.Token(n*8 + i + 1)
				err := g.Do("a", token, func() error {
					inside++ // the race detector knows
					if token < highest || inside != 1 {
						t.Errorf("token %d after %d, %d inside", token, highest, inside)
					}
					highest = token
					inside--
					return nil
				})
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
