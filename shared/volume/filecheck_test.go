// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A host whose caches remember how a protected file was does not judge it by that:
// neither is a file foreign that is whole, nor whole that has foreign bytes.
func TestProtectedFilesAreJudgedPastCaches(t *testing.T) {
	for _, c := range []struct {
		name   string
		before string // what the host has read
		now    string // what is there; the size is the same
		want   string // fsck's code; "" for nothing
	}{
		{"zeros are remembered", "\x00\x00\x00\x00\x00\nsecond\n", "first\nsecond\n", ""},
		{"the right bytes are remembered", "first\nsecond\n", "first\nsEcond\n", "file-foreign"},
	} {
		bubble(t, c.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			h := holding{lock: "job", file: "f"}
			h.token = x.acquire(h.lock)
			x.append(h, "first\n")
			x.append(h, "second\n")
			x.checkpoint()
			x.kill()
			put := func(text string) {
				if err := d.Write("files/f", 0, []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			put(c.before)
			reader := d.Host(9, volumetest.ProfileNetwork())
			f, err := reader.Open("files/f", vfs.FlagRead)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(make([]byte, len(c.before)), 0); err != nil {
				t.Fatal(err)
			}
			put(c.now)
			r, err := fsck.Run(t.Context(), reader, fsck.Options{})
			if err != nil || strings.Contains(worst(r), "file-") != (c.want != "") || !strings.Contains(worst(r), c.want) {
				t.Errorf("fsck: %s, %v; want %q", worst(r), err, c.want)
			}
			opt := recoverOptions()
			opt.Restored = true
			plan, err := recovery.NewPlan(t.Context(), reader, opt)
			if err != nil || len(plan.Files) != 1 || strings.Contains(plan.Files[0].Reason, "CRC-32C") != (c.want != "") {
				t.Errorf("recover: %+v, %v", plan, err)
			}
		})
	}
}

// Where an older binary unbound it, a file that is bound anew begins with generation 1 again. What
// was appended under an earlier binding, and written over since by whoever it belonged to then, accuses nobody.
func TestAFileBoundAnewIsJudgedByItsOwnAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		x.apply([]locktable.Record{{
			LSN: x.table.LSN() + 1, Epoch: x.r.Epoch(), Kind: locktable.KindUnbind, Client: "c", Request: 1, Lock: h.lock, Token: h.token, File: h.file,
		}})
		if err := d.Write("files/f", 0, []byte("mine, and longer\n")); err != nil {
			t.Fatal(err)
		}
		p, err := x.r.AdoptProtected(h.file)
		if err != nil {
			t.Fatal(err)
		}
		facts := locktable.FileFacts{Inode: p.Inode(), Size: 17}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if out := x.do(locktable.Request{Op: locktable.OpBind, Lock: h.lock, Token: h.token, File: h.file, AdoptExisting: true}, facts); out.Status != cluster.StatusOK {
			t.Fatalf("bind: %v %s", out.Status, out.Message)
		}
		x.append(h, "second\n")
		x.checkpoint()
		x.kill()
		sound(t, d)
		opt := recoverOptions()
		opt.Restored = true
		plan, err := recovery.NewPlan(t.Context(), host(d, 9), opt)
		if err != nil || len(plan.Files) != 1 || strings.Contains(plan.Files[0].Reason, "CRC-32C") {
			t.Errorf("recover: %+v, %v", plan.Files, err)
		}
		if err := d.Write("files/f", 18, []byte("E")); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d); !strings.Contains(worst(r), "file-foreign") {
			t.Errorf("its own append is not judged: %s", worst(r))
		}
	})
}

// A size that a cache remembers is asked for again before a file is called short.
func TestAShortFileIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		reader := l.disk.Host(9, volumetest.ProfileNetwork())
		looks := 0
		reader.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpLstat && c.Name == protected {
				looks++
			}
			return volumetest.Proceed()
		})
		if err := l.disk.Truncate(protected, 3); err != nil {
			t.Fatal(err)
		}
		opt := recoverOptions()
		opt.Restored = true
		plan, err := recovery.NewPlan(t.Context(), reader, opt)
		if err != nil || looks < 3 || plan.Files[0].Fate != "quarantined" {
			t.Errorf("%d looks: %+v, %v", looks, plan, err)
		}
	})
}
