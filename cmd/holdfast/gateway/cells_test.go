// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// siteOf is a site of three cells, of which 0 and 1 have a server each that is the primary, and nobody has ever read the volume of cell 2.
type siteOf struct {
	t    *testing.T
	said *fakes
	at   []*backend
}

// clusterOf returns the ID of a cell's cluster.
func clusterOf(cell int) string { return cluster.ID{byte(cell) + 1}.String() }

func newSiteOf(t *testing.T) *siteOf {
	t.Helper()
	s := &siteOf{t, &fakes{say: map[string]*pb.StatusResponse{}}, []*backend{newBackend(t), newBackend(t)}}
	var told []*pb.CellServers
	for k, b := range s.at {
		told = append(told, &pb.CellServers{Cell: uint32(k), Clients: []string{b.addr()}, ClusterId: clusterOf(k)})
	}
	told = append(told, &pb.CellServers{Cell: 2, Clients: []string{"127.0.0.1:1"}})
	for k, b := range s.at {
		s.said.set(b.addr(), &pb.StatusResponse{Role: primary, Epoch: 1, ClusterId: clusterOf(k), Cells: told})
	}
	return s
}

// run runs the gateways of a process that was told of one cell, whose port is that one, until the end of the test.
func (s *siteOf) run(named, port int) *cells { return s.runOf(s.at[named].addr(), port) }

func (s *siteOf) runOf(endpoint string, port int) *cells {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	opt := Options{Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Site: []string{endpoint}, Connections: 2, PerAddress: 100, Log: zerolog.New(s.t.Output())}
	c, err := newCells(ctx, opt, func(*join.Trust) (question, func()) { return s.said.ask, func() {} })
	if err != nil {
		stop()
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stop(); c.wait() })
	return c
}

// leads wants a connection to this port to go to a cell.
func (s *siteOf) leads(port, cell int) {
	s.t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it has said what it had to say
	write(s.t, c.(*net.TCPConn), "OWN,db\n")
	there := s.at[cell].next()
	read(s.t, there, "OWN,db\n")
}

// freePorts returns the first of four ports.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close() //nolint:errcheck // it is used again
		free := true
		for next := port + 1; next < port+4; next++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(next)))
			if free = free && err == nil; err == nil {
				l.Close() //nolint:errcheck // likewise
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

func (c *cells) gatewayOf(id cluster.CellID) *Gateway {
	for k, g := range c.all {
		if k != nil && *k == id {
			return g
		}
	}
	return nil
}

// trouble reports whether there is trouble with a cell for this reason.
func (c *cells) trouble(id cluster.CellID, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(c.mu.failed[id].why, why)
}

// TestGatewayOfASite has a port for each cell, whichever one it was told of.
func TestGatewayOfASite(t *testing.T) {
	for named := range 2 {
		s, first := newSiteOf(t), freePorts(t)
		c := s.run(named, first+named)
		for k := range 2 {
			await(t, limit, "the primary of each cell", func() bool {
				g := c.gatewayOf(cluster.CellID(k))
				return g != nil && g.site.target().primary
			})
			s.leads(first+k, k)
		}
		if c.gatewayOf(2) != nil {
			t.Error("whoever is where cell 2 was planned is taken for it")
		}
		w := httptest.NewRecorder()
		c.health(t.Context()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{`holdfast_gateway_primary_known{cell="0"} 1`, `holdfast_gateway_primary_known{cell="1"} 1`, "holdfast_gateway_connections_total 2"} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	}
}

// TestServersOfAnotherCellAreNone: at an address of one cell are servers of that cell, or nobody.
func TestServersOfAnotherCellAreNone(t *testing.T) {
	s, first := newSiteOf(t), freePorts(t)
	s.said.say[s.at[1].addr()].ClusterId = "c7"
	c := s.run(0, first)
	await(t, limit, "the gateway of cell 1 to ask", func() bool { return c.gatewayOf(1) != nil && s.said.questionsTo(s.at[1].addr()) > 2 })
	if to := c.gatewayOf(1).site.target(); to.addr != "" {
		t.Errorf("connections go to %+v", to)
	}
	s.leads(first, 0)
}

// TestPortOfACellIsTaken: the others are served, and that one as soon as its port is free.
func TestPortOfACellIsTaken(t *testing.T) {
	s, first := newSiteOf(t), freePorts(t)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+1)))
	if err != nil {
		t.Fatal(err)
	}
	c := s.run(0, first)
	await(t, limit, "the port to be found taken", func() bool { return c.trouble(1, "in use") })
	s.leads(first, 0)
	l.Close() //nolint:errcheck // the gateway's attempt says it
	await(t, limit, "the primary of cell 1", func() bool { return c.gatewayOf(1) != nil && c.gatewayOf(1).site.target().primary })
	s.leads(first+1, 1)
}

// TestPortsShareTheirBounds: how many connections there may be is for all cells together.
func TestPortsShareTheirBounds(t *testing.T) {
	s, first := newSiteOf(t), freePorts(t)
	c := s.run(0, first)
	await(t, limit, "the gateway of cell 1", func() bool { return c.gatewayOf(1) != nil })
	var open []net.Conn
	for i := range 4 {
		k, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i%2)))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close() //nolint:errcheck // the end of the test
		open = append(open, k)
	}
	await(t, limit, "two to be refused", func() bool { return c.counts.refused[tooMany].Load() == 2 })
	if n := c.counts.open.Load(); n > 2 || len(open) != 4 {
		t.Errorf("%d connections are open", n)
	}
}

// TestDirectoryOfASite: each cell has its port from the start, also one whose volume hangs, and is reached by what the others tell, or is lost, and comes back.
func TestDirectoryOfASite(t *testing.T) {
	s, dir, id := newSiteOf(t), t.TempDir(), cluster.ID{3}
	file := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("SITE", `{"format":1,"site_id":"`+id.String()+`","cells":[{"cell":0,"path":"cells/0"},{"cell":1,"path":"cells/1"}]}`)
	file("SITE.init", `{"format":1,"site_id":"`+id.String()+`","division":{"ranges":[{"from":"0000000000000000","cell":0},{"from":"8000000000000000","cell":1}]},"servers":[]}`)
	if err := os.MkdirAll(filepath.Join(dir, "cells/0"), 0o755); err != nil {
		t.Fatal(err)
	}
	hangs := filepath.Join(dir, "cells/0/CLUSTER") // for whoever opens it
	if err := syscall.Mkfifo(hangs, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(hangs, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close() //nolint:errcheck // whoever reads it sees its end
		}
	})
	first := freePorts(t)
	c := s.runOf(dir, first)
	known := func(k cluster.CellID) bool { g := c.gatewayOf(k); return g != nil && g.site.target().primary }
	await(t, limit, "both ports, and a look at the lost volume", func() bool { return c.gatewayOf(0) != nil && c.gatewayOf(1) != nil && c.trouble(1, "no volume") })
	if known(0) || known(1) {
		t.Error("the primary of a lost volume is known")
	}
	file("cells/1/CLUSTER", fmt.Sprintf(`{"cluster_id":"%s","servers":[{"id":1,"client":%q,"peer":"127.0.0.1:2"}]}`, clusterOf(1), s.at[1].addr()))
	await(t, limit, "the primary of both, of which one is told by the other", func() bool { return known(0) && known(1) })
	s.leads(first, 0)
	s.leads(first+1, 1)
}

// TestCellMoves: connections go to servers that a cell got since, and not to another cluster.
func TestCellMoves(t *testing.T) {
	s, first := newSiteOf(t), freePorts(t)
	c := s.run(0, first)
	await(t, limit, "the primary of cell 1", func() bool { g := c.gatewayOf(1); return g != nil && g.site.target().primary })
	moved := newBackend(t)
	tell := func(clusterID string) {
		r := &pb.StatusResponse{Role: primary, Epoch: 2, ClusterId: clusterID}
		s.said.set(moved.addr(), r)
		r = &pb.StatusResponse{Role: primary, Epoch: 1, ClusterId: clusterOf(0), Cells: []*pb.CellServers{
			{Cell: 0, Clients: []string{s.at[0].addr()}, ClusterId: clusterOf(0)}, {Cell: 1, Clients: []string{moved.addr()}, ClusterId: clusterID},
			{Cell: cluster.MaxCells, Clients: []string{"127.0.0.1:1"}, ClusterId: "c2"}, {Cell: 3, Clients: []string{"/a/path:1"}, ClusterId: "c3"},
		}}
		s.said.set(s.at[0].addr(), r)
	}
	tell("c7")
	await(t, limit, "the other cluster to be found", func() bool { return c.trouble(1, "another cluster") })
	await(t, limit, "the path to be found", func() bool { return c.trouble(3, `"/a/path:1" is no address`) })
	if n := s.said.questionsTo(moved.addr()); n > 0 {
		t.Errorf("a server of another cluster was asked %d times", n)
	}
	s.said.drop(s.at[1].addr())
	tell(clusterOf(1))
	await(t, limit, "the cell at its other server", func() bool { return c.gatewayOf(1).site.target().addr == moved.addr() })
	if c.gatewayOf(cluster.MaxCells) != nil {
		t.Error("there is a port for a cell that there cannot be")
	}
}
