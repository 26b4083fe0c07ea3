// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestKeepGeneration(t *testing.T) {
	d := volumetest.New(1)
	h := d.Host(1, volumetest.ProfileLocal())
	for _, dir := range []string{"files", "files/a"} {
		if err := d.Mkdir(dir); err != nil && !strings.Contains(err.Error(), fs.ErrExist.Error()) {
			t.Fatal(err)
		}
	}
	if err := d.Write("files/a/log", 0, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	info, err := h.Lstat("files/a/log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volume.KeepGeneration(h, "a/log", 3, info.Inode+1); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("another inode was moved: %v", err)
	}
	for range 2 { // and again
		kept, err := volume.KeepGeneration(h, "a/log", 3, info.Inode)
		if err != nil || kept != "a/log.g3" {
			t.Fatalf("kept %q, %v", kept, err)
		}
	}
	for i := range uint64(20) {
		lost := d.DurableClone(rand.New(rand.NewPCG(i, 1)))
		if got := string(lost.Files("files/")["files/a/log.g3"]); got != "one\n" {
			t.Errorf("power loss %d left %q", i, got)
		}
	}
	if err := d.Write("files/a/log", 0, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	next, err := h.Lstat("files/a/log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volume.KeepGeneration(h, "a/log", 3, next.Inode); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("a generation was overwritten: %v", err)
	}
	if _, err := volume.KeepGeneration(h, "../x", 1, 1); err == nil {
		t.Error("a name outside was taken")
	}
}

// TestKeepGenerationThatSleeps wakes up before its rename when another one has kept the
// generation and rotated the file: whatever it moves then, nothing is overwritten.
func TestKeepGenerationThatSleeps(t *testing.T) {
	d := volumetest.New(1)
	h, other := d.Host(1, volumetest.ProfileLocal()), d.Host(2, volumetest.ProfileLocal())
	if err := d.Mkdir("files"); err != nil && !strings.Contains(err.Error(), fs.ErrExist.Error()) {
		t.Fatal(err)
	}
	if err := d.Write("files/log", 0, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	info, err := h.Lstat("files/log")
	if err != nil {
		t.Fatal(err)
	}
	asleep := true
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if asleep && c.Op == volumetest.OpRename {
			asleep = false
			if _, err := volume.KeepGeneration(other, "log", 1, info.Inode); err != nil {
				t.Errorf("the other: %v", err)
			}
			if err := d.Write("files/log", 0, []byte("two\n")); err != nil {
				t.Error(err)
			}
		}
		return volumetest.Proceed()
	})
	kept, err := volume.KeepGeneration(h, "log", 1, info.Inode)
	if err == nil || !strings.Contains(err.Error(), "later generation was moved to files/log.g1.") {
		t.Errorf("kept %q, %v", kept, err)
	}
	files := d.Files("files/")
	if string(files["files/log.g1"]) != "one\n" || len(files) != 2 {
		t.Errorf("left %q", files)
	}
	for _, content := range files {
		if content := string(content); content != "one\n" && content != "two\n" {
			t.Errorf("left %q", content)
		}
	}
	if _, err := volume.KeepGeneration(h, "log", 1, info.Inode+7); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("got %v", err)
	}
	if _, err := volume.KeepGeneration(h, "log", 2, info.Inode); err == nil || !strings.Contains(err.Error(), "moved away already") {
		t.Errorf("got %v", err)
	}
}

// TestKeepGenerationDoneHalf finds what one that died between its two renames has moved.
func TestKeepGenerationDoneHalf(t *testing.T) {
	d := volumetest.New(1)
	h, other := d.Host(1, volumetest.ProfileLocal()), d.Host(2, volumetest.ProfileLocal())
	if err := d.Mkdir("files"); err != nil && !strings.Contains(err.Error(), fs.ErrExist.Error()) {
		t.Fatal(err)
	}
	if err := d.Write("files/log", 0, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	info, err := h.Lstat("files/log")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write("files/log.g1.000000", 0, []byte("somebody's\n")); err != nil {
		t.Fatal(err)
	}
	h.SetHook(volumetest.AtOp(volumetest.OpRename, "files/log.g1.", 1, volumetest.Crash()))
	if kept, err := volume.KeepGeneration(h, "log", 1, info.Inode); err == nil {
		t.Fatalf("kept %q", kept)
	}
	kept, err := volume.KeepGeneration(other, "log", 1, info.Inode)
	if files := d.Files("files/"); err != nil || kept != "log.g1" || string(files["files/log.g1"]) != "one\n" || len(files) != 2 {
		t.Errorf("kept %q, %v: %q", kept, err, files)
	}
}

// TestKeepGenerationOverwritesNothing: a file that somebody puts at the kept name meanwhile stays.
func TestKeepGenerationOverwritesNothing(t *testing.T) {
	d := volumetest.New(1)
	h := d.Host(1, volumetest.ProfileLocal())
	if err := d.Write("files/log", 0, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	info, err := h.Lstat("files/log")
	if err != nil {
		t.Fatal(err)
	}
	h.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpRename && c.Name == "files/log" {
			if err := d.Write("files/log.g1", 0, []byte("mine\n")); err != nil {
				t.Error(err)
			}
		}
		return volumetest.Proceed()
	})
	kept, err := volume.KeepGeneration(h, "log", 1, info.Inode)
	if files := d.Files("files/"); err == nil || string(files["files/log.g1"]) != "mine\n" || len(files) != 2 {
		t.Errorf("kept %q, %v: %q", kept, err, files)
	}
}

// TestKeepGenerationIsDurable: whoever rotates relies on the bytes of the generation before.
func TestKeepGenerationIsDurable(t *testing.T) {
	d := volumetest.New(1)
	h := d.Host(1, volumetest.ProfileLocal())
	if err := d.Write("files/log", 0, nil); err != nil {
		t.Fatal(err)
	}
	f, err := h.Open("files/log", vfs.FlagWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("one\n"), 0); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volume.KeepGeneration(h, "log", 1, info.Inode); err != nil {
		t.Fatal(err)
	}
	if files := d.DurableClone(nil).Files("files/"); string(files["files/log.g1"]) != "one\n" {
		t.Errorf("a power loss left %q", files)
	}
}
