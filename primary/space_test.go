// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestFullVolumeRefusesAdmissionsAndTakesReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		time.Sleep(time.Second) // the next segment is ready
		d.SetCapacity(d.Used())
		var held []locktable.Outcome
		var refused locktable.Outcome
		for i := range 100 {
			if refused = x.do(acquire("c1", cluster.RequestID(i+1), cluster.LockName(fmt.Sprintf("l/%d", i)), 0)); refused.Status != cluster.StatusOK {
				break
			}
			held = append(held, refused)
			time.Sleep(100 * time.Millisecond)
		}
		if refused.Status != cluster.StatusStorageUnavailable || !strings.Contains(refused.Message, "full") {
			t.Fatalf("after %d grants: %v %s", len(held), refused.Status, refused.Message)
		}
		if !x.p.Full() {
			t.Error("nobody is told that the volume is full")
		}
		x.ok(release("c1", 201, held[0].Lock, held[0].Token))
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "operator", ID: 1, Lock: held[1].Lock, Actor: "me", Reason: "the disk is full"})
		x.sees(&locktable.Request{Op: locktable.OpCancel, Client: "c2", Target: 9}, cluster.StatusCancelled)
		x.keepAlive("c1", len(held)-2)
		x.sees(acquire("c1", 203, "more", 0), cluster.StatusStorageUnavailable)
		d.SetCapacity(0)
		x.eventually("admission", func() bool { return x.do(acquire("c1", 204, "more", 0)).Status == cluster.StatusOK })
		x.eventually("space", func() bool { return !x.p.Full() })
		if x.p.State() != primary.StateServing {
			t.Error("a full disk ended the term")
		}
	})
}

// What there is certainly no room for is refused before it is committed, also the first
// append to a file.
func TestAppendToAFullVolumeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		d.SetCapacity(d.Used() + 4096)
		if err := x.vol.SampleSpace(); err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("x", 5000)
		if out := x.sees(appendTo("c1", 2, "l", g.Token, "f", large), cluster.StatusStorageUnavailable); !strings.Contains(out.Message, "no space left on the volume") {
			t.Errorf("it is told %q", out.Message)
		}
		if _, bound := x.file("f"); bound {
			t.Error("something was done")
		}
		x.ok(appendTo("c1", 3, "l", g.Token, "g", "small\n"))
		x.sees(appendTo("c1", 4, "l", g.Token, "f", large), cluster.StatusStorageUnavailable)
		d.SetCapacity(0)
		time.Sleep(6 * time.Second) // nobody has looked since: what was seen then says nothing
		x.ok(appendTo("c1", 5, "l", g.Token, "f", large))
	})
}

func TestAppendWaitsForSpaceOnceItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		time.Sleep(500 * time.Millisecond)
		d.SetCapacity(d.Used())
		large := strings.Repeat("x", 6000)
		pending := x.later(appendTo("c1", 4, "l", g.Token, "f", large))
		time.Sleep(time.Second)
		x.unanswered(pending, "before it was written")
		if got := x.p.FileTrouble(); len(got) != 1 || !strings.Contains(got[0], "protected file f: ") {
			t.Errorf("of a file that waits is told: %q", got)
		}
		x.sees(appendTo("c1", 5, "l", g.Token, "f", "three\n"), cluster.StatusStorageUnavailable)
		d.SetCapacity(0)
		if out := <-pending; out.Status != cluster.StatusOK || out.Offset != 8 {
			t.Errorf("the pending append: %v at %d", out.Status, out.Offset)
		}
		if got := x.p.FileTrouble(); got != nil {
			t.Errorf("of a file that works is told: %q", got)
		}
		if got := content(d, "f"); got != "one\ntwo\n"+large {
			t.Errorf("file has %d bytes", len(got))
		}
	})
}

func TestCheckpointOnAFullDiskIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{CheckpointBytes: 1, ViewInterval: time.Second})
		defer x.end()
		time.Sleep(time.Second)
		d.SetCapacity(d.Used())
		before := checkpoints(d, 1)
		x.ok(acquire("c1", 1, "l", 0))
		time.Sleep(10 * time.Second)
		if got := checkpoints(d, 1); !slices.Equal(got, before) {
			t.Errorf("checkpoints on a full disk: %v after %v", got, before)
		}
		d.SetCapacity(0)
		time.Sleep(2 * time.Minute)
		if got := checkpoints(d, 1); slices.Equal(got, before) {
			t.Error("no checkpoint after the space came back")
		}
		if x.p.State() != primary.StateServing {
			t.Error("a full disk ended the term")
		}
	})
}

// checkpoints are the names of a term's complete checkpoints.
func checkpoints(d *volumetest.Disk, epoch int) (names []string) {
	dir := fmt.Sprintf("epochs/%010d/checkpoint-", epoch)
	for name := range d.Files(dir) {
		if strings.HasSuffix(name, "/lock_state.json") && !strings.Contains(name, ".tmp/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestReadOnlyVolumeEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		d.SetReadOnly(true)
		x.sees(acquire("c1", 2, "m", 0), cluster.StatusUnknown)
		x.sees(acquire("c1", 3, "n", 0), cluster.StatusSecondaryMode)
		if err := x.end(); !errors.Is(err, volume.ErrDeposed) || !errors.Is(err, syscall.EROFS) {
			t.Errorf("ended with %v", err)
		}
		v, err := volume.Open(d.Host(2, volumetest.ProfileLocal()), volume.Options{Server: 2, Random: chance{}})
		if err == nil {
			if _, err = v.Prepare(t.Context()); err == nil {
				t.Error("a claim was prepared on a volume that takes no writes")
			}
			v.Close() //nolint:errcheck // read-only
		}
		d.SetReadOnly(false)
		y := serve(t, d, 3, primary.Options{})
		defer y.end()
		if _, live := y.remaining("l", g.Token); !live {
			t.Error("the grant is lost")
		}
	})
}

// chance is a source of nonces that nobody draws twice from.
type chance struct{}

func (chance) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i)
	}
	return len(b), nil
}
