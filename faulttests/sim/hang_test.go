// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// hangs says which calls of server 2 do not come back.
type hangs func(volumetest.Call) bool

func ofEpochs(op, part string) hangs {
	return func(k volumetest.Call) bool {
		return k.Op == op && strings.HasPrefix(k.Name, "epochs/") && strings.Contains(k.Name, part)
	}
}

// A takeover in which one call never comes back, while everything else on the share answers
// there and elsewhere: another server takes over.
func TestTakeoverThatHangsIsTakenOver(t *testing.T) {
	for name, hang := range map[string]hangs{
		"naming its epoch":  func(k volumetest.Call) bool { return k.Op == volumetest.OpRename && strings.Contains(k.Name, ".claim") },
		"setting a fence":   ofEpochs(volumetest.OpWriteAt, "/fence"),
		"reading a segment": ofEpochs(volumetest.OpReadAt, "wal-"),
		"writing its log":   ofEpochs(volumetest.OpWriteAt, "wal-"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if !playHang(t, hang) {
					t.Error("no call hung")
				}
			})
		})
	}
}

// TestEveryCallThatHangs has every call of a takeover, and of the term that it becomes, hang
// for ever, one at a time, on a host where everything else answers: another server takes over,
// or nothing depends on it, and the clients' work gets done.
func TestEveryCallThatHangs(t *testing.T) {
	first := int64(1)
	if *only != 0 {
		first = int64(*only)
	}
	for n := first; ; n += int64(*stride) {
		var reached bool
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				reached = playHang(t, func(k volumetest.Call) bool {
					return strings.HasPrefix(k.Name, "epochs") && calls.Add(1) == n
				})
			})
		})
		if !reached || t.Failed() || *only != 0 {
			t.Logf("%d calls", n-1)
			break
		}
	}
}

// playHang kills the first primary, has calls of its successor hang, and says whether one did.
func playHang(t *testing.T, hang hangs) bool {
	const rounds = 6
	c := newCluster(t, 1, rounds)
	first, _ := c.one(t, "start")
	time.Sleep(time.Second)
	gate := volumetest.NewGate()
	var where atomic.Pointer[string]
	c.server(2).host.SetHook(func(k volumetest.Call) volumetest.Action {
		if hang(k) {
			at := k.String()
			where.CompareAndSwap(nil, &at)
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	})
	c.Kill(first)
	c.one(t, "with the hang")
	done := func() bool { return c.progress.Load() >= int32(3*rounds) }
	poll(func() bool { return done() || where.Load() != nil })
	began := time.Now()
	for !done() && time.Since(began) < 2*healing {
		time.Sleep(10 * time.Millisecond)
	}
	at := where.Load()
	if at != nil && !done() {
		t.Errorf("a majority lives and reads the whole share, but %v after a call hung the work is not done: %s", time.Since(began), *at)
	}
	time.Sleep(2 * c.Timing.StorageTimeout)
	c.one(t, "while it hangs")
	if x := c.server(2); x.node.Role() == election.RoleFencing {
		t.Errorf("server 2 hangs in %s and says that it takes over", *at)
	}
	gate.Resume()
	c.one(t, "when it goes on")
	c.finish(t, rounds)
	return at != nil
}

// A server is told to stop while its volume hangs: it gives its process up.
func TestServerOnAHungVolumeEnds(t *testing.T) {
	for name, after := range map[string]cluster.ServerID{"the primary": 0, "a replica": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 0)
				first, _ := c.one(t, "start")
				time.Sleep(time.Second)
				id := first + after
				x := c.server(id)
				gate := c.Hang(id)
				time.Sleep(3 * time.Second)
				told := time.Now()
				x.stop(errors.New("told to stop"))
				select {
				case <-x.done:
					t.Error("it has ended, in a call that hangs")
				case err := <-x.stuck:
					if took := time.Since(told); took > c.Timing.StorageTimeout+3*time.Second {
						t.Errorf("gave up %v after it was told to stop: %v", took, err)
					}
				case <-time.After(5 * time.Minute):
					t.Errorf("five minutes after it was told to stop %s still waits for a call that hangs in the filesystem", name)
				}
				gate.Resume()
				<-x.done
				c.Terminate(id)
				c.End()
				c.Shutdown()
			})
		})
	}
}
