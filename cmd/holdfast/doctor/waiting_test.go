// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// asNFS returns a table of mounts in which a directory is a mount of NFS with these options.
func asNFS(t *testing.T, dir, options string) (path string) {
	t.Helper()
	device, err := deviceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "mountinfo")
	line := strings.NewReplacer("0:44", device, "/mnt/share", dir).Replace(nfsLine("vers=4.2,", options)) + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// graceOf stands in for flock while an NFS server is in its grace period.
func graceOf(wait time.Duration) func(fd, how int) error {
	ends := time.Now().Add(wait)
	return func(fd, how int) error {
		time.Sleep(time.Until(ends))
		return unix.Flock(fd, how)
	}
}

// TestSaysThatNobodyMayLockYet: locks that take long, as while a restarted NFS server waits for its
// former clients, are waited for, and that is said once.
func TestSaysThatNobodyMayLockYet(t *testing.T) {
	for _, x := range []struct {
		name string
		nfs  bool
		wait time.Duration
		want []string
	}{
		{"at once", true, 0, nil},
		{"soon", true, unsaid - time.Millisecond, nil},
		{"a grace period", true, 90 * time.Second, []string{lateLock}},
		{"no share", false, 90 * time.Second, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := makeVolume(t, "a", "b", "c")
			mounts := asNFS(t, dir, "hard,lookupcache=none,")
			if !x.nfs {
				mounts = ""
			}
			synctest.Test(t, func(t *testing.T) {
				var said []string
				r, err := atStart(dir, 1, Options{Mounts: mounts, Waiting: func(why string) { said = append(said, why) }, flock: graceOf(x.wait)})
				if err != nil {
					t.Fatal(err)
				}
				if !x.nfs && r.Network {
					t.Skipf("%s is shared", dir)
				}
				if v := verdicts(r, "flock"); !slices.Equal(v, []Verdict{OK}) || !slices.Equal(said, x.want) {
					t.Errorf("said %q, want %q; flock: %v", said, x.want, v)
				}
			})
		})
	}
}

// slowLocks is an agent whose filesystem lets nobody lock for a while.
type slowLocks struct {
	*localAgent
	wait time.Duration
}

func (h *slowLocks) do(ctx context.Context, c call) (reply, error) {
	if c.Op == opLock {
		time.Sleep(h.wait)
		h.wait = 0
	}
	return h.localAgent.do(ctx, c)
}

// TestTrialSaysThatNobodyMayLockYet is the same for the locks of a trial, also on another host.
func TestTrialSaysThatNobodyMayLockYet(t *testing.T) {
	for _, network := range []bool{true, false} {
		a, b := newAgents(t)
		a.crew, b.crew = nil, nil
		synctest.Test(t, func(t *testing.T) {
			var said []string
			r := &Report{Path: "there", Verdict: OK, Network: network}
			opt := Options{Rounds: 2, Progress: func(Progress) {}, Waiting: func(why string) { said = append(said, why) }}
			if err := r.trial(t.Context(), a, &slowLocks{b, 90 * time.Second}, opt); err != nil {
				t.Fatal(err)
			}
			if r.Verdict == Refuse || slices.Equal(said, []string{lateLock}) != network {
				t.Errorf("a share: %v; said %q; %+v", network, said, r.Findings)
			}
		})
	}
}

// TestTurnedAway: a share whose server turns the host away is refused, and is not blamed for it.
func TestTurnedAway(t *testing.T) {
	const withdrawn = "the server does not let this host use the export any more (exportfs), or this user may not write here"
	for _, x := range []struct {
		err    error
		nfs    bool
		denied bool
		says   string
		fix    []string // how the commands begin
	}{
		{unix.EACCES, true, true, "permission denied: " + withdrawn, []string{"ls -ld ", "exportfs -v "}},
		{fmt.Errorf("open: %w", unix.ESTALE), true, true, "open: stale file handle: " + withdrawn, []string{"ls -ld ", "umount ", "exportfs -v "}},
		{unix.ENOLCK, true, false, "no locks available: is the lock service", nil},
		{unix.EACCES, false, false, "permission denied: is the lock service", nil},
	} {
		t.Run(fmt.Sprint(x.err, x.nfs), func(t *testing.T) {
			dir := makeVolume(t, "a", "b", "c")
			opt := Options{flock: func(int, int) error { return x.err }}
			if x.nfs {
				opt.Mounts = asNFS(t, dir, "hard,lookupcache=none,")
			}
			r, err := atStart(dir, 1, opt)
			if err != nil {
				t.Fatal(err)
			}
			if !x.nfs && r.Network {
				t.Skipf("%s is shared", dir)
			}
			i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == "flock" })
			if i < 0 {
				t.Fatalf("nothing about flock: %+v", r.Findings)
			}
			f := r.Findings[i]
			if f.Verdict != Refuse || f.Denied != x.denied || !strings.Contains(f.Detail, x.says) {
				t.Errorf("got %+v, want refuse, denied %v, saying %q", f, x.denied, x.says)
			}
			if !slices.EqualFunc(f.Fix, x.fix, strings.HasPrefix) {
				t.Errorf("mended by %q, want %q", f.Fix, x.fix)
			}
		})
	}
}

// TestTurnedAwayAtTheRoot: the directory itself cannot be looked at.
func TestTurnedAwayAtTheRoot(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader("22 1 8:1 / / rw - ext4 /dev/sda rw\n" + nfsLine("vers=4.2,", "hard,lookupcache=none,") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		path string
		err  error
		away bool
	}{
		{"/mnt/share/volume", unix.ESTALE, true},
		{"/mnt/share", unix.EACCES, true},
		{"/mnt/share/volume", unix.ENOENT, false},
		{"/srv/volume", unix.EACCES, false},
	} {
		got := unresolved(x.path, mounts, &os.PathError{Op: "lstat", Path: x.path, Err: x.err})
		if !errors.Is(got, x.err) || strings.Contains(got.Error(), "does not let this host use the export any more (exportfs)") != x.away || strings.Contains(got.Error(), "mount the share") == x.away {
			t.Errorf("got %v, turned away: %v", got, x.away)
		}
	}
}
