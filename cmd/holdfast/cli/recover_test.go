// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// planned is the exit code of a recover that only said what it would do.
const planned = 6

// restored is a volume that may have been restored from a backup.
func restored(t *testing.T) (dir string, id cluster.ID) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "volume")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h1", "--server", "2=h2", "--server", "3=h3"); r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := volume.ReadCluster(f)
	if err != nil {
		t.Fatal(err)
	}
	return dir, c.ID
}

// Without a word of how far it was, the same backup gives the same tokens twice.
func TestRecoverOfARestoredVolumeWantsToKnowHowFarItWas(t *testing.T) {
	dir, id := restored(t)
	empty := t.TempDir()
	for _, args := range []string{"", " --data-dir " + empty, " --yes --accept-loss"} {
		if r := run("", "", words("recover --restored --volume "+dir+args)...); r.code == 0 || r.code == planned || r.out != "" || !strings.Contains(r.errs, "data-dir") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := run("", "", words("recover --restored --seen-lsn 0 --volume "+dir)...); r.code != planned || !strings.Contains(r.out, "NOBODY HAS SAID") {
		t.Errorf("%+v", r)
	}
	told := t.TempDir() // its server was primary: no copy of the table
	if err := (replica.Known{Cluster: id, LSN: 5 << 32, Epoch: 9}).Write(told); err != nil {
		t.Fatal(err)
	}
	r := run("", "", words("recover --restored --volume "+dir+" --data-dir "+empty+" --data-dir "+told)...)
	if r.code != planned || !strings.Contains(r.out, "makes     epoch 4294967296, which follows 0; its log begins after LSN 25769803777") {
		t.Errorf("%+v", r)
	}
}

// What root makes, the service's user could not write to.
func TestRecoverIsForTheUserOfTheServers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give CLUSTER to another user")
	}
	dir, _ := restored(t)
	if err := os.Chown(filepath.Join(dir, "CLUSTER"), 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", words("recover --restored --seen-lsn 1 --volume "+dir)...); r.code != planned {
		t.Errorf("a plan only reads: %+v", r)
	}
	if r := run("", "", words("recover --restored --seen-lsn 1 --yes --accept-loss --volume "+dir)...); r.code == 0 || r.code == planned || !strings.Contains(r.errs, "4711") {
		t.Errorf("%+v", r)
	}
	epochs, err := os.ReadDir(filepath.Join(dir, "epochs"))
	if err != nil || len(epochs) != 1 {
		t.Errorf("%v, %v", epochs, err)
	}
}

// TestVolumeOfANewerVersion: every command that reads a volume which a newer holdfast wrote says so, proposes no repair, and
// writes nothing.
func TestVolumeOfANewerVersion(t *testing.T) {
	dir, id := restored(t)
	raiseHeaders(t, dir)
	data := t.TempDir() // of a server that ran the newer version
	if err := (replica.Known{Cluster: id, LSN: 5, Epoch: 1}).Write(data); err != nil {
		t.Fatal(err)
	}
	copyOfNewer(t, id, data)
	sound, _ := restored(t)
	for _, args := range []string{
		"recover --volume " + dir,
		"recover --yes --accept-loss --volume " + dir,
		"recover --restored --seen-lsn 0 --volume " + dir,
		"recover --volume " + sound + " --data-dir " + data,
		"ls --volume " + dir,
		"show x --volume " + dir,
		"history --volume " + dir,
		"backup --volume " + dir + " " + filepath.Join(t.TempDir(), "b"),
		"fsck --volume " + dir,
		"server --id 1 --data-dir none --unsafe-filesystem --volume " + dir,
	} {
		r := run("", "", words(args)...)
		text := r.out + r.errs
		if r.code == 0 || r.code == planned || !strings.Contains(text, volume.ErrTooOld.Error()) {
			t.Errorf("%s: %+v", args, r)
		}
		for _, repair := range []string{"holdfast recover", "--accept-loss", "leave out", "damaged:", "lost"} {
			if strings.Contains(text, repair) {
				t.Errorf("%s proposes a repair, or tells of damage (%q): %+v", args, repair, r)
			}
		}
	}
	epochs, err := os.ReadDir(filepath.Join(dir, "epochs"))
	if err != nil || len(epochs) != 1 {
		t.Errorf("epochs: %v, %v", epochs, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "servers", "1.process")); err == nil {
		t.Error("a server that is too old wrote its sign of life")
	}
}

// raiseHeaders has the log of a new volume be one of a binary that knows one level more.
func raiseHeaders(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "epochs", "*", "wal-*.log"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	h, err := wal.DecodeSegmentHeader(b[:wal.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	h.FeatureLevel = volume.FeatureLevel + 1
	if err := os.WriteFile(names[0], append(wal.AppendSegmentHeader(nil, h), b[wal.SegmentHeaderSize:]...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyOfNewer is the copy of a table with a level that this binary does not know, in a data directory.
func copyOfNewer(t *testing.T, id cluster.ID, dir string) {
	t.Helper()
	s := checkpoint.Snapshot{Cluster: id, Epoch: 1, Table: locktable.New()}
	e := s.Export()
	e.Entities = func(yield func(locktable.Entity, error) bool) {
		yield(locktable.Entity{Level: &locktable.LevelState{Level: locktable.MaxLevel + 1, Version: "9.8"}}, nil)
	}
	f, err := os.Create(filepath.Join(dir, checkpoint.CopyName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Stream(f), f.Close()); err != nil {
		t.Fatal(err)
	}
}
