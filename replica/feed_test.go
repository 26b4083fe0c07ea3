// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/wal"
)

// listener writes down what it hears.
type listener struct {
	heard   []string
	watched bool
}

func (l *listener) Begin(at wal.Position, epoch cluster.Epoch) {
	l.heard = append(l.heard, fmt.Sprintf("begin at %d of epoch %d", at.LSN, epoch))
}

func (l *listener) Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, taken []RevokedGrant) {
	l.heard = append(l.heard, fmt.Sprintf("frames from %d to %d", before.LSN, end.LSN))
	for _, x := range taken {
		l.heard = append(l.heard, fmt.Sprintf("%v takes %q of %q", x.Record.Kind, x.Grant.Lock, x.Grant.Client))
	}
}

func (l *listener) Alive() { l.heard = append(l.heard, "alive") }

func (l *listener) Watched() bool { return l.watched }

// The primary need not feed a replica often at which no client reads or watches.
func TestAnswersSayWhetherClientsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		s.frame("a")
		r, l := fed(t, s), &listener{}
		r.SetFeed(l)
		unread := func(when string, want bool) {
			t.Helper()
			if ack, err := r.Push(push.Push{Epoch: 7, Before: s.at}); err != nil || ack.Unread != want {
				t.Errorf("%s: unread is %v, want %v; %v", when, ack.Unread, want, err)
			}
		}
		unread("at first", true)
		r.Read(func(cluster.LSN, cluster.Epoch, time.Duration, *locktable.Table) {})
		time.Sleep(readLately)
		unread("a moment after a read", false)
		time.Sleep(time.Nanosecond)
		unread("later", true)
		l.watched = true
		unread("with a watcher", false)
		l.watched = false
		unread("without it", true)
	})
}

func TestTheFeedHearsWhatIsApplied(t *testing.T) {
	s := newSource(t)
	s.frame("a")
	r, l := New(), &listener{}
	r.SetFeed(l)
	hears := func(p push.Push, want ...string) {
		t.Helper()
		l.heard = nil
		r.Push(p) //nolint:errcheck // some are refused
		if fmt.Sprint(l.heard) != fmt.Sprint(want) {
			t.Errorf("heard %q, want %q", l.heard, want)
		}
	}
	whole := s.snapshot()
	hears(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Bytes: whole[:9]}})
	hears(push.Push{Epoch: 7, Chunk: &push.Chunk{At: s.at, Offset: 9, Bytes: whole[9:], Last: true}}, "begin at 1 of epoch 7", "alive")
	before, b := s.frame("b")
	_, b2 := s.frame("c")
	frames := append(b, b2...)
	hears(push.Push{Epoch: 6, Before: before, Frames: frames})
	hears(push.Push{Epoch: 7, Before: before, Frames: frames[:len(frames)-1]})
	r = fed(t, s)
	r.SetFeed(l)
	at := s.at
	before, b = s.frame("d")
	hears(push.Push{Epoch: 7, Before: before, Frames: b}, "frames from 3 to 4", "alive")
	hears(push.Push{Epoch: 7, Before: s.at}, "alive")
	hears(push.Push{Epoch: 7, Before: at}) // the primary is elsewhere

	dir := t.TempDir()
	if _, err := r.save(t.Context(), dir, wal.Position{}); err != nil {
		t.Fatal(err)
	}
	r, l.heard = New(), nil
	r.SetFeed(l)
	if err := r.Load(dir, ours(), shown); err != nil || fmt.Sprint(l.heard) != "[begin at 4 of epoch 7]" {
		t.Errorf("loaded: %v %q", err, l.heard)
	}
}

// A replica knows as well as a primary whose the grants are that end.
func TestTheFeedHearsWhatIsTaken(t *testing.T) {
	s := newSource(t)
	for _, c := range []cluster.ClientID{"a", "b", "c", "d"} {
		s.frame(c) // tokens 1 to 4
	}
	r, l := fed(t, s), &listener{}
	r.SetFeed(l)
	push := func(before wal.Position, frame []byte) {
		t.Helper()
		if _, err := r.Push(push.Push{Epoch: 7, Before: before, Frames: frame}); err != nil {
			t.Fatal(err)
		}
	}
	push(s.decide(&locktable.Request{Op: locktable.OpRelease, Client: "a", ID: 2, Lock: "a", Token: 1}))
	push(s.decide(&locktable.Request{Op: locktable.OpRelease, Client: "stranger", ID: 1, Lock: "b", Token: 2}))
	push(s.decide(&locktable.Request{Op: locktable.OpBreak, Client: "stranger", ID: 2, Lock: "c", Token: 3, Actor: "ann", Grace: time.Minute}))
	push(s.decide(&locktable.Request{Op: locktable.OpBreak, Client: "stranger", ID: 3, Lock: "c", Token: 3, Actor: "ann"}))
	push(s.encode(s.table.DecideExpire("d", 4, "", 7, nil)))
	push(s.encode(s.table.DecideForceClear(7, nil)))
	want := `[frames from 4 to 5 alive frames from 5 to 6 release takes "b" of "b" alive frames from 6 to 7 ask takes "c" of "c" alive ` +
		`frames from 7 to 8 break takes "c" of "c" alive frames from 8 to 9 expire takes "d" of "d" alive frames from 9 to 10 force_clear takes "" of "" alive]`
	if got := fmt.Sprint(l.heard); got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}
