// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/gluster"
)

// TestStaleness reads on one mount what was done on another a moment ago. The
// defaults must show old data, or the measurement measures nothing; with our
// options none may be old. It takes half a minute.
func TestStaleness(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tuning gluster.Tuning
		stale  bool
	}{
		{"defaults", gluster.Defaults, true},
		{"ours", gluster.Ours, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := start(t, gluster.Options{Tuning: tt.tuning})
			renames, appends := staleRenames(t, v.Mounts()), staleAppends(t, v.Mounts(), *rounds)
			t.Logf("stale: %d of %d renames, %d of %d appends", renames, *rounds, appends, *rounds)
			if stale := renames+appends > 0; stale != tt.stale {
				t.Errorf("stale reads: %v, want %v", stale, tt.stale)
			}
		})
	}
}

// staleRenames replaces a file on one mount and reads it on another, which had
// read it before.
func staleRenames(t *testing.T, mounts [gluster.Replicas]string) (stale int) {
	t.Helper()
	var took []time.Duration
	for i := range *rounds {
		from, at := mounts[i%gluster.Replicas], mounts[(i+1)%gluster.Replicas]
		content := fmt.Appendf(nil, "round %d", i)
		temp := filepath.Join(from, "replacing")
		began := time.Now()
		must(t, os.WriteFile(temp, content, 0o644), os.Rename(temp, filepath.Join(from, "replaced")))
		took = append(took, time.Since(began))
		got, err := os.ReadFile(filepath.Join(at, "replaced"))
		if err != nil || !bytes.Equal(got, content) {
			stale++
		}
	}
	t.Logf("write and rename: median %v", median(took))
	return stale
}

// staleAppends appends on one mount, syncs, and reads through a descriptor that
// another mount keeps open.
func staleAppends(t *testing.T, mounts [gluster.Replicas]string, rounds int) (stale int) {
	t.Helper()
	w, err := os.Create(filepath.Join(mounts[0], "log"))
	must(t, err)
	defer w.Close() //nolint:errcheck // each write was synced
	r, err := os.Open(filepath.Join(mounts[1], "log"))
	must(t, err)
	defer r.Close() //nolint:errcheck // it was only read
	var took []time.Duration
	for i := range rounds {
		content := fmt.Appendf(nil, "round %06d", i)
		began := time.Now()
		_, err := w.Write(content)
		must(t, err, unix.Fdatasync(int(w.Fd())))
		took = append(took, time.Since(began))
		got := make([]byte, len(content))
		if _, err := r.ReadAt(got, int64(i*len(content))); err != nil || !bytes.Equal(got, content) {
			stale++
		}
	}
	t.Logf("append and fdatasync: median %v", median(took))
	return stale
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// TestFacts tries what Holdfast rests on besides fresh reads, between mounts
// with our options. It takes a minute.
func TestFacts(t *testing.T) {
	v := start(t, gluster.Options{})
	t.Run("exclusive rename", func(t *testing.T) { raceRenames(t, v.Mounts()) })
	t.Run("inode numbers", func(t *testing.T) { sameInodes(t, v.Mounts()) })
	t.Run("direct I/O", func(t *testing.T) { directIO(t, v.Mounts()) })
	t.Run("flock", func(t *testing.T) { flockAcross(t, v.Mounts()) })
}

// raceRenames lets two mounts rename a prepared directory each onto one name at
// once, as two claimants do. One wins, and the loser's stays whole.
func raceRenames(t *testing.T, mounts [gluster.Replicas]string) {
	wins := [2]int{}
	errs := map[error]int{}
	for i := range *rounds {
		var prepared [2]string
		for k := range prepared {
			prepared[k] = filepath.Join(mounts[k], fmt.Sprintf("prepared-%d-%d", i, k))
			must(t, os.Mkdir(prepared[k], 0o755), os.WriteFile(filepath.Join(prepared[k], "claim"), fmt.Append(nil, k), 0o644))
		}
		name := fmt.Sprintf("epoch-%d", i)
		got := atOnce(func(k int) error { return unix.Rename(prepared[k], filepath.Join(mounts[k], name)) })
		winner := slices.Index(got[:], nil)
		if winner < 0 || got[1-winner] == nil {
			t.Fatalf("round %d: the renames say %v", i, got)
		}
		wins[winner]++
		errs[got[1-winner]]++
		for _, m := range mounts {
			if b, err := os.ReadFile(filepath.Join(m, name, "claim")); err != nil || string(b) != fmt.Sprint(winner) {
				t.Errorf("round %d: %s shows the claim %q (%v), want that of %d", i, m, b, err, winner)
			}
			loser := filepath.Join(m, filepath.Base(prepared[1-winner]), "claim")
			if b, err := os.ReadFile(loser); err != nil || string(b) != fmt.Sprint(1-winner) {
				t.Errorf("round %d: the loser's %s holds %q (%v)", i, loser, b, err)
			}
			if _, err := os.Lstat(filepath.Join(m, filepath.Base(prepared[winner]))); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("round %d: the winner's old name on %s: %v", i, m, err)
			}
		}
	}
	t.Logf("%d rounds: the mounts won %v; the losers were told %v", *rounds, wins, errs)
}

// atOnce calls f(0) and f(1) at one moment.
func atOnce(f func(int) error) (errs [2]error) {
	begin, other := make(chan struct{}), make(chan error)
	go func() {
		<-begin
		other <- f(1)
	}()
	close(begin)
	errs[0] = f(0)
	errs[1] = <-other
	return errs
}

func sameInodes(t *testing.T, mounts [gluster.Replicas]string) {
	for i := range 50 {
		name := fmt.Sprintf("inode-%d", i)
		must(t, os.WriteFile(filepath.Join(mounts[i%gluster.Replicas], name), nil, 0o644))
		var numbers []uint64
		for _, m := range mounts {
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(m, name), &st))
			numbers = append(numbers, st.Ino)
		}
		if len(slices.Compact(numbers)) != 1 {
			t.Errorf("%s has the inode numbers %v", name, numbers)
		}
	}
}

// directIO writes and reads blocks past all caches, in the alignment that the volume uses.
func directIO(t *testing.T, mounts [gluster.Replicas]string) {
	w := openDirect(t, mounts[0], "direct", os.O_CREATE|os.O_RDWR|unix.O_DSYNC)
	r := openDirect(t, mounts[2], "direct", os.O_RDONLY)
	stale := 0
	for i := range *rounds {
		if writeBlock(t, w, byte(i)); readBlock(t, r) != byte(i) {
			stale++
		}
	}
	if stale > 0 {
		t.Errorf("%d of %d direct reads are stale", stale, *rounds)
	}
}
