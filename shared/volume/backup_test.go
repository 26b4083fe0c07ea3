// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/backup"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// allAppends is what the protected file of live holds, the last append included, which it lacks on the volume.
const allAppends = "first\nsecond\nbetween\nthird\nfourth\nfifth\n"

// backedUp takes a backup, and fails the test unless it is a whole one.
func backedUp(t *testing.T, from vfs.FS, opt backup.Options) (*volumetest.Disk, *backup.Manifest) {
	t.Helper()
	to := volumetest.New(2)
	m, err := backup.Run(t.Context(), from, host(to, 1), opt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := backup.Check(t.Context(), host(to, 2))
	if err != nil || len(r.Damage) > 0 {
		t.Fatalf("check: %+v, %v", r, err)
	}
	return to, m
}

func copyOf(t *testing.T, d *volumetest.Disk, name string) string {
	t.Helper()
	b, err := d.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func restoreOptions() backup.RestoreOptions {
	return backup.RestoreOptions{Random: rand.Reader, FirstSegment: 32 << 10}
}

func TestBackupIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		for name, text := range map[string]string{"access/0000000001.toml": "rules", "secrets/ca.key": "secret", "ca.crt": "public", "files/loose": "nobody's"} {
			if err := l.disk.Write(name, 0, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		before := l.disk.Snapshot()
		to, m := backedUp(t, host(l.disk, 20), backup.Options{Now: time.Now(), Version: "v1"})
		if m.LSN != l.end || m.Epoch != 4 || len(m.Problems()) > 0 || m.Version != "v1" {
			t.Errorf("%+v", m)
		}
		if !maps.Equal(before, l.disk.Snapshot()) {
			t.Error("the backup changed the volume")
		}
		if got := copyOf(t, to, "files/dir/f"); got != allAppends {
			t.Errorf("the protected file holds %q", got)
		}
		if _, err := to.ReadFile("secrets/ca.key"); err == nil || m.Secrets {
			t.Error("the secrets were copied, and nobody asked for them")
		}
		whole, m := backedUp(t, host(l.disk, 20), backup.Options{Secrets: true})
		if copyOf(t, whole, "secrets/ca.key") != "secret" || !m.Secrets {
			t.Error("the secrets were not copied")
		}
		plan, err := backup.NewPlan(t.Context(), host(to, 3), restoreOptions())
		if err != nil || plan.Done || plan.LSN != 1<<32 || plan.Files != 1 {
			t.Errorf("%+v, %v", plan, err)
		}
		d := volumetest.New(3)
		opt := restoreOptions()
		opt.SeenLSN = 5 << 32
		if plan, err = backup.Restore(t.Context(), host(to, 3), host(d, 9), opt); err != nil || !plan.Done || plan.LSN < 6<<32 || plan.Files != 1 {
			t.Fatalf("%+v, %v", plan, err)
		}
		if plan.Cluster == m.Cluster {
			t.Error("the new volume has the old cluster's ID")
		}
		x := begin(t, d, 1)
		h := holding{lock: "new", file: "dir/f"}
		if h.token = x.acquire("new"); h.token <= 6<<32 {
			t.Errorf("token %d", h.token)
		}
		f, ok := x.table.File("dir/f")
		if info, err := host(d, 9).Lstat("files/dir/f"); !ok || f.Quarantined || err != nil || f.Inode != info.Inode {
			t.Errorf("%+v %v, on the volume %+v %v", f, ok, info, err)
		}
		if copyOf(t, d, "files/dir/f") != allAppends || copyOf(t, d, "files/loose") != "nobody's" || copyOf(t, d, "access/0000000001.toml") != "rules" {
			t.Error("the files are not those of the backup")
		}
		x.kill()
	})
}

// TestRestoreGoesOnAboveWhatServersKnew wants the numbers of data directories to count, and their tables not to.
func TestRestoreGoesOnAboveWhatServersKnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		to, m := backedUp(t, host(l.disk, 20), backup.Options{})
		opt := restoreOptions()
		opt.Known = []recovery.Copy{{Name: "data", Snapshot: checkpoint.Snapshot{Cluster: m.Cluster, Epoch: 9, At: wal.Position{LSN: 7 << 32}, Table: locktable.New()}}}
		d := volumetest.New(3)
		plan, err := backup.Restore(t.Context(), host(to, 3), host(d, 9), opt)
		if err != nil || plan.LSN < 8<<32 || plan.Files != 1 {
			t.Fatalf("%+v, %v", plan, err)
		}
		opt.Known[0].Cluster = cluster.ID{1}
		if _, err := backup.NewPlan(t.Context(), host(to, 3), opt); err == nil {
			t.Error("a data directory of another cluster was accepted")
		}
	})
}

// beside runs do once, when a backup opens a protected file.
func beside(h *volumetest.Host, op string, do func()) {
	var done atomic.Bool
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == op && c.Name == "files/dir/f" && !done.Swap(true) {
			do()
		}
		return volumetest.Proceed()
	})
}

// TestBackupBesideWriters changes a protected file in every way when the backup begins to copy it.
func TestBackupBesideWriters(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, d *volumetest.Disk, x *term, h holding)
		want string // what the copy holds
		at   cluster.Generation
	}{
		{"append", func(_ *testing.T, _ *volumetest.Disk, x *term, h holding) { x.append(h, "late\n") }, "first\n", 1},
		{"unbind", func(t *testing.T, d *volumetest.Disk, x *term, h holding) {
			x.do(locktable.Request{Op: locktable.OpUnbind, Lock: h.lock, Token: h.token, File: h.file}, locktable.FileFacts{})
			if err := d.Write("files/dir/f", 0, []byte("other!")); err != nil {
				t.Error(err)
			}
		}, "other!", 0},
		{"rotate", func(t *testing.T, d *volumetest.Disk, x *term, h holding) {
			if err := d.Rename("files/dir/f", "files/dir/f.g1"); err != nil {
				t.Error(err)
			}
			p, err := x.r.AdoptProtected(h.file)
			if err != nil {
				t.Error(err)
				return
			}
			x.do(locktable.Request{Op: locktable.OpRotate, Lock: h.lock, Token: h.token, File: h.file}, locktable.FileFacts{Inode: p.Inode()})
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			x.append(h, "new\n")
		}, "new\n", 2},
		{"seal", func(_ *testing.T, _ *volumetest.Disk, x *term, h holding) {
			x.do(locktable.Request{Op: locktable.OpSeal, Lock: h.lock, Token: h.token, File: h.file}, locktable.FileFacts{})
		}, "first\n", 1},
	} {
		for _, op := range []string{volumetest.OpOpen, volumetest.OpClose} {
			bubble(t, c.name+" at "+op, func(t *testing.T) {
				d := newDisk(t)
				x := begin(t, d, 1)
				h := holding{lock: "l", file: "dir/f"}
				h.token = x.acquire(h.lock)
				x.append(h, "first\n")
				reader := host(d, 20)
				beside(reader, op, func() { c.do(t, d, x, h) })
				to, m := backedUp(t, reader, backup.Options{})
				if got := copyOf(t, to, "files/dir/f"); got != c.want {
					t.Errorf("the copy holds %q, want %q", got, c.want)
				}
				i := slices.IndexFunc(m.Files, func(f backup.File) bool { return f.Path == "files/dir/f" })
				if i < 0 || m.Files[i].Generation != c.at || len(m.Problems()) > 0 {
					t.Errorf("%+v", m.Files)
				}
				x.kill()
			})
		}
	}
}

// TestBackupNamesWhatDoesNotFit wants a file that is not what the log says to be named, and the rest backed up.
func TestBackupNamesWhatDoesNotFit(t *testing.T) {
	for name, harm := range map[string]func(d *volumetest.Disk) error{
		"removed": func(d *volumetest.Disk) error { return d.Remove("files/dir/f") },
		"replaced": func(d *volumetest.Disk) error {
			return errors.Join(d.Remove("files/dir/f"), d.Write("files/dir/f", 0, []byte(allAppends)))
		},
		"cut": func(d *volumetest.Disk) error { return d.Truncate("files/dir/f", 3) },
	} {
		bubble(t, name, func(t *testing.T) {
			l := live(t)
			if err := harm(l.disk); err != nil {
				t.Fatal(err)
			}
			to, m := backedUp(t, host(l.disk, 20), backup.Options{})
			if p := m.Problems(); len(p) != 1 || p[0].Path != "files/dir/f" {
				t.Errorf("%+v", m.Files)
			}
			plan, err := backup.Restore(t.Context(), host(to, 3), host(volumetest.New(3), 9), restoreOptions())
			if err != nil || len(plan.Quarantined) != 1 {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}

// TestBackupThatIsCutShort kills a backup at each of its calls, with a power loss after it: what has a manifest is whole.
func TestBackupThatIsCutShort(t *testing.T) {
	for n, last := 1, false; !last; n++ {
		synctest.Test(t, func(t *testing.T) {
			l := live(t)
			to := volumetest.New(2)
			h := host(to, 1)
			h.SetHook(volumetest.At(n, volumetest.CrashAfter()))
			_, err := backup.Run(t.Context(), host(l.disk, 20), h, backup.Options{})
			last = err == nil && !h.Dead()
			for seed := range uint64(4) {
				after := to.DurableClone(mathrand.New(mathrand.NewPCG(seed, 1)))
				r, err := backup.Check(t.Context(), host(after, 2))
				switch {
				case errors.Is(err, backup.ErrUnfinished):
					if last {
						t.Error("a backup that ended well has no manifest")
					}
				case err != nil || len(r.Damage) > 0:
					t.Errorf("killed at call %d: %+v, %v", n, r, err)
				}
			}
		})
	}
}

// TestBackupOnAFullDisk wants an error that names the file, and no manifest.
func TestBackupOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		to := volumetest.New(2)
		to.SetCapacity(2000)
		_, err := backup.Run(t.Context(), host(l.disk, 20), host(to, 1), backup.Options{})
		if !vfs.IsFull(err) || !strings.Contains(err.Error(), "copy to ") && !strings.Contains(err.Error(), "create ") {
			t.Errorf("%v", err)
		}
		if _, err := backup.Check(t.Context(), host(to, 2)); !errors.Is(err, backup.ErrUnfinished) {
			t.Errorf("%v", err)
		}
		if _, err := backup.Run(t.Context(), host(l.disk, 20), host(to, 1), backup.Options{}); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("into what is left: %v", err)
		}
	})
}

// TestDamagedBackupIsRefused changes each file of a backup.
func TestDamagedBackupIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		to, m := backedUp(t, host(l.disk, 20), backup.Options{})
		refused := func(what string, d *volumetest.Disk) {
			t.Helper()
			if r, err := backup.Check(t.Context(), host(d, 2)); err == nil && len(r.Damage) == 0 {
				t.Errorf("%s: nothing was found", what)
			}
			if _, err := backup.NewPlan(t.Context(), host(d, 2), restoreOptions()); err == nil {
				t.Errorf("%s: it would be restored", what)
			}
		}
		for _, f := range m.Files {
			flipped, missing := to.Clone(), to.Clone()
			b := []byte(copyOf(t, to, f.Path))
			b[len(b)/2] ^= 1
			if err := errors.Join(flipped.Write(f.Path, 0, b), missing.Remove(f.Path)); err != nil {
				t.Fatal(err)
			}
			refused(f.Path+" flipped", flipped)
			refused(f.Path+" missing", missing)
		}
		more := to.Clone()
		if err := more.Write("files/more", 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		refused("one file more", more)
	})
}

// FuzzManifest wants a manifest to be refused or to make sense.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"chain":"0000000000000001","servers":[{"id":1,"client":"a:1","peer":"a:2"}],"files":[{"path":"a","bytes":1}]}`))
	f.Add([]byte(`{"format":1,"files":[{"path":"../a"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := backup.ParseManifest(b)
		if err != nil {
			return
		}
		for _, x := range m.Files {
			if strings.Contains("/"+x.Path+"/", "/../") || strings.HasPrefix(x.Path, "/") || x.Bytes < 0 {
				t.Errorf("%q", x.Path)
			}
		}
	})
}

// TestRestoreKeepsTheFeatureLevel: servers that could use the volume can use the one that is made of its backup, also those of an older
// version; and a level to which the cluster was raised stays.
func TestRestoreKeepsTheFeatureLevel(t *testing.T) {
	for name, raise := range map[string]bool{"before the upgrade was finished": false, "after it": true} {
		bubble(t, name, func(t *testing.T) {
			old := newDisk(t)
			if err := old.BeginAt(locktable.BaseLevel); err != nil {
				t.Fatal(err)
			}
			x := begin(t, old, 1)
			x.fill(3)
			want := uint32(locktable.BaseLevel)
			if raise {
				x.apply(x.table.DecideLevel(locktable.MaxLevel, "v4", x.r.Epoch(), nil))
				want = locktable.MaxLevel
			}
			x.kill()
			to, _ := backedUp(t, host(old, 20), backup.Options{})
			d := volumetest.New(3)
			if _, err := backup.Restore(t.Context(), host(to, 3), host(d, 9), restoreOptions()); err != nil {
				t.Fatal(err)
			}
			c, err := volume.ReadCluster(host(d, 9))
			if err != nil || c.FeatureLevel != locktable.BaseLevel {
				t.Errorf("CLUSTER has level %d, %v; that of the old volume had %d", c.FeatureLevel, err, locktable.BaseLevel)
			}
			y := begin(t, d, 1)
			if n := y.r.Level(y.table); n != want {
				t.Errorf("the cluster has level %d, the old one had %d", n, want)
			}
			y.fill(3)
			y.kill()
		})
	}
}

// TestBackupOfANewerVersion is not damaged, and makes no volume.
func TestBackupOfANewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		to, m := backedUp(t, host(l.disk, 20), backup.Options{})
		s := checkpoint.Snapshot{Cluster: m.Cluster, Epoch: m.Epoch, At: m.Position(), Table: locktable.New()}
		e := s.Export()
		e.Entities = func(yield func(locktable.Entity, error) bool) {
			yield(locktable.Entity{Level: &locktable.LevelState{Level: locktable.MaxLevel + 1, Version: "9.8"}}, nil)
		}
		var table bytes.Buffer
		if err := e.Stream(&table); err != nil {
			t.Fatal(err)
		}
		for i := range m.Files {
			if f := &m.Files[i]; f.Path == checkpoint.CopyName {
				f.Bytes, f.SHA256 = int64(table.Len()), fmt.Sprintf("%x", sha256.Sum256(table.Bytes()))
			}
		}
		manifest, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{checkpoint.CopyName: table.Bytes(), backup.ManifestName: manifest} {
			if err := errors.Join(to.Remove(name), to.Write(name, 0, b)); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := backup.Check(t.Context(), host(to, 3)); !errors.Is(err, volume.ErrTooOld) || !strings.Contains(err.Error(), "holdfast 9.8") {
			t.Errorf("check: %+v, %v", r, err)
		}
		d := volumetest.New(3)
		if _, err := backup.Restore(t.Context(), host(to, 3), host(d, 9), restoreOptions()); !errors.Is(err, volume.ErrTooOld) || errors.Is(err, backup.ErrDamaged) {
			t.Errorf("restore: %v", err)
		}
		if len(d.Snapshot()) > 0 {
			t.Error("restore began a volume")
		}
	})
}
