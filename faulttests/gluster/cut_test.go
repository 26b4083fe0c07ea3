// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/gluster"
)

const (
	// cutWatch is how long a reader waits for the new data.
	cutWatch = 20 * time.Second
	// cutStale bounds how long a reader that looks at the path may see old data:
	// cluster.post-op-delay-secs, one second, and what the looks take.
	cutStale = 2 * time.Second
	// cutFiles is how many files are watched in each way. About a third of them is
	// read from the brick that is cut off.
	cutFiles = 9
)

// TestCutReads asks what one mount still reads when another one writes that has
// just been cut from a brick, so that the write reaches only the two others. The
// reader keeps its descriptor open, as a primary does with its fence.
//
// Through the descriptor alone it may read old data for as long as nobody heals
// the brick; statx of the descriptor does not change that. With a look at the path,
// as the volume has once a second, old data must be over soon. It takes a minute.
func TestCutReads(t *testing.T) {
	v := start(t, gluster.Options{})
	const writer, reader, brick = 0, 1, 1
	type watched struct {
		name  string
		look  func(f *os.File) error
		bound time.Duration
	}
	kinds := []watched{
		{"descriptor only", func(*os.File) error { return nil }, cutWatch + time.Second},
		{"statx of the descriptor", statxSync, cutWatch + time.Second},
		{"stat of the path", func(f *os.File) error { _, err := os.Stat(f.Name()); return err }, cutStale},
	}
	var w, r []*os.File
	for i := range cutFiles * len(kinds) {
		name := fmt.Sprint("fence-", i)
		w = append(w, openDirect(t, v.Mounts()[writer], name, os.O_CREATE|os.O_RDWR|unix.O_DSYNC))
		writeBlock(t, w[i], 0)
		r = append(r, openDirect(t, v.Mounts()[reader], name, os.O_RDONLY))
		readBlock(t, r[i])
	}
	must(t, v.CutBrick(writer, brick))
	took := make([]time.Duration, len(w)) // until the reader saw it
	var all sync.WaitGroup
	for i := range w {
		all.Go(func() {
			writeBlock(t, w[i], 1)
			took[i] = untilSeen(t, r[i], kinds[i%len(kinds)].look)
		})
	}
	all.Wait()
	for k, kind := range kinds {
		var each []time.Duration
		for i := k; i < len(took); i += len(kinds) {
			each = append(each, took[i])
		}
		slices.Sort(each)
		t.Logf("%s: %v", kind.name, each)
		if worst := each[len(each)-1]; worst > kind.bound {
			t.Errorf("%s: old data for %v, want at most %v", kind.name, worst, kind.bound)
		}
	}
	must(t, v.JoinBrick(writer, brick), v.AwaitHealed())
}

// untilSeen reads until the new block is there.
func untilSeen(t *testing.T, f *os.File, look func(*os.File) error) time.Duration {
	t.Helper()
	began := time.Now()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for time.Since(began) < cutWatch {
		if err := look(f); err != nil {
			t.Error(err)
		}
		if readBlock(t, f) == 1 {
			break
		}
		<-again.C
	}
	return time.Since(began).Round(time.Millisecond)
}

func statxSync(f *os.File) error {
	var st unix.Statx_t
	return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
}
