// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

var errSilence = errors.New("nobody answers")

// shaky is a lease that the test brings into jeopardy, saves and ends.
type shaky struct {
	ctx    context.Context
	lose   context.CancelCauseFunc
	mu     sync.Mutex
	why    error
	looks  int
	said   []string
	wanted string
}

func newShaky(t *testing.T) *shaky {
	s := &shaky{}
	s.ctx, s.lose = context.WithCancelCause(t.Context())
	return s
}

func (s *shaky) Context() context.Context { return s.ctx }

func (s *shaky) Remaining() time.Duration { return time.Hour }

// Asked implements child.Lease.
func (s *shaky) Asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

func (s *shaky) want(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = why
}

func (s *shaky) Jeopardy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.why
}

// looked is how often somebody looked.
func (s *shaky) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func (s *shaky) set(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = why
}

func (s *shaky) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, text)
}

// heard is how many lines were said with some words in them.
func (s *shaky) heard(words string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.said {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

// TestWarning: the command hears of each jeopardy once, and the user of its end too.
func TestWarning(t *testing.T) {
	warned := filepath.Join(t.TempDir(), "warned")
	s := newShaky(t)
	o := shell("trap 'echo x >> " + warned + "' USR1; trap 'exit 6' TERM; echo . > " + warned + "; while :; do sleep 0.02; done")
	o.Warn, o.Say, o.Grace = syscall.SIGUSR1, s.say, 10*time.Second // a busy machine needs its time
	go func() {
		times := func(n int) func() bool {
			return func() bool { return strings.Count(readFile(warned), "x") == n }
		}
		await(t, 5*time.Second, "the command's start", func() bool { return readFile(warned) != "" })
		for n := 1; n <= 2; n++ {
			s.set(errSilence)
			await(t, 5*time.Second, "the warning", times(n))
			looked := s.looked()
			await(t, 5*time.Second, "more looks", func() bool { return s.looked() > looked+5 })
			await(t, 5*time.Second, "word of the jeopardy", func() bool { return s.heard("in jeopardy: nobody answers") == n })
			s.set(nil)
			await(t, 5*time.Second, "word of the safety", func() bool { return s.heard("safe again") == n })
		}
		s.set(errSilence)
		await(t, 5*time.Second, "the last warning", times(3))
		s.lose(errBroken)
	}()
	r, err := child.Run(s, o)
	if err != nil || r.Code != 6 || !errors.Is(r.Lost, errBroken) {
		t.Errorf("got %+v, %v, want code 6 and %v", r, err, errBroken)
	}
	if n := strings.Count(readFile(warned), "x"); n != 3 {
		t.Errorf("%d warnings for three times in jeopardy", n)
	}
}

// TestKillOnLoss: there is no word before the end.
func TestKillOnLoss(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	s := newShaky(t)
	o := shell("trap 'echo x > " + dir + "/asked' TERM; echo x > " + ready + "; while :; do sleep 0.02; done")
	o.OnLost, o.Grace = child.Kill, time.Hour
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return readFile(ready) != "" })
		s.lose(errBroken)
	}()
	if r, err := child.Run(s, o); err != nil || r.Code != 137 || !errors.Is(r.Lost, errBroken) {
		t.Errorf("got %+v, %v, want code 137 and %v", r, err, errBroken)
	}
	if readFile(dir+"/asked") != "" {
		t.Error("it was asked to end")
	}
}

// TestKillBeforeTheLeaseEnds: without a grace period the command has all but the margin.
func TestKillBeforeTheLeaseEnds(t *testing.T) {
	o := shell("while :; do sleep 0.02; done")
	o.OnLost, o.Grace, o.Margin = child.Kill, time.Hour, 500*time.Millisecond
	began := time.Now()
	r, err := child.Run(lease{t.Context(), began.Add(time.Second)}, o)
	if d := time.Since(began); err != nil || r.Code != 137 || !errors.Is(r.Lost, child.ErrNotRenewed) || d < 400*time.Millisecond || d > time.Second {
		t.Errorf("got %+v, %v after %v", r, err, d)
	}
}

// TestLeaveOnLoss: the command and what it leaves run on as if nothing had happened.
func TestLeaveOnLoss(t *testing.T) {
	dir := t.TempDir()
	ready, left := filepath.Join(dir, "ready"), filepath.Join(dir, "left")
	s := newShaky(t)
	o := shell("trap 'exit 5' TERM; (trap '' TERM; exec sleep 60) & echo $! > " + left + "; echo x > " + ready +
		"; while ! test -e " + dir + "/go; do sleep 0.02; done; exit 8")
	o.OnLost, o.Say = child.Leave, s.say
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return readFile(ready) != "" })
		s.lose(errBroken)
		await(t, 5*time.Second, "word of the loss", func() bool { return s.heard("runs on without it") == 1 })
		writeFile(t, dir+"/go")
	}()
	r, err := child.Run(s, o)
	if err != nil || r.Code != 8 || !errors.Is(r.Lost, errBroken) {
		t.Errorf("got %+v, %v, want code 8 and %v", r, err, errBroken)
	}
	pid := number(t, left)
	if gone(pid) {
		t.Error("what the command left was ended")
	}
	syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // started above
}

// TestLeaveWhenTheWrapperIsKilled: that is a loss like any other.
func TestLeaveWhenTheWrapperIsKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spirit")
	cmd := wrap(t, daemonize(path), time.Hour, "ON_LOST="+string(child.Leave))
	pid := number(t, path)
	var all []int
	await(t, 10*time.Second, "the wrapper to have the command and the daemon, whose parent has ended", func() bool {
		all = childrenOf(t, cmd.Process.Pid)
		return slices.Contains(all, pid) && len(all) >= 2
	})
	for _, pid := range all {
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) }) //nolint:errcheck // started above
	}
	strike(t, cmd, syscall.SIGKILL)
	cmd.Wait() //nolint:errcheck // killed
	guardsEnd(t)
	for _, pid := range all {
		if gone(pid) {
			t.Errorf("process %d of %v was ended", pid, all)
		}
	}
}

// TestAnAskIsPassedOn once each time, as the signal that was chosen for it.
func TestAnAskIsPassedOn(t *testing.T) {
	heard := filepath.Join(t.TempDir(), "heard")
	s := newShaky(t)
	o := shell("trap 'echo x >> " + heard + "' USR1; trap 'exit 7' USR2; echo . > " + heard + "; while :; do sleep 0.02; done")
	o.Warn, o.Say = syscall.SIGUSR1, s.say
	times := func(n int) func() bool {
		return func() bool { return strings.Count(readFile(heard), "x") == n }
	}
	signals := make(chan os.Signal, 1)
	o.Signals = signals
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return readFile(heard) != "" })
		for n, why := range []string{"ann wants it", "bob wants it now"} {
			s.want(why)
			await(t, 5*time.Second, "the signal", times(n+1))
			await(t, 5*time.Second, "word of it", func() bool { return s.heard(why) == 1 })
		}
		signals <- syscall.SIGUSR2
	}()
	if r, err := child.Run(s, o); err != nil || r.Code != 7 || r.Lost != nil {
		t.Errorf("got %+v, %v, want code 7", r, err)
	}
	if n := strings.Count(readFile(heard), "x"); n != 2 {
		t.Errorf("%d signals for two words", n)
	}
	o.OnAsk = syscall.SIGUSR2
	s = newShaky(t)
	o.Say = s.say
	if err := os.Remove(heard); err != nil {
		t.Fatal(err)
	}
	go func() {
		await(t, 5*time.Second, "the command's start", func() bool { return readFile(heard) != "" })
		s.want("ann wants it")
	}()
	if r, err := child.Run(s, o); err != nil || r.Code != 7 || r.Lost != nil {
		t.Errorf("got %+v, %v, want code 7 by the signal for it", r, err)
	}
}

// TestUnreadLinesHoldNothingUp: for a while nobody reads what is said of a jeopardy that is
// over (Ctrl-S, a pager, a connection that stalls). Neither does the end wait for that.
func TestUnreadLinesHoldNothingUp(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	s := newShaky(t)
	l := renewed{s, time.Second}
	o := shell("trap 'exit 5' TERM; echo x > " + ready + "; while :; do sleep 0.02; done")
	saying, read := make(chan struct{}, 1), make(chan struct{})
	defer close(read)
	o.Say = func(string) {
		saying <- struct{}{}
		<-read
	}
	returned := make(chan child.Result, 1)
	go func() {
		r, err := child.Run(l, o)
		if err != nil {
			t.Error(err)
		}
		returned <- r
	}()
	await(t, 10*time.Second, "the command's start", func() bool { return readFile(ready) != "" })
	s.set(errSilence)
	<-saying
	s.set(nil)
	select {
	case r := <-returned:
		t.Fatalf("got %+v, and the lease was renewed all the time", r)
	case <-time.After(2 * l.left):
	}
	s.lose(errBroken)
	select {
	case r := <-returned:
		if !errors.Is(r.Lost, errBroken) {
			t.Errorf("got %+v, want %v", r, errBroken)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run waits for whoever reads")
	}
}

// TestTheGraceIsBeforeTheEnd: who lets go in the time that --grace gives is not killed,
// although the lease is not renewed.
func TestTheGraceIsBeforeTheEnd(t *testing.T) {
	o := shell("trap 'sleep 0.5; exit 5' TERM; while :; do sleep 0.02; done")
	o.Grace = 4 * time.Second // a busy machine needs its time
	r, err := child.Run(lease{t.Context(), time.Now().Add(6 * time.Second)}, o)
	if err != nil || r.Code != 5 || !errors.Is(r.Lost, child.ErrNotRenewed) {
		t.Errorf("got %+v, %v, want code 5 and %v", r, err, child.ErrNotRenewed)
	}
}

// TestAStoppedCommandHears that it is asked to let go, and that its lock is lost: it goes on.
func TestAStoppedCommandHears(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(*shaky)
		code int
	}{
		{"asked to let go", func(s *shaky) { s.want("ann wants it") }, 7},
		{"lost lock", func(s *shaky) { s.lose(errBroken) }, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pid")
			s := newShaky(t)
			o := shell("trap 'exit 7' USR2; trap 'exit 5' TERM; echo $$ > " + path + "; kill -STOP $$; while :; do sleep 0.02; done")
			o.OnAsk, o.Grace = syscall.SIGUSR2, 10*time.Second // a busy machine needs its time
			returned := make(chan child.Result, 1)
			go func() {
				r, err := child.Run(s, o)
				if err != nil {
					t.Error(err)
				}
				returned <- r
			}()
			pid := number(t, path)
			await(t, 10*time.Second, "the command to stop", func() bool {
				_, behind, _ := strings.Cut(readFile(fmt.Sprintf("/proc/%d/stat", pid)), ") ")
				return strings.HasPrefix(behind, "T")
			})
			c.tell(s)
			select {
			case r := <-returned:
				if r.Code != c.code {
					t.Errorf("%s: got %+v, want code %d", c.name, r, c.code)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: the stopped command was not told", c.name)
				s.lose(errBroken)
				<-returned
			}
		})
	}
}
