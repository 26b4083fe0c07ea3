// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/site"
)

// makeSite makes a site of two cells, and a third one whose volume is elsewhere, with one server each, and returns its directory.
func makeSite(t *testing.T) (dir string, p site.Plan) {
	t.Helper()
	dir = t.TempDir()
	division, err := cluster.Divide(2, []cluster.Pin{{Prefix: "p/", Cell: 2}})
	if err != nil {
		t.Fatal(err)
	}
	p = site.Plan{Format: site.Format, Site: cluster.ID{7}, Division: division, Paths: map[cluster.CellID]string{2: t.TempDir()}}
	for k := range 3 {
		p.Servers = append(p.Servers, cluster.Members{{ID: 1, Client: fmt.Sprintf("h:%d", 1+k), Peer: fmt.Sprintf("h:%d", 11+k)}})
	}
	fsys := opened(t, dir)
	if _, err := site.Begin(fsys, p); err != nil {
		t.Fatal(err)
	}
	for k := range cluster.CellID(3) {
		path := p.Path(k)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := volume.InitCell(opened(t, path), volume.FeatureLevel, p.Servers[k], p.Own(k), rand.Reader, func(volume.Cluster) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := site.Finish(fsys, p); err != nil {
		t.Fatal(err)
	}
	return dir, p
}

func opened(t *testing.T, dir string) *osfs.FS {
	t.Helper()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() }) //nolint:errcheck // descriptors of directories
	return fsys
}

func told(o *otherCells) string {
	var all []string
	for _, x := range o.tell(cluster.Members{{ID: 1, Client: "own:1"}, {ID: 2, Client: "joins:1", Joining: true}}) {
		all = append(all, fmt.Sprint("{", x.Cell, " ", x.Clients, " ", x.ClusterID, " ", x.Pin, "}"))
	}
	return fmt.Sprint(all)
}

// TestOtherCellsAreFollowed: what SITE.init has is told until a cell was read, and what was read until something else is. A cell that hangs has one
// call under way at a time, and keeps no other from being read.
func TestOtherCellsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Site{Cells: []site.Cell{{Cell: 0}, {Cell: 1}, {Cell: 2}}, plan: []cluster.Members{{{Client: "a:1"}}, {{Client: "b:1"}}, {{Client: "c:1"}}}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var reads [3]atomic.Int32
		var inFlight atomic.Int32
		hangs := make(chan struct{})
		o := followCells(ctx, s, 0, func(k cluster.CellID) (x serving.CellServers, err error) {
			n := reads[k].Add(1)
			switch {
			case k == 0: // of which it knows the servers
			case k == 1:
				if inFlight.Add(1) > 1 {
					t.Error("two calls are under way in one cell")
				}
				<-hangs
				inFlight.Add(-1)
			case n == 1:
				return x, errors.New("not mounted yet")
			case n == 3:
				return x, errors.New("not mounted now")
			}
			return serving.CellServers{Cell: k, Clients: []string{fmt.Sprintf("%v:%d", k, n)}, ClusterID: "c"}, nil
		})
		for i, want := range []string{"[{cell 0 [own:1] c } {cell 1 [b:1]  } {cell 2 [c:1]  }]", "[{cell 0 [own:1] c } {cell 1 [b:1]  } {cell 2 [cell 2:2] c }]", "[{cell 0 [own:1] c } {cell 1 [b:1]  } {cell 2 [cell 2:2] c }]"} {
			synctest.Wait()
			if got := told(o); got != want {
				t.Errorf("%d: told %s, want %s", i, got, want)
			}
			time.Sleep(cellsEvery)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if hung, other := reads[1].Load(), reads[2].Load(); hung != 1 || other < 300 {
			t.Errorf("the cells were read %d and %d times", hung, other)
		}
		close(hangs)
		synctest.Wait()
		if got := told(o); !strings.Contains(got, "{cell 1 [cell 1:") {
			t.Errorf("after its calls came back, told %s", got)
		}
	})
}

// TestCellsAreReadFromTheirVolumes, where members come and go, and not from those that are of another site, or another cell.
func TestCellsAreReadFromTheirVolumes(t *testing.T) {
	dir, p := makeSite(t)
	s, err := ReadSite(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.readServers(2); err != nil || fmt.Sprint(got.Clients, len(got.ClusterID), got.TLSOnly) != "[h:3] 32 false" {
		t.Errorf("as it was made: %v, %v", got, err)
	}
	fsys := opened(t, p.Paths[2])
	c, err := volume.ReadCluster(fsys)
	if err != nil {
		t.Fatal(err)
	}
	list := cluster.FirstMembership(c.Servers)
	for _, x := range []cluster.MemberChange{
		{Kind: cluster.SetServer, Server: cluster.Member{ID: 1, Client: "new:1", Peer: "new:2"}}, {Kind: cluster.AddServer, Server: cluster.Member{ID: 2, Client: "joins:1", Peer: "joins:2"}},
	} {
		if list, err = list.With(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.Replace("MEMBERS", func(w io.Writer) error { _, err := io.WriteString(w, cluster.MembersText(c.ID, 1, list)); return err }); err != nil {
		t.Fatal(err)
	}
	if err := volume.RequireClientTLS(fsys); err != nil {
		t.Fatal(err)
	}
	if got, err := s.readServers(2); err != nil || fmt.Sprint(got.Clients, got.TLSOnly) != "[new:1] true" {
		t.Errorf("with another list: %v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "cells/1")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.readServers(1); err == nil {
		t.Errorf("a lost cell: %v", got)
	}
	if err := os.Symlink("0", filepath.Join(dir, "cells/1")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.readServers(1); !errors.Is(err, ErrOtherCell) {
		t.Errorf("another cell: %v, %v", got, err)
	}
	if _, err := s.readServers(3); err == nil || !strings.Contains(err.Error(), "has no cell 3") {
		t.Errorf("no cell: %v", err)
	}
}

// TestOnlyTheRightCellIsServed: what is refused says how to do it.
func TestOnlyTheRightCellIsServed(t *testing.T) {
	dir, p := makeSite(t)
	plain := t.TempDir()
	if _, err := volume.Init(t.Context(), opened(t, plain), p.Servers[0], rand.Reader); err != nil {
		t.Fatal(err)
	}
	at := func(k int) string { return filepath.Join(dir, fmt.Sprintf("cells/%d", k)) }
	for _, x := range []struct {
		what string
		opt  Options
		at   string // where the volume is then
		want string // "" = it is served
	}{
		{"a volume of no site", Options{Volume: plain}, "", ""},
		{"a cell by itself", Options{Volume: at(1)}, "", "it is cell 1 of a site: start it with --site " + dir + " --cell 1"},
		{"a cell elsewhere by itself", Options{Volume: p.Paths[2]}, "", "it is cell 2 of a site: start it with --site DIR --cell 2"},
		{"a cell", Options{Site: dir, Cell: 1}, at(1), ""},
		{"a cell elsewhere", Options{Site: dir, Cell: 2}, p.Paths[2], ""},
		{"a cell that is not there", Options{Site: dir, Cell: 3}, "", "has no cell 3"},
		{"no site", Options{Site: plain}, "", "no SITE file here"},
		{"another cell", Options{Site: siteWith(t, dir, at(0)), Cell: 1}, at(0), "it is cell 0 of site 07"},
		{"no cell", Options{Site: siteWith(t, dir, plain), Cell: 1}, plain, "it is no cell of a site, and SITE in "},
	} {
		var p process
		opt := x.opt
		opt.Log, opt.open = zerolog.New(t.Output()), osfs.Open
		err := p.ofCell(t.Context(), &opt)
		if err == nil {
			var fsys *osfs.FS
			if fsys, _, err = openVolume(t.Context(), &opt, &p); err == nil {
				err = fsys.Close()
			}
		}
		if x.at != "" && opt.Volume != x.at {
			t.Errorf("%s: the volume is %s", x.what, opt.Volume)
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.what, err, x.want)
		}
		if err == nil && opt.Site != "" && (p.cells.owns == nil || p.cells.owns.Cell != opt.Cell) {
			t.Errorf("%s: it owns %v", x.what, p.cells.owns)
		}
	}
}

// siteWith returns a site that is like that in dir, where SITE says that cell 1 is elsewhere.
func siteWith(t *testing.T, dir, elsewhere string) string {
	t.Helper()
	other := t.TempDir()
	b, err := os.ReadFile(filepath.Join(dir, site.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, site.Name), []byte(strings.Replace(string(b), "cells/1", elsewhere, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return other
}
