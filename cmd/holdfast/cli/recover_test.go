// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
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
