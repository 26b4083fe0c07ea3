// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// onDisk copies a simulated volume to a real directory. Inode numbers change, so
// protected files are found to be other ones.
func onDisk(t *testing.T, d *volumetest.Disk) string {
	t.Helper()
	dir := t.TempDir()
	for name, s := range d.Snapshot() {
		if s.Type == vfs.TypeDir {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, b := range d.Files("") {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range d.Snapshot() {
		if err := os.Chmod(filepath.Join(dir, name), os.FileMode(s.Mode&0o777)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found lists what fsck finds in a real directory.
func found(t *testing.T, dir string) (all []string) {
	t.Helper()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := fsck.Run(t.Context(), f, fsck.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Findings {
		all = append(all, string(x.Severity)+" "+x.Code+" "+x.Path)
	}
	return all
}

func TestFsckOfARealDirectoryNames(t *testing.T) {
	for _, c := range damages() {
		if strings.Contains(c.want, " file-") && !strings.Contains(c.want, "file-unbound") || strings.Contains(c.want, "special-file") {
			continue
		}
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			if all := found(t, onDisk(t, l.disk)); !slices.Contains(all, c.want) {
				t.Errorf("got %q, want %q", all, c.want)
			}
		})
	}
}

func TestFsckNamesWhoMayWrite(t *testing.T) {
	for name, want := range map[string]string{
		"CLUSTER": "warning writable CLUSTER", protected: "warning writable files", newest + "fence": "warning writable epochs", "epochs": "warning writable epochs",
	} {
		bubble(t, name, func(t *testing.T) {
			dir := onDisk(t, live(t).disk)
			before := found(t, dir)
			if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
			if all := found(t, dir); !slices.Contains(all, want) || len(all) != len(before)+1 {
				t.Errorf("got %q, want %q more than %q", all, want, before)
			}
		})
	}
}

func TestFsckNamesASymbolicLink(t *testing.T) {
	dir := onDisk(t, live(t).disk)
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, newest, "link")); err != nil {
		t.Fatal(err)
	}
	if all := found(t, dir); !slices.Contains(all, "warning special-file "+newest+"link") {
		t.Errorf("got %q", all)
	}
}

// A restored volume has other inodes: a recovery binds what still fits.
func TestRecoverOnARealDirectory(t *testing.T) {
	l := live(t)
	dir := onDisk(t, l.disk)
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opt := recoverOptions()
	opt.Restored = true
	plan, err := recovery.Run(t.Context(), f, opt)
	if err != nil || !plan.Done || plan.Files[0].Fate != "kept" {
		t.Fatalf("%+v, %v", plan, err)
	}
	for _, x := range found(t, dir) {
		if !strings.HasPrefix(x, "info") {
			t.Error(x)
		}
	}
}

// Fences stay for ever, those of burned numbers, too: they take no more room than they need.
func TestFenceTakesLittleRoom(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := volume.Init(t.Context(), f, members(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "epochs/0000000000/fence"))
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if room := stat.Blocks * 512; !ok || info.Size() != layout.FenceSize || room > layout.FenceSize/4 {
		t.Errorf("%d bytes take %d", info.Size(), room)
	}
}
