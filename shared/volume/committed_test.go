// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// claimant is server 2, which takes over from server 1 step by step.
type claimant struct {
	s   *server
	old *term
	r   *volume.Term
	src volume.Source
	a   *volume.Adoption
	x   *term
}

// claimantSteps is how many steps a takeover has here.
const claimantSteps = 6

// step does the next step of the takeover. Between its scan and its START the old primary, which does not know that it is
// fenced, writes a record that no later term has.
func (c *claimant) step(t *testing.T, n int) {
	t.Helper()
	var err error
	ctx := context.Background()
	switch n {
	case 0:
		c.r = c.s.claim()
	case 1:
		c.src, err = c.r.FenceOlder(ctx)
	case 2:
		c.a, err = c.r.Scan(ctx, c.src, nil)
	case 3:
		c.old.fill(1)
	case 4:
		var log *wal.Log
		if log, err = c.r.Adopt(c.a); err == nil {
			c.x = &term{t: t, host: c.s.host, r: c.r, src: c.src, a: c.a, log: log, table: c.a.Table, vol: c.s.vol, next: 1}
		}
	case 5:
		if err = c.r.WriteStart(c.a.End); err == nil {
			c.x.fill(2)
		}
	}
	if err != nil {
		t.Fatalf("step %d of the takeover: %v", n, err)
	}
}

// committedRun is one run of a reader beside a takeover.
type committedRun struct {
	profile func() volumetest.Profile
	held    int // at which of its calls the reader is held
	steps   int // how many steps the claimant does meanwhile
	// rest is when it does the rest after that, 0 if it is killed instead.
	rest time.Duration
	// next is when server 3 takes over, 0 if it does when the reader is done.
	next time.Duration
}

// committedPatience is for how long the readers of these tests wait: longer than caches hide names.
const committedPatience = 70 * time.Second

// run returns false if the reader makes fewer calls than it is to be held at.
func (k committedRun) run(t *testing.T) (reached bool) {
	d := volumetest.New(1)
	at := func(id int) *volumetest.Host { return d.Host(id, k.profile()) }
	if _, err := initialise(at(9)); err != nil {
		t.Fatal(err)
	}
	first := startOn(t, at(1), 1)
	old, err := first.takeOver(first.claim(), nil)
	if err != nil {
		t.Fatal(err)
	}
	old.fill(5)
	acked := old.log.Position().LSN

	gate, reader := volumetest.NewGate(), at(20)
	reader.SetHook(volumetest.At(k.held, volumetest.Pause(gate)))
	var got *volume.Committed
	var readErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, readErr = volume.ReadCommitted(t.Context(), reader, volume.CommittedOptions{Wait: committedPatience})
	}()
	synctest.Wait()
	select {
	case <-gate.Arrived():
		reached = true
	default:
	}
	c := &claimant{s: startOn(t, at(2), 2), old: old}
	for n := range k.steps {
		c.step(t, n)
	}
	gate.Resume()
	began := time.Now()
	switch {
	case k.steps == claimantSteps:
	case k.rest > 0:
		time.Sleep(k.rest)
		for n := k.steps; n < claimantSteps; n++ {
			c.step(t, n)
		}
	default:
		c.s.host.Kill()
	}
	if k.next > 0 {
		time.Sleep(k.next)
		k.judge(t, d, at(3), acked, done, &got, &readErr)
		return reached
	}
	<-done
	if waited := time.Since(began); waited > 3*committedPatience+confirmPatience {
		t.Errorf("%v: it took %v", k, waited)
	}
	k.judge(t, d, at(3), acked, done, &got, &readErr)
	return reached
}

// confirmPatience is more than a reader waits for a canary.
const confirmPatience = 4 * time.Second

// judge has server 3 take over, and compares what was read with the log that it has.
func (k committedRun) judge(t *testing.T, d *volumetest.Disk, h *volumetest.Host, acked cluster.LSN, done <-chan struct{}, got **volume.Committed, readErr *error) {
	t.Helper()
	s := startOn(t, h, 3)
	last, err := s.takeOver(s.claim(), nil)
	if err != nil {
		t.Fatal(err)
	}
	last.fill(1)
	<-done
	defer last.kill()
	if *readErr != nil {
		if !errors.Is(*readErr, volume.ErrNotCommitted) || k.next > 0 || !h.Kind().Network && k.rest == 0 {
			t.Errorf("%v: %v", k, *readErr)
		}
		return
	}
	c := *got
	if c.At.LSN < acked {
		t.Errorf("%v: LSN %d, and %d was acknowledged before", k, c.At.LSN, acked)
	}
	if chain, ok := chains(t, h, last.r.Epoch())[c.At.LSN]; !ok || chain != c.At.Chain || c.Table.LSN() != c.At.LSN {
		t.Errorf("%v: read LSN %d of epoch %d, which the log never passed through (table at %d)", k, c.At.LSN, c.Epoch, c.Table.LSN())
	}
}

// chains returns the chain values of a log from its beginning.
func chains(t *testing.T, h *volumetest.Host, e cluster.Epoch) map[cluster.LSN]wal.Chain {
	t.Helper()
	c, err := volume.ReadCluster(h)
	if err != nil {
		t.Fatal(err)
	}
	all := map[cluster.LSN]wal.Chain{}
	var at wal.Chain
	_, err = wal.Scan(&epochdir.Dir{FS: h, Path: layout.EpochDir(e)}, wal.ScanOptions{Cluster: c.ID, FeatureLevel: volume.FeatureLevel, MaxEpoch: e},
		func(lsn cluster.LSN, x wal.Entry, _ wal.FrameHeader) error {
			at = at.Next(x.Header)
			all[lsn] = at
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCommittedStateBesideATakeover holds a reader at each of its calls, while a claimant does so much of a takeover,
// and then goes on, goes on late, dies, or begins just when the reader gives up.
func TestCommittedStateBesideATakeover(t *testing.T) {
	for name, profile := range map[string]func() volumetest.Profile{"local": volumetest.ProfileLocal, "network": volumetest.ProfileNetwork} {
		for what, k := range map[string]committedRun{
			"at once":            {rest: time.Millisecond},
			"slow":               {rest: committedPatience - 2*time.Second},
			"just before":        {rest: committedPatience - 50*time.Millisecond},
			"just after":         {rest: committedPatience + 20*time.Millisecond},
			"dies, another one":  {next: time.Second},
			"dies, another late": {next: committedPatience - 100*time.Millisecond},
			"dies, nobody":       {},
		} {
			k.profile = profile
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				for k.steps = 0; k.steps <= claimantSteps; k.steps++ {
					step := 2
					if testing.Short() {
						step = 5
					}
					for k.held = 1; ; k.held += step {
						reached := true
						synctest.Test(t, func(t *testing.T) { reached = k.run(t) })
						if !reached || t.Failed() {
							break
						}
					}
				}
			})
		}
	}
}

// TestCommittedReaderChangesNothing wants a reader to sync what it reads, and to change nothing.
func TestCommittedReaderChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		h := host(d, 20)
		got, err := volume.ReadCommitted(t.Context(), h, volume.CommittedOptions{})
		if err != nil || got.At != x.log.Position() || got.Unconfirmed != "" {
			t.Fatalf("%+v, %v", got, err)
		}
		synced := false
		for _, c := range h.Trace() {
			switch c.Op {
			case volumetest.OpWriteAt, volumetest.OpMkdir, volumetest.OpRename, volumetest.OpLink, volumetest.OpRemove, volumetest.OpReplaceWrite:
				t.Errorf("a reader did %v", c)
			case volumetest.OpSync:
				synced = synced || strings.Contains(c.Name, "/wal-")
			case volumetest.OpReadAt:
				if strings.HasSuffix(c.Name, "/"+layout.FenceName) && c.Offset == 0 && synced {
					return
				}
			}
		}
		t.Error("the fence was not read after the log was synced")
	})
}

// TestCommittedStateIsDurable wants what was read to be there after a power loss.
func TestCommittedStateIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		// The primary has written a frame and not synced it yet.
		x.makeRoom()
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "epochs/", 1, volumetest.Pause(gate)))
		var got *volume.Committed
		var err error
		var after []*volumetest.Disk
		read := make(chan struct{})
		go func() {
			defer close(read)
			<-gate.Arrived()
			got, err = volume.ReadCommitted(t.Context(), host(d, 20), volume.CommittedOptions{})
			for seed := range uint64(20) {
				after = append(after, d.DurableClone(rand.New(rand.NewPCG(seed, 1))))
			}
			gate.Resume()
		}()
		x.fill(1)
		<-read
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range after {
			y := begin(t, d, 2)
			if y.a.End.LSN < got.At.LSN {
				t.Fatalf("LSN %d was read, and after a power loss the log ends at %d", got.At.LSN, y.a.End.LSN)
			}
			y.kill()
		}
	})
}

// TestCommittedStateOfAVolumeAtRest reads volumes without servers.
func TestCommittedStateOfAVolumeAtRest(t *testing.T) {
	for name, profile := range map[string]func() volumetest.Profile{"local": volumetest.ProfileLocal, "network": volumetest.ProfileNetwork} {
		bubble(t, name, func(t *testing.T) {
			d := volumetest.New(1)
			if _, err := initialise(d.Host(9, profile())); err != nil {
				t.Fatal(err)
			}
			read := func() (*volume.Committed, error) {
				return volume.ReadCommitted(t.Context(), d.Host(20, profile()), volume.CommittedOptions{Wait: committedPatience})
			}
			if got, err := read(); err != nil || got.Epoch != 0 || got.At.LSN != 0 {
				t.Errorf("a new volume: %+v, %v", got, err)
			}
			s := startOn(t, d.Host(1, profile()), 1)
			x, err := s.takeOver(s.claim(), nil)
			if err != nil {
				t.Fatal(err)
			}
			x.fill(3)
			end := x.log.Position()
			x.kill()
			got, err := read()
			if err != nil || got.At != end {
				t.Fatalf("after a kill: %+v, %v", got, err)
			}
			if unconfirmed := got.Unconfirmed != ""; unconfirmed != d.Host(20, profile()).Kind().Network {
				t.Errorf("unconfirmed %v: %q", unconfirmed, got.Unconfirmed)
			}
			if err := d.Write(fmt.Sprintf("%s/%s", layout.EpochDir(1), layout.FenceName), layout.FenceSpacing, []byte("damaged")); err != nil {
				t.Fatal(err)
			}
			if _, err := read(); !errors.Is(err, volume.ErrNotCommitted) {
				t.Errorf("with a damaged START: %v", err)
			}
		})
	}
}

// TestCanaryConfirms wants a reader on a network filesystem to wait for a beat of the primary's canary only.
func TestCanaryConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		if _, err := initialise(d.Host(9, volumetest.ProfileNetwork())); err != nil {
			t.Fatal(err)
		}
		s := startOn(t, d.Host(1, volumetest.ProfileNetwork()), 1)
		x, err := s.takeOver(s.claim(), nil)
		if err != nil {
			t.Fatal(err)
		}
		x.fill(3)
		beat := func() {
			if err := s.vol.WriteCanary(volume.Canary{Epoch: x.r.Epoch(), Value: uint64(time.Now().UnixMilli()), At: x.log.Position()}); err != nil {
				t.Error(err)
			}
		}
		beat()
		x.fill(1)
		time.AfterFunc(time.Second, beat)
		began := time.Now()
		got, err := volume.ReadCommitted(t.Context(), d.Host(20, volumetest.ProfileNetwork()), volume.CommittedOptions{})
		if err != nil || got.At != x.log.Position() || got.Unconfirmed != "" {
			t.Fatalf("%+v, %v", got, err)
		}
		if waited := time.Since(began); waited < time.Second || waited > 2*time.Second {
			t.Errorf("it took %v", waited)
		}
	})
}
