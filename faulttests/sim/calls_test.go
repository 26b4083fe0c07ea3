// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// What one step asks of a network filesystem. On NFS each of these calls is one message to the
// server, save what asks for attributes that another answer brought along. Syncs are not counted:
// what they are for was written past the caches, and is at the server's disk already.
func TestCallsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOn(t, volumetest.ProfileNetwork(), 1, 0)
		first, _ := c.one(t, "start")
		c.grant(t, "warm")
		time.Sleep(100 * time.Second)
		term := c.server(first)
		token := cluster.Token(0)
		id := cluster.RequestID(0)
		do := func(q locktable.Request) func() {
			return func() {
				id++
				q.ID, q.Client, q.Lock, q.TTL, q.Token = id, "c", "l", time.Minute, token
				q.CRC = crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli))
				out, err := term.node.Do(t.Context(), &q)
				if err != nil || out.Status != cluster.StatusOK {
					t.Fatalf("%v: %v, %v", q.Op, out.Status, err)
				}
				token = max(token, out.Token)
			}
		}
		for _, step := range []struct {
			name string
			at   cluster.ServerID
			run  func()
			want string
		}{
			{"ten idle seconds of the primary", first, idle, "close 13, lstat 30, open 13, readat 33, space 10, stat 20, writeat 20"},
			{"ten idle seconds of a replica", first%3 + 1, idle, "close 20, lstat 10, open 22, readat 30, space 10, writeat 10"},
			{"acquire", first, do(locktable.Request{Op: locktable.OpAcquire}), "readat 1, stat 1, writeat 1"},
			{"first append to a file", first, do(locktable.Request{Op: locktable.OpAppend, File: "f", Data: []byte("one\n")}), "lstat 1, open 2, readat 2, stat 8, writeat 2"},
			{"append to a file that rested", first, do(locktable.Request{Op: locktable.OpAppend, File: "f", Data: []byte("two\n")}), "lstat 1, readat 3, stat 5, writeat 2"},
			{"release", first, do(locktable.Request{Op: locktable.OpRelease}), "readat 1, stat 1, writeat 1"},
		} {
			c.roomInTheLog(t, term)
			// What follows a step is no part of it, nor what comes at whole milliseconds.
			time.Sleep(3*time.Second + 50*time.Millisecond + 137*time.Microsecond)
			host := c.server(step.at).host
			before := len(host.Trace())
			step.run()
			if got := callsOf(host.Trace()[before:]); got != step.want {
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
		}
		c.End()
		c.Shutdown()
	})
}

// roomInTheLog writes until a segment has just begun, and a checkpoint not long ago: the next record
// begins neither.
func (c *Cluster) roomInTheLog(t *testing.T, term *server) {
	t.Helper()
	const few = 6 // records: half of what lies between two checkpoints
	began, since := false, few+1
	for !began || since > few {
		before := len(term.host.Trace())
		c.grant(t, cluster.LockName(fmt.Sprint("room", before)))
		time.Sleep(100 * time.Millisecond) // the checkpoint is written in the background
		began, since = false, since+1
		for _, k := range term.host.Trace()[before:] {
			switch {
			case k.Op != volumetest.OpRename:
			case strings.HasSuffix(k.Name, "/"+wal.NextName):
				began = true
			case strings.Contains(k.Name, "/checkpoint-"):
				since = 0
			}
		}
	}
}

func idle() { time.Sleep(10 * time.Second) }

// callsOf counts calls by what they are.
func callsOf(calls []volumetest.Call) string {
	count := map[string]int{}
	for _, k := range calls {
		if !strings.Contains(k.Op, "sync") {
			count[k.Op]++
		}
	}
	var all []string
	for _, op := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprintf("%s %d", op, count[op]))
	}
	return strings.Join(all, ", ")
}
