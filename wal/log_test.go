// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// term is a whole life of a log: appends of many sizes, marks, rotations,
// checkpoints and removals. It stops at the first error.
type term struct {
	*story
	base, before int // the newest checkpoint and the one before
	running      bool
}

func (r *term) live(ctx context.Context) error {
	if err := r.start(); err != nil {
		return err
	}
	r.running = true
	for i := range 40 {
		if !r.log.NextReady() {
			if err := r.log.PrepareNext(ctx); err != nil {
				return err
			}
		}
		data := 0
		if r.rng.IntN(3) == 0 {
			data = 1 + r.rng.IntN(2500)
		}
		if err := r.append(1+r.rng.IntN(3), 30+r.rng.IntN(500), data); err != nil {
			return err
		}
		if i%5 == 4 {
			if err := r.log.Mark(); err != nil {
				return err
			}
		}
		if i%12 == 11 {
			r.before, r.base = r.base, r.acked
			for _, name := range r.log.Removable(cluster.LSN(r.before)) {
				if err := r.log.Drop(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// At every call of the storage, failing in every way: what is visible, and
// whatever a crash of everything may leave of it, holds exactly what was
// acknowledged and at most the one batch in flight, and can be adopted.
func TestEveryFailurePoint(t *testing.T) {
	whole := &term{story: newStory(t, prepared(t, tiny), 5)}
	if err := whole.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := whole.recovered(whole.d, whole.base); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	images := 0
	for at := 1; at <= whole.d.calls; at++ {
		for _, f := range []fault{failedNotDone, failedButDone, failedTorn} {
			d := prepared(t, tiny)
			d.failAt, d.fault = at, f
			r := &term{story: newStory(t, d, 5)}
			if err := r.live(t.Context()); !errors.Is(err, errInjected) {
				t.Fatalf("call %d: got %v, want the injected error", at, err)
			}
			if len(d.late) > 0 {
				t.Fatalf("call %d (%s) failed, and yet: %q", at, d.failed, d.late)
			}
			if !r.running {
				continue // the term burned before its START, nobody reads this
			}
			for i := range 4 {
				image := d.alive()
				if i > 0 {
					image = d.crash(rng)
				}
				images++
				if err := r.adoptable(image); err != nil {
					t.Fatalf("call %d (%s), fault %d, image %d: %v", at, d.failed, f, i, err)
				}
			}
		}
	}
	t.Logf("%d calls, %d images", whole.d.calls, images)
}

// adoptable recovers an image from both checkpoints, adopts it as a takeover
// does, goes on, and recovers the result.
func (r *term) adoptable(image *memDir) error {
	for _, base := range []int{r.base, r.before} {
		res, c, err := r.recovered(image, base)
		if err != nil {
			return err
		}
		heir, err := r.adopt(image, base, res, c)
		if err != nil {
			return fmt.Errorf("adopt: %w", err)
		}
		if _, _, err := heir.recovered(heir.d, base); err != nil {
			return fmt.Errorf("scan of the adopted log: %w", err)
		}
		if _, _, err := heir.recovered(heir.d.crash(r.rng), base); err != nil {
			return fmt.Errorf("scan of the adopted log after a crash: %w", err)
		}
	}
	return nil
}

// adopt links and re-logs into a directory of its own and appends a little more.
func (r *term) adopt(image *memDir, base int, res Result, c *seen) (*story, error) {
	h := newStory(r.t, prepared(r.t, 4*tiny), 9)
	for _, s := range res.Segments[:res.Linkable] {
		h.d.link(image, s.Name)
	}
	o := testOptions(h.d)
	o.Adopted = res.Segments[:res.Linkable]
	var err error
	if h.log, err = Start(o, res.Relog, cluster.LSN(base)); err != nil {
		return nil, err
	}
	h.made, h.after = r.made[:res.End.LSN], slices.Clone(r.after[:res.End.LSN+1])
	h.made = slices.Clip(h.made)
	at := res.Relog
	for _, x := range c.also {
		h.batch.Reset(at)
		h.batch.Add(x.header, x.data)
		if err := h.log.Append(&h.batch); err != nil {
			return nil, err
		}
		at = h.batch.End()
	}
	if at != res.End {
		return nil, fmt.Errorf("re-logged up to %v, want %v", at, res.End)
	}
	h.acked = int(res.End.LSN)
	for range 3 {
		if err := h.append(2, 100, 0); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func TestPoisonIsSticky(t *testing.T) {
	s := started(t, tiny)
	s.must(s.append(1, 50, 0))
	s.d.failAt = s.d.calls + 2 // the datasync
	err := s.append(1, 50, 0)
	if !errors.Is(err, ErrPoisoned) || !errors.Is(err, errInjected) {
		t.Fatalf("append on a failing disk: got %v", err)
	}
	calls := s.d.calls
	for name, try := range map[string]func() error{
		"append":  func() error { return s.append(1, 50, 0) },
		"mark":    s.log.Mark,
		"prepare": func() error { return s.log.PrepareNext(t.Context()) },
		"drop":    func() error { return s.log.Drop("x") },
		"err":     s.log.Err,
	} {
		if err := try(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, errInjected) {
			t.Errorf("%s of a poisoned log: got %v", name, err)
		}
	}
	if s.d.calls != calls {
		t.Errorf("a poisoned log made %d calls", s.d.calls-calls)
	}
	if got := s.log.Position(); got != s.after[1] {
		t.Errorf("position: got %v, want %v", got, s.after[1])
	}
}

func TestFullLogStaysUsable(t *testing.T) {
	s := started(t, tiny)
	var err error
	for err == nil {
		err = s.append(1, 100, 0)
	}
	if !errors.Is(err, ErrFull) || s.log.Err() != nil || s.log.Room() != 0 {
		t.Fatalf("append to a full log: got %v, log says %v, room %d", err, s.log.Err(), s.log.Room())
	}
	calls := s.d.calls
	if err := s.append(1, 100, 0); !errors.Is(err, ErrFull) || s.d.calls != calls {
		t.Fatalf("second append to a full log: got %v and %d calls", err, s.d.calls-calls)
	}
	s.must(s.log.Mark()) // always has room
	s.must(s.log.PrepareNext(t.Context()))
	if got, want := s.log.Room(), int(tiny)-3*BlockSize; got != want {
		t.Fatalf("room with a prepared segment: got %d, want %d", got, want)
	}
	s.must(s.append(1, 100, 0))
	if r, _, err := s.recovered(s.d.alive(), 0); err != nil || len(r.Segments) != 2 || r.Linkable != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func TestDiskFullWhilePreparing(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		for at := 1; at <= 4; at++ { // create, write, datasync, sync
			s := started(t, tiny)
			s.d.failErr, s.d.failAt, s.d.fault = full, s.d.calls+at, failedButDone
			if err := s.log.PrepareNext(t.Context()); !errors.Is(err, full) || s.log.Err() != nil {
				t.Fatalf("call %d: got %v, log says %v", at, err, s.log.Err())
			}
			if s.d.visible[NextName] != nil || s.log.NextReady() {
				t.Fatalf("call %d: the piece is still there", at)
			}
			s.must(s.append(1, 50, 0))
			s.must(s.log.PrepareNext(t.Context()))
		}
	}
}

// When the piece cannot be removed either, the next attempt begins with it.
func TestLeftoverPieceIsRemovedFirst(t *testing.T) {
	s := started(t, tiny)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("the term ended")
	cancel(ended)
	if err := s.log.PrepareNext(ctx); !errors.Is(err, ended) || s.log.Err() != nil {
		t.Fatalf("prepare after the end: got %v", err)
	}
	if s.d.visible[NextName] == nil {
		t.Fatal("a term that ended removed something")
	}
	s.must(s.log.PrepareNext(t.Context()))
	s.must(s.log.PrepareNext(t.Context())) // nothing to do
	if !s.log.NextReady() || int64(len(s.d.bytes(NextName))) != tiny {
		t.Fatal("no whole prepared segment")
	}
}

func TestTooLargeIsRefused(t *testing.T) {
	s := started(t, tiny)
	s.must(s.log.PrepareNext(t.Context()))
	calls := s.d.calls
	for name, data := range map[string]int{"over the segment": int(tiny), "exactly over": int(tiny) - 3*BlockSize} {
		if err := s.append(1, 50, data); !errors.Is(err, ErrTooLarge) || s.log.Err() != nil || s.d.calls != calls {
			t.Errorf("%s: got %v, log says %v", name, err, s.log.Err())
		}
	}
	s.must(s.append(1, 50, s.log.Room()-FrameHeaderSize-60))

	// A first segment that is smaller than the others cannot be left empty.
	s = started(t, minSegmentSize)
	s.must(s.log.PrepareNext(t.Context()))
	if err := s.append(1, 50, 2*BlockSize); !errors.Is(err, ErrTooLarge) || s.log.Room() != BlockSize {
		t.Errorf("large batch in an empty small segment: got %v, room %d", err, s.log.Room())
	}
	s.must(s.append(1, 50, 0))
	s.must(s.append(1, 50, 2*BlockSize))
	if _, _, err := s.recovered(s.d.alive(), 0); err != nil {
		t.Error(err)
	}

	o := testOptions(prepared(t, tiny))
	o.MaxFrame = 100
	l, err := Start(o, Position{}, 0)
	s.must(err)
	var b Batch
	b.Reset(Position{})
	b.Add(make([]byte, 99), nil)
	if err := l.Append(&b); !errors.Is(err, ErrTooLarge) || l.Room() != BlockSize {
		t.Errorf("over MaxFrame: got %v, room %d", err, l.Room())
	}
}

// Whoever splits by SizeWith and Room never meets ErrTooLarge, not even in a
// first segment that is smaller than the others.
func TestSplitByRoom(t *testing.T) {
	s := started(t, minSegmentSize)
	s.must(s.log.PrepareNext(t.Context()))
	header, data := make([]byte, 100), make([]byte, 900)
	for range 50 {
		s.batch.Reset(s.log.Position())
		for s.batch.SizeWith(header, data) <= s.log.Room() {
			s.batch.Add(header, data)
		}
		if s.batch.Len() == 0 {
			s.must(s.log.PrepareNext(t.Context()))
			continue
		}
		s.must(s.log.Append(&s.batch))
	}
	if r, _, err := scan(s.d.alive(), scanOptions()); err != nil || r.End != s.log.Position() || r.Linkable < 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func TestRemovable(t *testing.T) {
	s := started(t, tiny)
	var ends []cluster.LSN // of the closed segments
	for len(ends) < 4 {
		if !s.log.NextReady() {
			s.must(s.log.PrepareNext(t.Context()))
			continue
		}
		before := s.log.Position().LSN
		s.must(s.append(1, 100, 0))
		if !s.log.NextReady() {
			ends = append(ends, before)
		}
	}
	names := []string{SegmentName(1), SegmentName(ends[0] + 1), SegmentName(ends[1] + 1)}
	for _, c := range []struct {
		upto cluster.LSN
		want []string
	}{
		{0, nil},
		{ends[0] - 1, nil},
		{ends[0], names[:1]},
		{ends[1] + 1, names[:2]},
		{1 << 60, names}, // the newest closed one stays
	} {
		if got := s.log.Removable(c.upto); !slices.Equal(got, c.want) {
			t.Errorf("removable up to %d: got %q, want %q", c.upto, got, c.want)
		}
	}
	if err := s.log.Drop(names[1]); err == nil {
		t.Error("dropped a segment out of order")
	}
	s.must(s.d.Remove(names[0])) // removed, but the answer was lost
	for _, name := range names {
		s.must(s.log.Drop(name))
	}
	if err := s.log.Drop(SegmentName(ends[2] + 1)); err == nil || s.d.visible[SegmentName(ends[2]+1)] == nil {
		t.Errorf("dropped the newest closed segment: %v", err)
	}
	if _, _, err := s.recovered(s.d.alive(), int(ends[2])); err != nil {
		t.Error(err)
	}
}

func TestMarkOnlyWhereNeeded(t *testing.T) {
	s := started(t, tiny)
	calls := s.d.calls
	s.must(s.log.Mark()) // nothing written yet: the header has nothing to prove
	s.must(s.append(1, 50, 0))
	s.must(s.log.Mark())
	s.must(s.log.Mark())
	s.must(s.append(0, 0, 0))
	if got := s.d.calls - calls; got != 4 {
		t.Errorf("%d calls for one append and one mark, want 4", got)
	}
}

// TestDroppedSegmentKeepsItsBytes: another term may have linked it, so only its name goes, and the
// file is used for nothing else.
func TestDroppedSegmentKeepsItsBytes(t *testing.T) {
	s := started(t, tiny)
	other, was := newMemDir(), map[string][]byte{}
	for range 80 {
		if !s.log.NextReady() {
			s.must(s.log.PrepareNext(t.Context()))
		}
		s.must(s.append(1, 100, 0))
		for _, name := range s.log.Removable(1 << 60) {
			other.link(s.d, name)
			was[name] = bytes.Clone(other.bytes(name))
			s.must(s.log.Drop(name))
		}
	}
	if len(was) < 3 {
		t.Fatalf("only %d segments were dropped", len(was))
	}
	for name, want := range was {
		if !bytes.Equal(other.bytes(name), want) {
			t.Errorf("%s was written to after it was dropped", name)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	dirty := prepared(t, tiny)
	dirty.bytes(NextName)[4095] = 1
	for _, c := range []struct {
		name string
		d    *memDir
		edit func(*Options)
		want error
	}{
		{"no prepared segment", newMemDir(), nil, nil},
		{"too small", prepared(t, minSegmentSize-BlockSize), nil, nil},
		{"not whole blocks", prepared(t, tiny+1), nil, nil},
		{"used before", dirty, nil, ErrCorrupt},
		{"gap behind the adopted", prepared(t, tiny), func(o *Options) { o.Adopted = []SegmentInfo{{First: 1, Last: 9}} }, ErrGap},
		{"segment size", prepared(t, tiny), func(o *Options) { o.SegmentSize = 5000 }, nil},
		{"frame size", prepared(t, tiny), func(o *Options) { o.MaxFrame = -1 }, nil},
	} {
		o := testOptions(c.d)
		if c.edit != nil {
			c.edit(&o)
		}
		if l, err := Start(o, Position{}, 0); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, %v", c.name, l, err)
		}
	}
}

func TestBatchMustFollow(t *testing.T) {
	s := started(t, tiny)
	var b Batch
	b.Reset(Position{LSN: 5, Chain: 5})
	b.Add([]byte("x"), nil)
	if err := s.log.Append(&b); !errors.Is(err, ErrPoisoned) {
		t.Fatalf("batch from elsewhere: got %v", err)
	}
}

func TestClose(t *testing.T) {
	s := started(t, tiny)
	s.must(s.append(1, 50, 0))
	calls := s.d.calls
	s.must(s.log.Close())
	s.must(s.log.Close())
	if err := s.append(1, 50, 0); !errors.Is(err, ErrPoisoned) || s.d.calls != calls {
		t.Fatalf("append after close: got %v", err)
	}
	if _, _, err := s.recovered(s.d.alive(), 0); err != nil {
		t.Fatal(err)
	}
}

// A log that is closed keeps no file open: neither the segment that was prepared for it, nor one
// that is prepared meanwhile.
func TestCloseGivesEveryFileBack(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(s *story)
	}{
		{"prepared before", func(s *story) {
			s.must(s.log.PrepareNext(t.Context()))
			s.must(s.log.Close())
		}},
		{"prepared meanwhile", func(s *story) {
			s.d.beforeSync = func() { s.must(s.log.Close()) }
			if err := s.log.PrepareNext(t.Context()); !errors.Is(err, ErrPoisoned) {
				t.Errorf("prepared for a log that is closed: %v", err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := prepared(t, tiny)
			before := d.open
			s := newStory(t, d, 1)
			s.must(s.start())
			test.end(s)
			if d.open != before {
				t.Errorf("%d files are still open", d.open-before)
			}
		})
	}
}

// Preparing and removing run beside appending.
func TestBackgroundWork(t *testing.T) {
	s := started(t, tiny)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wake := make(chan struct{}, 1)
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			}
			if err := s.log.PrepareNext(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			for _, name := range s.log.Removable(50) {
				if err := s.log.Drop(name); err != nil {
					t.Error(err)
				}
			}
			_ = s.log.Room() // read beside appends for the race detector
		}
	})
	for s.acked < 300 {
		select {
		case wake <- struct{}{}:
		default:
		}
		if err := s.append(1, 200, 0); err != nil && !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
	}
	stop()
	wg.Wait()
	if _, _, err := s.recovered(s.d.alive(), 50); err != nil {
		t.Fatal(err)
	}
	if _, err := s.d.Open(SegmentName(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first segment is still there: %v", err)
	}
}

// While a rotation takes the prepared segment's name, nobody may make another
// under it: the rename would hit the wrong file.
func TestPrepareKeepsOffDuringRotation(t *testing.T) {
	s := started(t, tiny)
	s.must(s.log.PrepareNext(t.Context()))
	renames := 0
	s.d.beforeRename = func() {
		renames++
		calls := s.d.calls
		if err := s.log.PrepareNext(t.Context()); err != nil || s.d.calls != calls {
			t.Errorf("prepare during a rotation: %v, %d calls", err, s.d.calls-calls)
		}
	}
	for renames == 0 {
		s.must(s.append(1, 100, 0))
	}
	if _, _, err := s.recovered(s.d.alive(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsNameWhatFailed(t *testing.T) {
	s := started(t, tiny)
	s.d.failAt = s.d.calls + 1
	err := s.append(1, 50, 0)
	for _, want := range []string{"append", "write", SegmentName(1), "offset 4096", "injected"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}
