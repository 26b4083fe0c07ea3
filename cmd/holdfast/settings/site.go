// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// AllCells as a cell means all of a site.
const AllCells = -1

// Complete returns an error if the settings without which no server runs are not set, or contradict each other.
func (s *Server) Complete() error {
	switch {
	case s.ID == 0 || s.Volume == "" && s.Site == "":
		return errors.New("server: --id and --volume are needed, or --id and --site, as flags, in --config or in the environment")
	case s.Volume != "" && s.Site != "":
		return fmt.Errorf("server: volume (%s) and site (%s) are set: a server is one of a volume, or of a site; leave one out", s.OriginOf("volume"), s.OriginOf("site"))
	case s.Site == "" && s.Cell != AllCells:
		return errors.New("server: cell is set and site is not: give --site DIR, too")
	case s.Site == "":
		return nil
	case s.Secrets != "":
		return errors.New("server: secrets: those of a site's cells are on their volumes; leave it out")
	}
	if names, _ := s.Deprecated(); len(names) > 0 {
		return fmt.Errorf("server: %s is deprecated, and there is none with --site: the address for clients serves WebSocket and lines of text, too", names[0])
	}
	return nil
}

// Places are the settings that no two processes of a host can share.
type Places struct{ DataDir, Listen, MetricsListen, Unix string }

// PlacesOf returns the places of the server of a cell: of what is set for the site, ports are by the number of the cell higher, as those that
// site init gives are, and paths have that number at the end. AllCells is for the server of a volume, which has them as they are set.
func (s *Server) PlacesOf(cell int) (p Places, err error) {
	p = Places{s.DataDir, s.Listen, s.MetricsListen, s.Unix}
	if cell == AllCells {
		return p, nil
	}
	k := cluster.CellID(cell)
	if p.Listen, err = PortOf(s.Listen, k); err != nil {
		return p, fmt.Errorf("listen: %w", err)
	}
	if p.MetricsListen, err = PortOf(s.MetricsListen, k); err != nil {
		return p, fmt.Errorf("metrics-listen: %w", err)
	}
	if s.DataDir != "" && s.DataDir != serve.NoDataDir {
		p.DataDir = filepath.Join(s.DataDir, fmt.Sprintf("cell-%d", cell))
	}
	if s.Unix != "" {
		p.Unix = fmt.Sprintf("%s.%d", s.Unix, cell)
	}
	return p, nil
}

// PortOf returns an address whose port is by the number of a cell higher. Port 0, which the system chooses, stays, and so does no address.
func PortOf(addr string, k cluster.CellID) (string, error) {
	if addr == "" {
		return "", nil
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("%s: use a number for the port", addr)
	}
	if port == 0 {
		return addr, nil
	}
	if port += int(k); port >= 1<<16 {
		return "", fmt.Errorf("%v would have port %d at %s: use lower ports", k, port, host)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}
