// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// Where there are no hard links a takeover copies what it adopts. However much that is, no call of
// it takes as long as one that hangs: another server would take over from it, and copy the same.
func TestAdvATakeoverThatCopiesDoesNotLookLikeOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3000)
		x.checkpoint()
		x.kill()
		s := start(t, d, 2)
		r := s.claim()
		s.host.SetHook(func(c volumetest.Call) volumetest.Action {
			switch c.Op {
			case volumetest.OpLink:
				return volumetest.FailBefore(syscall.EPERM)
			case volumetest.OpWriteAt:
				time.Sleep(time.Duration(c.Length) * 10 * time.Microsecond) // 100 kB a second
			}
			return volumetest.Proceed()
		})
		longest := time.Duration(0)
		over := make(chan struct{})
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for {
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
					longest = max(longest, r.Unanswered(time.Now()))
				}
			}
		}()
		if _, err := s.takeOver(r, nil); err != nil {
			t.Error(err)
		}
		close(over)
		<-watched
		if most := cluster.DefaultTiming().StorageTimeout; longest > most {
			t.Errorf("a call took %v; after %v another server takes over", longest, most)
		}
	})
}
