// SPDX-License-Identifier: Apache-2.0

// Package site makes and reads the directory of a site: several volumes, its cells, which divide the names of locks and protected
// files among them.
//
//	SITE.init   what the site is made with; published complete, by one link; it stays
//	cells/<k>/  the volume of cell k, of which CLUSTER says what it owns; it may be elsewhere
//	SITE        where the directories of the cells are; linked when all of them are volumes
//
// Nothing is decided by these two files once the volumes are there: a cell owns what its own log says. SITE only says where to look, and
// may be written anew by hand.
package site

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// Name is the file that makes a directory a site.
	Name = "SITE"
	// PlanName is the file with what a site is made with.
	PlanName = "SITE.init"
	// CellsDir is the directory in which init makes the volumes.
	CellsDir = "cells"
	// Format is that of both files.
	Format = 1

	tmpPrefix = "SITE-"
	tmpSuffix = ".tmp"
)

var (
	// ErrExists means that the directory is a site already.
	ErrExists = errors.New("this directory is a Holdfast site already")
	// ErrNoSite means that the directory holds no site.
	ErrNoSite = errors.New("no SITE file here: not a Holdfast site, or the filesystem is not mounted, or holdfast site init did not end: type that again")
)

// Plan is the content of SITE.init: what a site is made with.
type Plan struct {
	Format   int              `json:"format"`
	Site     cluster.ID       `json:"site_id"`
	Division cluster.Division `json:"division"`
	// Servers are those of each cell, by its number.
	Servers []cluster.Members `json:"servers"`
	// Paths are the directories of the volumes that are not at CellPath: absolute, so they may be on another filesystem.
	Paths map[cluster.CellID]string `json:"paths,omitempty"`
}

// Path returns the path of a cell's volume, relative to the site or absolute.
func (p *Plan) Path(cell cluster.CellID) string { return cmp.Or(p.Paths[cell], CellPath(cell)) }

// Own returns what a cell of the plan owns.
func (p *Plan) Own(cell cluster.CellID) *cluster.Own {
	return &cluster.Own{Site: p.Site, Cell: cell, Version: 1, Division: p.Division}
}

func (p *Plan) text() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // numbers and texts: it cannot happen
	}
	return string(b)
}

// Validate checks that the plan has servers for each cell, that no address is that of two, and that no volume is within another.
func (p *Plan) Validate() error {
	if p.Format != Format {
		return fmt.Errorf("%s has format %d, this binary knows %d", PlanName, p.Format, Format)
	}
	if err := p.Division.Validate(); err != nil {
		return err
	}
	cells := p.Division.Cells()
	if n := len(cells); int(cells[n-1]) != n-1 || len(p.Servers) != n {
		return fmt.Errorf("there are servers for %d cells, and names for cells %v", len(p.Servers), cells)
	}
	if err := p.checkPaths(); err != nil {
		return err
	}
	used := map[string]string{}
	for k, servers := range p.Servers {
		if err := servers.Validate(); err != nil {
			return fmt.Errorf("%v: %w", cluster.CellID(k), err)
		}
		for _, m := range servers {
			for _, addr := range []string{m.Client, m.Peer} {
				of := fmt.Sprintf("server %d of %v", m.ID, cluster.CellID(k))
				if other, taken := used[addr]; taken {
					return fmt.Errorf("%s and %s share the address %s: leave more ports between clients and servers", other, of, addr)
				}
				used[addr] = of
			}
		}
	}
	return nil
}

// checkPaths checks the paths of volumes by themselves.
func (p *Plan) checkPaths() error {
	for _, k := range slices.Sorted(maps.Keys(p.Paths)) {
		at := p.Paths[k]
		if int(k) >= len(p.Servers) {
			return fmt.Errorf("there is a path for %v, and no such cell", k)
		}
		if !path.IsAbs(at) || at != path.Clean(at) || at == "/" {
			return fmt.Errorf("%v: %q is not the absolute path of a directory, without .. and such", k, at)
		}
		for other, x := range p.Paths {
			if other != k && strings.HasPrefix(at+"/", x+"/") {
				return fmt.Errorf("%v would be at %s, and %v at %s: give each a directory beside the other", other, x, k, at)
			}
		}
	}
	return nil
}

// Site is the content of SITE.
type Site struct {
	Format int        `json:"format"`
	ID     cluster.ID `json:"site_id"`
	Cells  []Cell     `json:"cells"`
}

// Cell says where the volume of a cell is.
type Cell struct {
	Cell cluster.CellID `json:"cell"`
	// Path is relative to the directory of the site, or absolute.
	Path string `json:"path"`
}

// CellPath returns the path, relative to the site, at which init makes the volume of a cell.
func CellPath(cell cluster.CellID) string { return path.Join(CellsDir, fmt.Sprint(uint32(cell))) }

// Read returns the content of SITE. It returns ErrNoSite if there is none.
func Read(fsys vfs.FS) (s Site, err error) {
	b, err := vfs.ReadFile(fsys, Name, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNoSite
	}
	if err != nil {
		return s, fmt.Errorf("read %s: %w", Name, err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", Name, err)
	}
	if s.Format != Format {
		return s, fmt.Errorf("%s has format %d, this binary knows %d: use a matching binary", Name, s.Format, Format)
	}
	if len(s.Cells) == 0 {
		return s, fmt.Errorf("%s names no cell", Name)
	}
	return s, nil
}

// Begin makes an empty directory the beginning of a site, or finds that of an init that did not end, and returns its plan: p, or, with
// another site ID, that of the init which was first. It returns ErrExists where an init has ended, and an error if another one began here
// with something else. The link of SITE.init decides between two at the same time.
func Begin(fsys vfs.FS, p Plan) (Plan, error) {
	if err := p.Validate(); err != nil {
		return p, err
	}
	if err := refuseUsed(fsys); err != nil {
		return p, err
	}
	if err := publish(fsys, p.Site, PlanName, p); err != nil && !errors.Is(err, fs.ErrExist) {
		return p, fmt.Errorf("site init: %w", err)
	}
	begun, err := ReadPlan(fsys)
	if err != nil {
		return p, fmt.Errorf("site init: %w", err)
	}
	p.Site = begun.Site
	if begun.text() != p.text() {
		return begun, errors.New("site init: another init began here with other cells, pins, paths or servers: repeat that one or empty the directory")
	}
	if err := fsys.Mkdir(CellsDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return begun, fmt.Errorf("site init: %w", err)
	}
	return begun, fsys.SyncDir(".")
}

// Finish makes the directory a site. The caller has made the volumes of all cells of the plan before.
func Finish(fsys vfs.FS, p Plan) error {
	s := Site{Format: Format, ID: p.Site}
	for _, c := range p.Division.Cells() {
		s.Cells = append(s.Cells, Cell{Cell: c, Path: p.Path(c)})
	}
	for _, dir := range []string{CellsDir, "."} {
		if err := fsys.SyncDir(dir); err != nil {
			return fmt.Errorf("site init: %w", err)
		}
	}
	if err := publish(fsys, p.Site, Name, s); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("site init: %w", err)
	}
	if there, err := Read(fsys); err != nil || there.ID != p.Site {
		return fmt.Errorf("site init: %s is that of site %s: %w", Name, there.ID, errors.Join(err, ErrExists))
	}
	return fsys.SyncDir(".")
}

// publish creates a file with this content, complete and durable, unless there is one: then the error wraps fs.ErrExist.
func publish(fsys vfs.FS, id cluster.ID, name string, content any) error {
	b, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	tmp := tmpPrefix + name + "-" + id.String() + tmpSuffix
	if err := vfs.IgnoreMissing(fsys.Remove(tmp)); err != nil { // of an init that was cut off here
		return err
	}
	if err := vfs.CreateFile(fsys, tmp, append(b, '\n')); err != nil {
		return err
	}
	err = fsys.Link(tmp, name)
	if err != nil {
		if _, statErr := fsys.Lstat(name); statErr == nil { // whatever the link returned: there is one
			err = fs.ErrExist
		}
	}
	_ = fsys.Remove(tmp) // what stays only takes space
	return err
}

// ReadPlan returns the content of SITE.init, with which a site was made.
func ReadPlan(fsys vfs.FS) (p Plan, err error) {
	b, err := vfs.ReadFile(fsys, PlanName, vfs.FlagRead)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("read %s: %w", PlanName, err)
	}
	return p, p.Validate()
}

// refuseUsed returns an error unless the directory is empty or has what an init left that did not end.
func refuseUsed(fsys vfs.FS) error {
	if _, err := fsys.Lstat(Name); err == nil {
		return ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("site init: %w", err)
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return fmt.Errorf("site init: %w", err)
	}
	begun := false
	for _, x := range entries {
		if x.Name == Name { // linked meanwhile
			return ErrExists
		}
		begun = begun || x.Name == PlanName
	}
	for _, x := range entries {
		ours := x.Name == PlanName || x.Name == "lost+found" || strings.HasPrefix(x.Name, tmpPrefix) && strings.HasSuffix(x.Name, tmpSuffix)
		if !ours && (x.Name != CellsDir || !begun) {
			return fmt.Errorf("site init: the directory is not empty: it holds %q; give an empty one", x.Name)
		}
	}
	return nil
}
