// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// hostDisk is a disk that may lose its power.
type hostDisk struct{ h *volumetest.Host }

func base(name string) string {
	if name = strings.TrimPrefix(name, "/"); name == "" {
		return "."
	}
	return name
}

func (d hostDisk) mkdir(dir string) (bool, error) {
	err := d.h.Mkdir(base(dir))
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

func (d hostDisk) syncDir(dir string) error { return d.h.SyncDir(base(dir)) }

func (d hostDisk) lock(name string) (func() error, error) {
	if f, err := d.h.Open(base(name), vfs.FlagCreate); err == nil {
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	l, err := d.h.TryLock(base(name))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, err
	}
	return l.Unlock, nil
}

func (d hostDisk) readFile(name string) ([]byte, error) {
	f, err := d.h.Open(base(name), vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, f.Close()
}

func (d hostDisk) create(name string) (file, error) {
	if err := d.h.Remove(base(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := d.h.Open(base(name), vfs.FlagCreate)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

func (d hostDisk) rename(from, to string) error { return d.h.Rename(base(from), base(to)) }

func (d hostDisk) size(f file, name string) (int64, error) {
	opened, err := f.(hostFile).Stat()
	if err != nil {
		return 0, err
	}
	named, err := d.h.Lstat(base(name))
	if err != nil {
		return 0, err
	}
	if named.Inode != opened.Inode {
		return 0, errors.New("another file")
	}
	return opened.Size, nil
}

// hostFile is open to append.
type hostFile struct{ vfs.File }

func (f hostFile) Write(b []byte) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return f.WriteAt(b, info.Size)
}

const place = "/srv/store/guard"

// history is what a guard admits until its host dies: of two keys, over restarts and over a
// file that was written anew.
func history(h *volumetest.Host) map[string]cluster.Token {
	admitted := map[string]cluster.Token{}
	token := cluster.Token(0)
	for range 3 {
		g, err := open(hostDisk{h}, place)
		if err != nil {
			return admitted
		}
		for i := range 6 {
			token++
			key := fmt.Sprint("key", i%2)
			if g.Admit(key, token) == nil {
				admitted[key] = token
			}
			if i == 3 && func() error { g.mu.Lock(); defer g.mu.Unlock(); return g.compact() }() != nil {
				return admitted
			}
		}
		if g.Close() != nil {
			return admitted
		}
	}
	return admitted
}

// TestPowerLossForgetsNoToken: wherever the power goes, a guard that admitted a token admits no
// lower one afterwards.
func TestPowerLossForgetsNoToken(t *testing.T) {
	whole := volumetest.New(1)
	h := whole.Host(1, volumetest.ProfileLocal())
	if n := len(history(h)); n != 2 {
		t.Fatalf("%d keys", n)
	}
	for call := 1; call <= h.Calls()+1; call++ {
		for seed := range uint64(4) {
			var luck *rand.Rand // nothing that was not synced survives
			if seed > 0 {
				luck = rand.New(rand.NewPCG(seed, uint64(call)))
			}
			d := volumetest.New(1)
			h := d.Host(1, volumetest.ProfileLocal())
			h.SetHook(volumetest.At(call, volumetest.Crash()))
			admitted := history(h)
			after := d.DurableClone(luck).Host(1, volumetest.ProfileLocal())
			g, err := open(hostDisk{after}, place)
			if err != nil {
				t.Fatalf("power lost at call %d: %v", call, err)
			}
			for key, token := range admitted {
				if got := g.Seen(key); got < token {
					t.Errorf("power lost at call %d: %s was admitted under token %d, and the guard knows %d", call, key, token, got)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestDirectoryOfAnInterruptedOpenIsDurable: a guard that died before it could sync the names
// of its directories leaves that to the next.
func TestDirectoryOfAnInterruptedOpenIsDurable(t *testing.T) {
	for call := 1; call < 8; call++ {
		d := volumetest.New(1)
		h := d.Host(1, volumetest.ProfileLocal())
		h.SetHook(volumetest.At(call, volumetest.Crash()))
		if _, err := open(hostDisk{h}, place); err == nil {
			t.Fatalf("call %d did not kill it", call)
		}
		g, err := open(hostDisk{d.Host(2, volumetest.ProfileLocal())}, place) // the machine goes on
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Admit("a", 9); err != nil {
			t.Fatal(err)
		}
		again, err := open(hostDisk{d.DurableClone(nil).Host(1, volumetest.ProfileLocal())}, place)
		if err != nil || again.Seen("a") != 9 {
			t.Errorf("killed at call %d, then power lost: token %d, %v", call, again.Seen("a"), err)
		}
	}
}

// TestLineOfAFailedSyncIsNotTrusted: it is in memory, where the next process reads it, and a
// further sync of it succeeds without writing it.
func TestLineOfAFailedSyncIsNotTrusted(t *testing.T) {
	d := volumetest.New(1)
	h := d.Host(1, volumetest.ProfileLocal())
	g, err := open(hostDisk{h}, place)
	if err != nil {
		t.Fatal(err)
	}
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpSync {
			return volumetest.FailBefore(syscall.EIO)
		}
		return volumetest.Proceed()
	})
	if err := g.Admit("a", 9); !errors.Is(err, ErrClosed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("a sync failed: %v", err)
	}
	h.SetHook(nil)
	if got := g.Seen("a"); got != 0 {
		t.Errorf("token %d is told as seen, and is not durable", got)
	}
	if err := g.Admit("a", 9); !errors.Is(err, ErrClosed) {
		t.Errorf("a guard whose sync failed goes on: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err = open(hostDisk{h}, place); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit("a", 9); err != nil {
		t.Fatal(err)
	}
	after, err := open(hostDisk{d.DurableClone(nil).Host(1, volumetest.ProfileLocal())}, place)
	if err != nil {
		t.Fatal(err)
	}
	if err := after.Admit("a", 8); !errors.Is(err, ErrStale) {
		t.Errorf("token 9 was admitted, then the power was lost: token 8 is told %v", err)
	}
}

// TestGuardThatLostItsLock admits nothing once another process has opened the directory, and
// spoils nothing that the other has written.
func TestGuardThatLostItsLock(t *testing.T) {
	for name, test := range map[string]struct {
		token  cluster.Token
		reopen bool // nobody has written a line yet
	}{"a higher token": {token: 7}, "the highest that it knows": {token: 5}, "before the other admits anything": {7, true}} {
		t.Run(name, func(t *testing.T) {
			d := volumetest.New(1)
			h := d.Host(1, volumetest.ProfileLocal())
			g, err := open(hostDisk{h}, place)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Admit("a", 5); err != nil {
				t.Fatal(err)
			}
			if _, err := open(hostDisk{d.Host(2, volumetest.ProfileLocal())}, place); !errors.Is(err, ErrInUse) {
				t.Fatalf("opened twice: %v", err)
			}
			h.LoseLocks()
			other, err := open(hostDisk{d.Host(2, volumetest.ProfileLocal())}, place)
			if err != nil {
				t.Fatal(err)
			}
			if !test.reopen {
				if err := other.Admit("a", 9); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Admit("a", test.token); !errors.Is(err, ErrInUse) || !errors.Is(err, ErrClosed) {
				t.Errorf("token %d beside another process: %v", test.token, err)
			}
			if err := other.Admit("a", 10); err != nil {
				t.Errorf("the other one: %v", err)
			}
			b, err := hostDisk{h}.readFile(filepath.Join(place, "tokens"))
			if err != nil {
				t.Fatal(err)
			}
			if seen, _, _, err := parse(b); err != nil || seen["a"] != 10 {
				t.Errorf("the file tells %v, %v", seen, err)
			}
		})
	}
}
