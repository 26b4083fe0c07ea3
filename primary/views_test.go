// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// view is what a person's tool reads.
type view struct {
	Epoch    cluster.Epoch `json:"epoch"`
	LSN      cluster.LSN   `json:"lsn"`
	Taken    time.Time     `json:"taken"`
	Complete bool          `json:"complete"`
	Entities []struct {
		Lock *struct {
			Name cluster.LockName `json:"name"`
		} `json:"lock"`
	} `json:"entities"`
}

func readView(t *testing.T, d *volumetest.Disk) (v view) {
	t.Helper()
	b, err := d.ReadFile("lock_state.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("lock_state.json: %v in %s", err, b)
	}
	return v
}

func (v view) locks() (names []cluster.LockName) {
	for _, e := range v.Entities {
		if e.Lock != nil {
			names = append(names, e.Lock.Name)
		}
	}
	return names
}

func TestViewsFollowTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c1", 1, "b", 0))
		a := x.ok(acquire("c1", 2, "a", 0))
		time.Sleep(6 * time.Second)
		if v := readView(t, d); !v.Complete || time.Since(v.Taken) > 7*time.Second {
			t.Errorf("the view says that it is of %v, complete %v", v.Taken, v.Complete)
		}
		if v := readView(t, d); v.Epoch != 1 || v.LSN < a.LSN || !slices.Equal(v.locks(), []cluster.LockName{"a", "b"}) {
			t.Errorf("the view: epoch %d, LSN %d, locks %v", v.Epoch, v.LSN, v.locks())
		}
		requests, err := d.ReadFile("processed_requests.log")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(requests) {
			if !json.Valid(line) {
				t.Errorf("processed_requests.log holds %q", line)
			}
		}
		x.ok(release("c1", 3, "a", a.Token))
		time.Sleep(6 * time.Second)
		if got := readView(t, d).locks(); !slices.Equal(got, []cluster.LockName{"b"}) {
			t.Errorf("after the release: %v", got)
		}
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		time.Sleep(6 * time.Second)
		if v := readView(t, d); v.Epoch != 2 {
			t.Errorf("the view is of epoch %d", v.Epoch)
		}
	})
}

// While records are committed all the time, both views are at most a second behind, also
// beside a checkpoint that hangs.
func TestViewsAreCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		h := d.Host(1, volumetest.ProfileLocal())
		x := claimOn(t, h, 1, volume.Options{}, primary.Options{CheckpointBytes: 64 << 10}).serving()
		for i := range 200 {
			x.ok(acquire("c0", cluster.RequestID(i+1), cluster.LockName(fmt.Sprint("many/", i)), 0))
		}
		gate := volumetest.NewGate()
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			switch {
			case strings.Contains(c.Name, "checkpoint-"):
				return volumetest.Pause(gate)
			case c.Op == volumetest.OpDatasync || c.Op == volumetest.OpSync:
				time.Sleep(5 * time.Millisecond)
			}
			return volumetest.Proceed()
		})
		time.Sleep(2 * time.Second)
		id := cluster.RequestID(1)
		oldest := map[string]time.Duration{}
		type told struct {
			lsn cluster.LSN
			at  time.Time
		}
		var all []told
		for began := time.Now(); time.Since(began) < 20*time.Second; id += 2 {
			out := x.ok(acquire("c1", id, "l", 0))
			x.ok(release("c1", id+1, "l", out.Token))
			all = append(all, told{out.LSN, time.Now()})
			for _, name := range []string{"lock_state.json", "processed_requests.log"} {
				b, err := d.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := bytes.Cut(b, []byte("\n"))
				var v view
				if err := json.Unmarshal(append(bytes.TrimRight(first, ",}"), '}'), &v); err != nil || !v.Complete || v.Epoch != 1 {
					t.Fatalf("%s begins with %s: %v", name, first, err)
				}
				i := slices.IndexFunc(all, func(x told) bool { return x.lsn > v.LSN })
				if i >= 0 {
					oldest[name] = max(oldest[name], time.Since(all[i].at))
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		for name, behind := range oldest {
			if behind > time.Second || behind < 300*time.Millisecond {
				t.Errorf("%s was %v behind", name, behind)
			}
		}
		gate.Resume()
		x.end() //nolint:errcheck // it is stopped
	})
}

// The views of a table that is not small are written, too.
func TestViewsOfALargeTableAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		const n = 6000
		for i := range n / 100 {
			var qs []*serving.AsyncRequest
			for j := range 100 {
				q := acquire("c0", cluster.RequestID(100*i+j+1), cluster.LockName(fmt.Sprint("many/", 100*i+j)), 0)
				qs = append(qs, &serving.AsyncRequest{Request: *q, To: nobody{}, Abandoned: new(atomic.Bool)})
			}
			x.p.Submit(qs)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if got := len(readView(t, d).locks()); got != n {
			t.Errorf("the view has %d locks of %d", got, n)
		}
	})
}

// nobody is told outcomes that nobody wants.
type nobody struct{}

func (nobody) Answer(*serving.AsyncRequest, locktable.Outcome) {}
func (nobody) Flush()                                          {}

// Views that cannot be written depose nobody, and are written again.
func TestViewsThatCannotBeWrittenAreTriedAgain(t *testing.T) {
	for name, err := range map[string]error{"full": syscall.ENOSPC, "errors": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end() //nolint:errcheck // it is stopped
				var tries atomic.Int64
				x.host.SetHook(func(c volumetest.Call) volumetest.Action {
					if c.Op == volumetest.OpReplaceCreate {
						tries.Add(1)
						return volumetest.FailBefore(err)
					}
					return volumetest.Proceed()
				})
				time.Sleep(10 * time.Minute)
				g := x.ok(acquire("c1", 1, "l", 0))
				time.Sleep(time.Minute)
				if n := tries.Load(); n < 5 || n > 30 {
					t.Errorf("%d tries in 11 minutes", n)
				}
				x.host.SetHook(nil)
				time.Sleep(time.Minute)
				if v := readView(t, d); v.LSN < g.LSN {
					t.Errorf("the view is at LSN %d", v.LSN)
				}
			})
		})
	}
}

func TestViewsOfAnotherTermAreWrittenAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*volumetest.Disk) error
	}{
		{"removed", func(d *volumetest.Disk) error { return d.Remove("lock_state.json") }},
		{"garbage", func(d *volumetest.Disk) error { return d.Write("lock_state.json", 0, []byte("garbage\n")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end()
				time.Sleep(6 * time.Second)
				readView(t, d)
				if err := test.spoil(d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Second)
				if v := readView(t, d); v.Epoch != 1 {
					t.Errorf("the view is of epoch %d", v.Epoch)
				}
			})
		})
	}
}

// TestNoPrimaryRemovesAViewThatItWrites: what it removes was left by others.
func TestNoPrimaryRemovesAViewThatItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		h := d.Host(1, volumetest.ProfileLocal())
		list, view := volumetest.NewGate(), volumetest.NewGate()
		var removed atomic.Int32
		h.SetHook(volumetest.Script(
			volumetest.AtOp(volumetest.OpReadDir, ".", 1, volumetest.Pause(list)),
			volumetest.AtOp(volumetest.OpReplaceRename, ".", 1, volumetest.Pause(view)),
			func(c volumetest.Call) volumetest.Action {
				if c.Op == volumetest.OpRemove && strings.HasPrefix(c.Name, ".") {
					removed.Add(1)
				}
				return volumetest.Proceed()
			}))
		x := serveLarge(t, h, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		time.Sleep(time.Second)
		list.Resume()
		time.Sleep(time.Second)
		view.Resume()
		time.Sleep(10 * time.Second)
		if n := removed.Load(); n > 0 {
			t.Errorf("it removed %d of its own", n)
		}
		readView(t, d)
	})
}

// What primaries and servers leave that are killed while they replace a file is removed, and
// nothing else is.
func TestTemporariesOfKilledProcessesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		left := []string{".lock_state.json1234567890", ".processed_requests.log1234567890", "servers/.1.probe1234567890"}
		others := []string{".lock_state.json.swp", ".lock_state.json", "lock_state.json1", "servers/.2.probe1234567890", "servers/.1.probe.old"}
		for _, name := range slices.Concat(left, others) {
			if err := d.Write(name, 0, []byte("what was written of it")); err != nil {
				t.Fatal(err)
			}
		}
		v, err := volume.Open(d.Host(8, volumetest.ProfileLocal()), volume.Options{Server: 1, Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.RemoveLeftovers(); err != nil { // as its server does when it starts
			t.Fatal(err)
		}
		v.Close() //nolint:errcheck // it was only asked to clean up
		x := serve(t, d, 1, primary.Options{})
		time.Sleep(10 * time.Second)
		for _, name := range left {
			if _, err := d.ReadFile(name); err == nil {
				t.Errorf("%s stays for ever", name)
			}
		}
		for _, name := range others {
			if _, err := d.ReadFile(name); err != nil {
				t.Errorf("%s is nobody's temporary: %v", name, err)
			}
		}
		x.end() //nolint:errcheck // it is stopped
	})
}
