// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A server that has another timing is told of in status, and once in the log, as long as it has it.
func TestOtherTimingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := zerolog.SyncWriter(&said)
		n, _, peer := followsLogged(t, func(*volumetest.Disk) {}, zerolog.New(log))
		warned := func() bool {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			return strings.Contains(strings.Join(n.Status().Servers[1].Warnings, "\n"), "SERVER 1 HAS ANOTHER TIMING")
		}
		if warned() { // of an older version
			t.Error("a server that says nothing of its timing")
		}
		peer.timing.Store(cluster.DefaultTiming().Hash())
		if warned() {
			t.Error("the same timing")
		}
		other := cluster.DefaultTiming()
		other.PushAckTimeout++
		peer.timing.Store(other.Hash())
		if !warned() {
			t.Error("status does not tell of another timing")
		}
		if got := strings.Count(said.String(), "HAS ANOTHER TIMING"); got != 1 {
			t.Errorf("the log tells it %d times", got)
		}
		peer.timing.Store(cluster.DefaultTiming().Hash())
		if warned() {
			t.Error("status tells what is over")
		}
	})
}
