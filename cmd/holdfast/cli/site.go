// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/site"
)

func (a *app) siteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "site", Short: "Several volumes that divide the names of locks and files among them",
		Long: `A site is several volumes, its cells, which divide the names of locks and protected files among them. Each cell
has its own log, primary and tokens, so that a site does more than one volume can. Each name belongs to one cell, for ever:
by a pinned prefix, else by a hash of the text in its first {}, else of the whole name. A cell refuses what others have, with
status WRONG_CELL. Most users need no site: one volume does tens of thousands of operations a second.`,
		Args: unknownCommand, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.siteInitCommand(), a.siteStatusCommand())
	return c
}

type siteInitResult struct {
	Status string      `json:"status"`
	Site   string      `json:"site"`
	SiteID cluster.ID  `json:"site_id"`
	Cells  []madeCell  `json:"cells"`
	Pins   []pinResult `json:"pins"`
}

type madeCell struct {
	Cell      cluster.CellID  `json:"cell"`
	Volume    string          `json:"volume"`
	ClusterID cluster.ID      `json:"cluster_id"`
	Servers   cluster.Members `json:"servers"`
}

type pinResult struct {
	Prefix string         `json:"prefix"`
	Cell   cluster.CellID `json:"cell"`
}

func pinResults(pins []cluster.Pin) []pinResult {
	all := []pinResult{}
	for _, p := range pins {
		all = append(all, pinResult(p))
	}
	return all
}

func (a *app) siteInitCommand() *cobra.Command {
	var n int
	var servers, pins, paths []string
	e := &equipment{}
	c := &cobra.Command{
		Use: "init --cells N DIR --server 1=HOST --server 2=HOST --server 3=HOST", Args: exactly("DIR"),
		Short: "Make an empty directory on the share a site of N cells",
		Long: `Make an empty directory on the share a site of N cells: SITE, which says where they are, and the volumes DIR/cells/0
to N-1. Once, from any host, as the user that the servers run as. If it is interrupted, type it again.

Cells divide names by equal ranges of their hash. With --pin PREFIX=CELL, all names that begin with PREFIX belong to that cell, wherever
their hash is; a CELL above N-1 has pinned names only. None of that changes later, so choose it with care: names of
a lock and of its files have to be of one cell, by the same {tag} in them or by one pinned prefix.

With --path CELL=PATH the volume of that cell is at this absolute path, such as one on another filesystem, on all hosts.

Each cell has servers of its own: holdfast server --id N --site DIR runs those of one host. HOST and ports are as for holdfast init,
those of cell K by K higher. The other flags are those of holdfast init, for all cells.`,
		RunE: func(c *cobra.Command, args []string) error {
			if a.secrets != "" {
				return usagef("--secrets: the secrets of a site's cells are on their volumes")
			}
			if err := e.check(c); err != nil {
				return err
			}
			p, err := planSite(n, servers, pins, paths)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			for k, path := range p.Paths {
				if strings.HasPrefix(path+"/", dir+"/") {
					return usagef("--path: %v is at %s in the site without it: leave it out, or give one outside of %s", k, filepath.Join(dir, site.CellPath(k)), dir)
				}
			}
			r, err := makeSite(dir, p, e)
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) { siteInitText(w, r) })
		},
	}
	c.Flags().IntVar(&n, "cells", 0, "how many cells divide the names by their hash")
	c.Flags().StringArrayVar(&servers, "server", nil, "a server of each cell, see above; once for each")
	c.Flags().StringArrayVar(&pins, "pin", nil, "PREFIX=CELL, for each pinned prefix")
	c.Flags().StringArrayVar(&paths, "path", nil, "CELL=PATH, for each cell whose volume is not in DIR")
	e.flags(c)
	required(c, "cells", "server")
	return c
}

// planSite returns the plan of a site, with an ID that it draws.
func planSite(n int, servers, pins, paths []string) (site.Plan, error) {
	p := site.Plan{Format: site.Format}
	members, err := parseServers(servers)
	if err != nil {
		return p, err
	}
	if p.Paths, err = parsePaths(paths); err != nil {
		return p, err
	}
	var pinned []cluster.Pin
	for _, text := range pins {
		pin, err := cluster.ParsePin(text)
		if err != nil {
			return p, usagef("--pin: %v", err)
		}
		pinned = append(pinned, pin)
	}
	if p.Division, err = cluster.Divide(n, pinned); err != nil {
		return p, usagef("%v", err)
	}
	for _, c := range p.Division.Cells() {
		its := make(cluster.Members, len(members))
		for i, m := range members {
			if its[i], err = atCell(m, c); err != nil {
				return p, err
			}
		}
		p.Servers = append(p.Servers, its)
	}
	if _, err := io.ReadFull(rand.Reader, p.Site[:]); err != nil {
		return p, fmt.Errorf("draw a site ID: %w", err)
	}
	if err := p.Validate(); err != nil {
		return p, usagef("%v", err)
	}
	return p, nil
}

// parsePaths parses --path flags.
func parsePaths(flags []string) (map[cluster.CellID]string, error) {
	var all map[cluster.CellID]string
	for _, f := range flags {
		cell, path, ok := strings.Cut(f, "=")
		k, err := strconv.ParseUint(cell, 10, 8)
		if !ok || err != nil {
			return nil, usagef("--path %q: use CELL=PATH, with the number of a cell", f)
		}
		if all == nil {
			all = map[cluster.CellID]string{}
		}
		if _, twice := all[cluster.CellID(k)]; twice {
			return nil, usagef("--path: there are two for %v", cluster.CellID(k))
		}
		all[cluster.CellID(k)] = filepath.Clean(path)
	}
	return all, nil
}

// atCell returns the server of a cell on the same host, whose ports are by the number of the cell higher.
func atCell(m cluster.Member, c cluster.CellID) (cluster.Member, error) {
	client, err := shifted(m.Client, c)
	if err != nil {
		return m, err
	}
	peer, err := shifted(m.Peer, c)
	return cluster.Member{ID: m.ID, Client: client, Peer: peer}, err
}

// shifted is settings.PortOf with the error of a flag.
func shifted(addr string, k cluster.CellID) (string, error) {
	at, err := settings.PortOf(addr, k)
	if err != nil {
		return "", usagef("--server: %v", err)
	}
	return at, nil
}

// makeSite makes the directory, if its parent is there, and in it the site of the plan, or finishes the one that was begun there.
func makeSite(dir string, p site.Plan, e *equipment) (*siteInitResult, error) {
	if err := notInside(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read from here on
	if p, err = site.Begin(f, p); errors.Is(err, site.ErrExists) {
		return nil, fmt.Errorf("%s: %w: see holdfast site status, or give another directory", dir, err)
	} else if err != nil {
		return nil, err
	}
	r := &siteInitResult{Status: cluster.StatusOK.String(), Site: dir, SiteID: p.Site, Pins: pinResults(p.Division.Pins)}
	for _, cell := range p.Division.Cells() {
		path := p.Path(cell)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		c, err := makeCell(path, p.Servers[cell], p.Own(cell), e)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", cell, err)
		}
		r.Cells = append(r.Cells, madeCell{Cell: cell, Volume: path, ClusterID: c.ID, Servers: c.Servers})
	}
	return r, site.Finish(f, p)
}

// makeCell makes the volume of a cell, unless an init that did not end has made it.
func makeCell(dir string, servers cluster.Members, own *cluster.Own, e *equipment) (volume.Cluster, error) {
	c, err := makeVolume(dir, servers, own, e)
	if !errors.Is(err, volume.ErrExists) {
		return c, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return c, err
	}
	if c, err = volume.ReadCluster(f); err == nil && (c.Cell == nil || c.Cell.Text() != own.Text()) {
		err = fmt.Errorf("%s is another volume: give an empty directory", dir)
	}
	return c, errors.Join(err, f.Close())
}

func siteInitText(w io.Writer, r *siteInitResult) {
	fmt.Fprintf(w, "%s is site %s of %d cells\n", r.Site, r.SiteID, len(r.Cells))
	for _, p := range r.Pins {
		fmt.Fprintf(w, "pinned: names that begin with %q belong to %v\n", p.Prefix, p.Cell)
	}
	for _, c := range r.Cells {
		fmt.Fprintf(w, "%v, cluster %s\n", c.Cell, c.ClusterID)
		for _, m := range c.Servers {
			fmt.Fprintf(w, "  server %d:          clients %s, peers %s\n", m.ID, m.Client, m.Peer)
		}
	}
	for _, m := range r.Cells[0].Servers {
		fmt.Fprintf(w, "start on its host:     holdfast server --id %d --site %s   (a server of each cell)\n", m.ID, r.Site)
	}
	fmt.Fprintf(w, "and for clients:       export HOLDFAST_ENDPOINTS=%s\n", r.Site)
	fmt.Fprintf(w, "which cell has a lock:  holdfast site status %s --lock NAME\n", r.Site)
}

type siteStatus struct {
	Status string       `json:"status"`
	Site   string       `json:"site"`
	SiteID cluster.ID   `json:"site_id"`
	Cells  []cellStatus `json:"cells"`
	Pins   []pinResult  `json:"pins"`
	// Problems say why names may have no cell, or two; empty if each has one.
	Problems []string `json:"problems"`
	// Name is the one that was asked for, and Has the cell that has it; nil without one.
	Name string          `json:"name,omitempty"`
	Has  *cluster.CellID `json:"cell,omitempty"`
}

type cellStatus struct {
	Cell    cluster.CellID  `json:"cell"`
	Volume  string          `json:"volume"`
	Version uint64          `json:"version"`
	Epoch   cluster.Epoch   `json:"epoch"`
	LSN     cluster.LSN     `json:"lsn"`
	Locks   int             `json:"locks"`
	Servers cluster.Members `json:"servers"`
	Problem string          `json:"problem,omitempty"`
}

func (a *app) siteStatusCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "status DIR", Args: exactly("DIR"),
		Short: "Show the cells of a site, and whether each name has one",
		Long: `Show the cells of a site, as their volumes have it, and whether each name has exactly one. It only reads, and needs no
server. With --lock NAME it shows which cell has a lock or a protected file of that name. The exit code is 1 if a cell cannot be read,
or if names have no cell, or two.`,
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			r, err := readSite(c.Context(), dir, name)
			if err != nil {
				return err
			}
			if len(r.Problems) > 0 {
				a.code = exitFindings
			}
			return a.print(r, func(w io.Writer) { siteStatusText(w, r) })
		},
	}
	c.Flags().StringVar(&name, "lock", "", "show which cell has this name")
	return c
}

// readSite reads SITE and what each cell says of itself.
func readSite(ctx context.Context, dir, name string) (*siteStatus, error) {
	f, err := osfs.Open(dir)
	if err != nil {
		return nil, err
	}
	s, err := site.Read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	r := &siteStatus{Status: cluster.StatusOK.String(), Site: dir, SiteID: s.ID, Pins: []pinResult{}, Problems: []string{}, Name: name}
	var m cluster.SiteMap
	for _, x := range s.Cells {
		path := x.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		cell, own, err := readCell(ctx, path)
		cell.Cell = x.Cell
		switch {
		case err != nil:
		case own == nil:
			err = errors.New("this volume is no cell of a site")
		case own.Cell != x.Cell || own.Site != s.ID:
			err = fmt.Errorf("SITE says that this is %v of site %s, and it says that it is %v of site %s", x.Cell, s.ID, own.Cell, own.Site)
		default:
			err = m.Learn(own)
		}
		if err != nil {
			cell.Problem = err.Error()
			r.Problems = append(r.Problems, fmt.Sprintf("%v, %s: %v", x.Cell, path, err))
		}
		r.Cells = append(r.Cells, cell)
	}
	if err := m.Check(); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	if all := m.Cells(); len(all) > 0 {
		r.Pins = pinResults(all[0].Pins)
	}
	if has, known := m.Route(name); name != "" && known {
		r.Has = &has
	}
	return r, nil
}

// readCell reads the volume of a cell, and what its log says that it owns; CLUSTER, while no server has begun.
func readCell(ctx context.Context, dir string) (c cellStatus, own *cluster.Own, err error) {
	c = cellStatus{Volume: dir, Servers: cluster.Members{}}
	if _, err := os.Stat(dir); err != nil {
		return c, nil, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return c, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := volume.ReadState(ctx, f, nil)
	if err != nil {
		return c, nil, err
	}
	own = cmp.Or(s.Table.Own(), s.Cluster.Cell)
	c.Epoch, c.LSN, c.Locks, c.Servers = s.Epoch, s.LSN, s.Table.LockCount(), s.Table.MembersOr(s.Cluster.Servers).Servers
	if own != nil {
		c.Version = own.Version
	}
	return c, own, s.Cluster.FitsCell(s.Table)
}

func siteStatusText(w io.Writer, r *siteStatus) {
	fmt.Fprintf(w, "%s is site %s of %d cells\n", r.Site, r.SiteID, len(r.Cells))
	table(w, func(row func(...any)) {
		row("CELL", "VOLUME", "EPOCH", "LSN", "LOCKS", "CLIENTS", "NOTE")
		for _, c := range r.Cells {
			var clients []string
			for _, m := range c.Servers {
				clients = append(clients, m.Client)
			}
			row(uint32(c.Cell), c.Volume, c.Epoch, c.LSN, c.Locks, cmp.Or(strings.Join(clients, ","), "-"), c.Problem)
		}
	})
	for _, p := range r.Pins {
		fmt.Fprintf(w, "pinned: names that begin with %q belong to %v\n", p.Prefix, p.Cell)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "PROBLEM: %s\n", p)
	}
	if r.Has != nil {
		fmt.Fprintf(w, "%q belongs to %v\n", r.Name, *r.Has)
	}
}
