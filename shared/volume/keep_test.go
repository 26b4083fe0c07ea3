// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
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
