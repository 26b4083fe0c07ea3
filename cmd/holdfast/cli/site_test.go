// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// TestSiteIsMade with its volumes, found again, and finished if an init did not end.
func TestSiteIsMade(t *testing.T) {
	dir, elsewhere := filepath.Join(t.TempDir(), "site"), filepath.Join(t.TempDir(), "billing")
	args := []string{"site", "init", "--cells", "2", dir, "--server", "1=h1", "--server", "2=h2:8000", "--server", "3=h3:1,h3:501", "--pin", "billing/=2", "--path", "2=" + elsewhere, "--policy", "open", "-o", "json"}
	r := run("", "", args...)
	var made struct {
		SiteID string `json:"site_id"`
		Cells  []struct {
			Cell    uint32
			Volume  string
			Servers []struct{ Client, Peer string }
		}
	}
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || r.code != 0 || len(made.Cells) != 3 {
		t.Fatalf("%+v: %v", r, err)
	}
	if s := made.Cells[2].Servers; s[0].Client != "h1:7603" || s[0].Peer != "h1:7803" || s[1].Client != "h2:8002" || s[2].Peer != "h3:503" {
		t.Errorf("the servers of cell 2 are %+v", s)
	}
	if made.Cells[1].Volume != filepath.Join(dir, "cells/1") || made.Cells[2].Volume != elsewhere {
		t.Errorf("the volumes are %+v", made.Cells)
	}
	for i, c := range made.Cells {
		f, err := osfs.Open(c.Volume)
		if err != nil {
			t.Fatal(err)
		}
		about, err := volume.ReadCluster(f)
		if err != nil || about.Cell == nil || int(about.Cell.Cell) != i || about.Cell.Site.String() != made.SiteID || about.Cell.Owns("billing/x") != (i == 2) {
			t.Errorf("cell %d is %+v, %v", i, about.Cell, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if r := run("", "", args...); r.code == 0 || !strings.Contains(r.out+r.errs, "is a Holdfast site already") {
		t.Errorf("a second init: %+v", r)
	}
	// As an init left it that was cut off before its end, with one volume unmade.
	for _, name := range []string{filepath.Join(dir, "SITE"), filepath.Join(dir, "cells/1"), elsewhere} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if r := run("", "", "site", "status", dir); r.code == 0 || !strings.Contains(r.errs, "no SITE file here") {
		t.Errorf("no SITE: %+v", r)
	}
	if r := run("", "", args...); r.code != 0 || !strings.Contains(r.out, made.SiteID) {
		t.Errorf("the init is not finished: %+v", r)
	}
	if r := run("", "", "site", "status", dir); r.code != 0 || !strings.Contains(r.out, elsewhere) {
		t.Errorf("status: %+v", r)
	}
}

// TestSiteStatus shows which cell has a name, and what is wrong with a site.
func TestSiteStatus(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	if r := run("", "", "site", "init", "--cells", "2", dir, "--server", "1=h1", "--pin", "billing/=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := run("", "", "site", "status", dir, "--lock", "billing/x"); r.code != 0 || !strings.Contains(r.out, `"billing/x" belongs to cell 1`) || strings.Contains(r.out, "PROBLEM") {
		t.Errorf("%+v", r)
	}
	if r := run("", "", "status", "--endpoints", dir); r.code != 2 || !strings.Contains(r.errs, "this is a site of several volumes") {
		t.Errorf("a site for a volume: %+v", r)
	}
	gone := filepath.Join(dir, "cells/1")
	if err := os.Rename(gone, gone+".away"); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "site", "status", dir); r.code != 1 || !strings.Contains(r.out, "no cell that answered owns those from place 8000000000000000 on") || !strings.Contains(r.out, "cells/1: no such file or directory") {
		t.Errorf("a cell is gone: %+v", r)
	}
	if err := os.Symlink("0", gone); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "site", "status", dir); r.code != 1 || !strings.Contains(r.out, "SITE says that this is cell 1 of site") {
		t.Errorf("a cell is another one: %+v", r)
	}
}

func TestSiteFlags(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	for what, x := range map[string]struct {
		args    string
		problem string
	}{
		"no cells":        {"--cells 0 --server 1=h", "0 cells: a site has 1 to 256"},
		"a gap":           {"--cells 2 --server 1=h --pin a/=5", "there is no cell 2"},
		"no pin":          {"--cells 2 --server 1=h --pin a/", "use PREFIX=CELL"},
		"ports run out":   {"--cells 2 --server 1=h:1,h:65535", "use lower ports"},
		"ports collide":   {"--cells 3 --server 1=h:10,h:12", "share the address h:12"},
		"no servers":      {"--cells 2", "server"},
		"no path":         {"--cells 2 --server 1=h --path /fast", "use CELL=PATH"},
		"a relative path": {"--cells 2 --server 1=h --path 1=fast", "is not the absolute path"},
		"two paths":       {"--cells 2 --server 1=h --path 1=/a --path 1=/b", "there are two for cell 1"},
		"a path in it":    {"--cells 2 --server 1=h --path 1=" + dir + "/x", "leave it out"},
		"no such cell":    {"--cells 2 --server 1=h --path 2=/a", "no such cell"},
		"secrets":         {"--cells 2 --server 1=h --secrets /nowhere", "are on their volumes"},
		"a bad policy":    {"--cells 2 --server 1=h --policy none", "--policy"},
		"two directories": {"--cells 2 --server 1=h x", "want DIR"},
	} {
		if r := run("", "", append([]string{"site", "init", dir}, strings.Fields(x.args)...)...); r.code != 2 || !strings.Contains(r.out+r.errs, x.problem) {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a refused init made the directory")
	}
}
