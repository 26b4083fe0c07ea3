// SPDX-License-Identifier: Apache-2.0

package sitemap_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// siteDir is the directory of a site of three cells, of which cell 2 has pinned names only.
func siteDir(t *testing.T) string {
	t.Helper()
	dir, id := t.TempDir(), cluster.ID{3}
	for name, text := range map[string]string{
		"SITE":      `{"format":1,"site_id":"` + id.String() + `","cells":[{"cell":0,"path":"cells/0"},{"cell":1,"path":"/else/where"},{"cell":2,"path":"cells/2"}]}`,
		"SITE.init": `{"format":1,"site_id":"` + id.String() + `","division":{"ranges":[{"from":"0000000000000000","cell":0},{"from":"8000000000000000","cell":1}],"pins":[{"prefix":"p/","cell":2}]},"servers":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(dir string) (*sitemap.Map, error) { return sitemap.Read(os.DirFS(dir), dir) }

// inPlainText is how a client reaches servers that it trusts by nothing.
func inPlainText(addresses []string, pin string) ([]string, error) {
	return (*join.Trust)(nil).Endpoints(addresses, pin)
}

func TestSiteOfADirectory(t *testing.T) {
	dir := siteDir(t)
	s, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(s.Cells), fmt.Sprintf("[{cell 0 [%s/cells/0]  <nil>} {cell 1 [/else/where]  <nil>} {cell 2 [%s/cells/2]  <nil>}]", dir, dir); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c := s.Of("p/x"); c.Cell != 2 {
		t.Errorf("p/x is of %v", c)
	}
	t.Chdir(filepath.Dir(dir))
	if s, err = read("./" + filepath.Base(dir)); err != nil || !join.IsPath(s.Cells[0].Endpoints[0]) {
		t.Errorf("of a relative path: %v, error %v", s, err)
	}
}

func TestSitesThatAreNone(t *testing.T) {
	for name, spoil := range map[string]func(string) string{
		"SITE":      func(s string) string { return strings.Replace(s, `"site_id":"03`, `"site_id":"04`, 1) },
		"SITE.init": func(s string) string { return strings.Replace(s, "0000000000000000", "0000000000000001", 1) },
	} {
		dir := siteDir(t)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(spoil(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err := read(dir); err == nil {
			t.Errorf("a bad %s is read as %v", name, s)
		}
	}
	if s, err := read(t.TempDir()); err == nil {
		t.Errorf("an empty directory is read as %v", s)
	}
}

// told is the status of a server of cell 0 of a site of two.
func told() *pb.StatusResponse {
	return &pb.StatusResponse{
		Cell: &pb.Cell{SiteId: cluster.ID{3}.String(), Version: 1, Ranges: []*pb.CellRange{{Cell: 0}, {From: 1 << 63, Cell: 1}}, Pins: []*pb.CellPin{{Prefix: "p/", Cell: 2}}},
		Cells: []*pb.CellServers{
			{Cell: 0, Clients: []string{"h1:1", "h2:1"}, ClusterId: "c0"},
			{Cell: 1, Clients: []string{"h1:2", "h2:2"}, ClusterId: "c1"},
		},
	}
}

func TestSiteOfAStatus(t *testing.T) {
	s, err := sitemap.Of(told(), nil, inPlainText)
	if got, want := fmt.Sprint(s.Cells, err), "[{cell 0 [h1:1 h2:1] c0 <nil>} {cell 1 [h1:2 h2:2] c1 <nil>} {cell 2 []  <nil>}] <nil>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r := told()
	r.Cells = nil
	if s, err := sitemap.Of(r, nil, inPlainText); s != nil || err != nil {
		t.Errorf("of no site: %v, error %v", s, err)
	}
	r = told()
	r.Cell = nil
	if s, err := sitemap.Of(r, nil, inPlainText); err == nil {
		t.Errorf("without a division: %v", s)
	}
	r = told()
	r.Cells[1].ClusterId = "" // it might be anybody
	if s, err := sitemap.Of(r, nil, inPlainText); err != nil || len(s.Cells[1].Endpoints) > 0 {
		t.Errorf("without a cluster: %v, error %v", s, err)
	}
}

// TestBadEndpoints of one cell say nothing of the others.
func TestBadEndpoints(t *testing.T) {
	r := told()
	r.Cells[1].Pin = "short"
	s, err := sitemap.Of(r, nil, inPlainText)
	if err != nil {
		t.Fatal(err)
	}
	if x := s.Cells[1]; x.Unusable == nil || len(x.Endpoints) > 0 {
		t.Errorf("a bad pin: %v", x)
	}
	if x := s.Cells[0]; x.Unusable != nil || len(x.Endpoints) != 2 {
		t.Errorf("the cell beside it: %v", x)
	}
}

// TestSiteThroughGateways: a cell is as far from the port of another one as their numbers are.
func TestSiteThroughGateways(t *testing.T) {
	r := told()
	r.Gateway = true
	for _, c := range r.Cells {
		c.Clients = nil
	}
	s, err := sitemap.Of(r, []string{"gw1:7601", "[::1]:7700", "/run/socket", "gw2:http"}, inPlainText)
	if got, want := fmt.Sprint(s.Cells, err), "[{cell 0 [gw1:7601 [::1]:7700] c0 <nil>} {cell 1 [gw1:7602 [::1]:7701] c1 <nil>} {cell 2 []  <nil>}] <nil>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, x := range []struct {
		at        string
		other, to cluster.CellID
		want      string
	}{
		{"h:7603", 3, 1, "[h:7601]"}, {"h:65535", 0, 1, "[]"}, {"h:2", 2, 0, "[]"}, {"h:3", 2, 0, "[h:1]"},
	} {
		if got := fmt.Sprint(sitemap.Through([]string{x.at}, x.other, x.to)); got != x.want {
			t.Errorf("%s of cell %d leads to cell %d at %s, want %s", x.at, x.other, x.to, got, x.want)
		}
	}
}
