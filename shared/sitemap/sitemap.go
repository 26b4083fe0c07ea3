// SPDX-License-Identifier: Apache-2.0

// Package sitemap is the map of a site, for clients: where its cells are, several clusters that divide the names of locks and files among
// them (docs/PROTOCOL.md, section 23). It says where to ask. Who may answer is decided by the cell that is asked.
package sitemap

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Map is where the cells of a site are.
type Map struct {
	Division cluster.Division
	// Cells has an entry for each cell of the division, in the order of their numbers.
	Cells []Cell
}

// Cell is where one cell is.
type Cell struct {
	Cell cluster.CellID
	// Endpoints are those of a client of this cell; none = they are not known.
	Endpoints []string
	// ClusterID is that of its servers; "" where whoever is at the endpoints is taken for them.
	ClusterID string
	// Unusable is why what a server told of the cell is no use; nil where it is, and where none told anything.
	Unusable error
}

// Of returns the cell that has a name.
func (m *Map) Of(name string) Cell { return m.Cell(m.Division.Route(name)) }

// Cell returns a cell by its number.
func (m *Map) Cell(id cluster.CellID) Cell {
	for _, c := range m.Cells {
		if c.Cell == id {
			return c
		}
	}
	return Cell{Cell: id}
}

// complete adds cells of which only the division tells.
func (m *Map) complete() {
	said := *m
	m.Cells = nil
	for _, id := range m.Division.Cells() {
		m.Cells = append(m.Cells, said.Cell(id))
	}
}

// The files in the directory of a site: where its cells are, and what it was made with.
const (
	siteFile = "SITE"
	planFile = "SITE.init"
)

// Read reads the directory of a site, which a client has at dir. The endpoint of each cell is the path of its volume.
func Read(fsys fs.FS, dir string) (*Map, error) {
	var where struct {
		ID    cluster.ID `json:"site_id"`
		Cells []struct {
			Cell cluster.CellID `json:"cell"`
			Path string         `json:"path"`
		} `json:"cells"`
	}
	var plan struct {
		ID       cluster.ID       `json:"site_id"`
		Division cluster.Division `json:"division"`
	}
	for name, to := range map[string]any{siteFile: &where, planFile: &plan} {
		b, err := fs.ReadFile(fsys, name)
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %s: %w", dir, name, err)
		}
	}
	m := &Map{Division: plan.Division}
	if err := m.Division.Validate(); err != nil {
		return nil, fmt.Errorf("endpoint %s: %s: %w", dir, planFile, err)
	}
	if where.ID != plan.ID {
		return nil, fmt.Errorf("endpoint %s: %s is of site %s, and %s of site %s", dir, siteFile, where.ID, planFile, plan.ID)
	}
	for _, c := range where.Cells {
		path := c.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if !filepath.IsAbs(path) && !strings.HasPrefix(path, "../") { // Join took the dot that makes it an endpoint
			path = "./" + path
		}
		m.Cells = append(m.Cells, Cell{Cell: c.Cell, Endpoints: []string{path}})
	}
	m.complete()
	return m, nil
}

// Of returns the map of the site of which a server tells in its status. Asked are the addresses at which it was asked: where those are gateways, so are
// the ones of other cells. Endpoints are those by which to reach the servers of another cell, of
// which this one tells; see join.Trust.Endpoints. It returns nil if the server is of no site, and an error if it does not tell which cell has which names.
func Of(r *pb.StatusResponse, asked []string, endpoints func(addresses []string, pin string) ([]string, error)) (*Map, error) {
	own, err := wire.OwnOf(r.GetCell())
	switch {
	case len(r.GetCells()) == 0:
		return nil, nil
	case err != nil:
		return nil, err
	case own == nil:
		return nil, fmt.Errorf("server %d tells of the cells of a site, and not which one has which names: is it of another version?", r.GetServerId())
	}
	m := &Map{Division: own.Division}
	for _, c := range r.GetCells() {
		id, clients := cluster.CellID(c.GetCell()), c.GetClients()
		if r.GetGateway() {
			clients = Through(asked, own.Cell, id)
		}
		if c.GetClusterId() == "" || len(clients) == 0 {
			continue // whoever is there may be anybody
		}
		x := Cell{Cell: id, ClusterID: c.GetClusterId()}
		if x.Endpoints, x.Unusable = endpoints(clients, c.GetPin()); x.Unusable != nil { // it is the trouble of whoever needs that cell
			x.Endpoints = nil
		}
		m.Cells = append(m.Cells, x)
	}
	m.complete()
	return m, nil
}

// Through returns the addresses by which gateways lead to a cell, of those by which they lead to another one: they have a port for each cell, and these
// are as far from each other as the numbers of the cells. It leaves out what cannot be one.
func Through(gateways []string, other, to cluster.CellID) []string {
	var all []string
	for _, a := range gateways {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(port)
		if n += int(to) - int(other); err == nil && n > 0 && n <= math.MaxUint16 {
			all = append(all, net.JoinHostPort(host, strconv.Itoa(n)))
		}
	}
	return all
}
