// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/site"
)

// The server of a cell tells where all cells of its site are served. It is told for convenience: whom to ask may be wrong, or old, and
// who may answer is decided by the log of each cell. So another cell's volume is read beside all else, and never waited for.

// cellsEvery is how often a server reads who serves another cell.
const cellsEvery = 10 * time.Second

// ErrOtherCell refuses a volume that is a cell of a site, and not the one that is to be served. The wrapping error says what to do.
var ErrOtherCell = errors.New("this volume is not what this server is to serve")

// Site is where the cells of a site are.
type Site struct {
	ID  cluster.ID
	dir string
	// Cells are in the order of SITE.
	Cells []site.Cell
	// plan has the servers with which each cell was made, as far as that can be read.
	plan []cluster.Members
}

// ReadSite reads where the cells of the site in a directory are. It waits for the filesystem until ctx ends, and logs that.
func ReadSite(ctx context.Context, dir string, opt Options) (*Site, error) {
	opt.Volume = dir
	return atVolume(ctx, &opt, func() (*Site, error) {
		fsys, err := osfs.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w: is the share mounted? A new site is made with holdfast site init", dir, err)
		}
		defer fsys.Close() //nolint:errcheck // descriptors of directories
		s, err := site.Read(fsys)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w", dir, err)
		}
		r := &Site{ID: s.ID, dir: dir, Cells: s.Cells}
		if p, err := site.ReadPlan(fsys); err == nil && p.Site == s.ID {
			r.plan = p.Servers
		}
		return r, nil
	})
}

// Volume returns the directory of a cell's volume.
func (s *Site) Volume(k cluster.CellID) (string, error) {
	i := slices.IndexFunc(s.Cells, func(c site.Cell) bool { return c.Cell == k })
	if i < 0 {
		return "", fmt.Errorf("site %s has no %v", s.dir, k)
	}
	if path := s.Cells[i].Path; filepath.IsAbs(path) {
		return path, nil
	}
	return filepath.Join(s.dir, s.Cells[i].Path), nil
}

// planned returns what is known of a cell that was not read yet: the addresses that it was made with.
func (s *Site) planned(k cluster.CellID) serving.CellServers {
	if int(k) >= len(s.plan) {
		return serving.CellServers{Cell: k, Clients: []string{}}
	}
	return serving.CellServers{Cell: k, Clients: clientsOf(s.plan[k])}
}

// clientsOf returns where clients ask servers. One that joins answers them nothing yet.
func clientsOf(servers cluster.Members) []string {
	all := []string{}
	for _, m := range servers {
		if !m.Joining {
			all = append(all, m.Client)
		}
	}
	return all
}

// otherCells are the cells of a site, of which the one that is served knows its servers better. Methods may be called by any goroutine.
type otherCells struct {
	site *Site
	own  cluster.CellID
	owns *cluster.Own // what the volume says that it owns; nil until it was read
	// read has what was read of each cell last.
	read map[cluster.CellID]*atomic.Pointer[serving.CellServers]
}

// followCells reads who serves the cells until ctx ends. One whose volume hangs keeps its goroutine, and nothing else: it makes no second
// call there while one has not come back, and what it tells stays as it was. What a late call returns is told until the next one, and corrected then.
func followCells(ctx context.Context, s *Site, own cluster.CellID, read func(cluster.CellID) (serving.CellServers, error)) *otherCells {
	o := &otherCells{site: s, own: own, read: map[cluster.CellID]*atomic.Pointer[serving.CellServers]{}}
	for _, c := range s.Cells {
		p := new(atomic.Pointer[serving.CellServers])
		p.Store(new(s.planned(c.Cell)))
		o.read[c.Cell] = p
		go func() {
			t := time.NewTicker(cellsEvery)
			defer t.Stop()
			for ctx.Err() == nil {
				if now, err := read(c.Cell); err == nil {
					p.Store(&now)
				}
				select {
				case <-ctx.Done():
				case <-t.C:
				}
			}
		}()
	}
	return o
}

// tell returns where each cell is served, where own are the servers of this one.
func (o *otherCells) tell(own cluster.Members) []serving.CellServers {
	var all []serving.CellServers
	for _, c := range o.site.Cells {
		x := *o.read[c.Cell].Load()
		if c.Cell == o.own {
			x.Clients = clientsOf(own)
		}
		all = append(all, x)
	}
	return all
}

// readServers reads from the volume of a cell where clients ask its servers, and by what they know them.
func (s *Site) readServers(k cluster.CellID) (x serving.CellServers, err error) {
	dir, err := s.Volume(k)
	if err != nil {
		return x, err
	}
	fsys, err := osfs.Open(dir)
	if err != nil {
		return x, err
	}
	defer fsys.Close() //nolint:errcheck // descriptors of directories
	c, err := volume.ReadClusterNow(fsys)
	if err != nil {
		return x, err
	}
	if c.Cell != nil && (c.Cell.Site != s.ID || c.Cell.Cell != k) {
		return x, ErrOtherCell
	}
	x = serving.CellServers{Cell: k, Clients: clientsOf(c.Servers), ClusterID: c.ID.String()}
	if x.TLSOnly, err = volume.ClientTLSRequired(fsys); err != nil {
		return x, err
	}
	ca, err := volume.ReadCertificate(fsys)
	if errors.Is(err, volume.ErrNoAuthority) {
		return x, nil
	}
	if err != nil {
		return x, err
	}
	certificate, err := join.ParseCertificate(ca)
	if err != nil {
		return x, err
	}
	x.Pin = join.Pin(certificate)
	return x, nil
}

// ofCell sets the volume of the cell that is to be served, if it is one of a site, and has the others followed until ctx ends.
func (p *process) ofCell(ctx context.Context, opt *Options) error {
	if opt.Site == "" {
		return nil
	}
	s, err := ReadSite(ctx, opt.Site, *opt)
	if err != nil {
		return err
	}
	if opt.Volume, err = s.Volume(opt.Cell); err != nil {
		return err
	}
	p.cells = followCells(ctx, s, opt.Cell, s.readServers)
	return nil
}

// fits returns an error that wraps ErrOtherCell unless the volume is the cell that is to be served, or one of no site where none is to be.
// A cell is not served by itself, for such a server would send no client to the other cells.
func (p *process) fits(ctx context.Context, fsys *osfs.FS, c volume.Cluster, opt *Options) error {
	if p.cells == nil {
		if c.Cell == nil {
			return nil
		}
		return fmt.Errorf("%w: it is %v of a site: start it with --site %s --cell %d", ErrOtherCell, c.Cell.Cell, siteOf(opt.Volume), c.Cell.Cell)
	}
	own := c.Cell
	if own == nil { // a lost cell that was recovered into a new volume is what its log says
		s, err := volume.ReadState(ctx, fsys, nil)
		if err != nil {
			return err
		}
		own = s.Table.Own()
	}
	want := p.cells.site
	switch {
	case own == nil:
		return fmt.Errorf("%w: it is no cell of a site, and SITE in %s says that it is %v: correct its path there", ErrOtherCell, want.dir, opt.Cell)
	case own.Site != want.ID || own.Cell != opt.Cell:
		return fmt.Errorf("%w: it is %v of site %s, and SITE in %s says that it is %v of site %s: correct its path there", ErrOtherCell, own.Cell, own.Site, want.dir, opt.Cell, want.ID)
	}
	p.cells.owns = own
	return nil
}

// siteOf returns the directory of the site whose cell a volume is, DIR where it is not found.
func siteOf(dir string) string {
	dir = filepath.Dir(filepath.Dir(filepath.Clean(dir)))
	fsys, err := osfs.Open(dir)
	if err == nil {
		_, err = site.Read(fsys)
		err = errors.Join(err, fsys.Close())
	}
	if err != nil {
		return "DIR"
	}
	return dir
}
