// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestSiteOfTheServers is told by one endpoint, and by several.
func TestSiteOfTheServers(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	if m, err := caller(t, s.addr).Site(t.Context()); m != nil || err != nil {
		t.Errorf("of no site: %v, error %v", m, err)
	}
	s.own = &pb.Cell{SiteId: cluster.ID{3}.String(), Version: 1, Ranges: []*pb.CellRange{{Cell: 0}}, Pins: []*pb.CellPin{{Prefix: "p/", Cell: 1}}}
	s.cells = []*pb.CellServers{{Cell: 0, Clients: []string{s.addr}, ClusterId: "c0"}, {Cell: 1, Clients: []string{"h:1"}, ClusterId: "c1"}}
	for _, endpoints := range [][]string{{s.addr}, {"127.0.0.1:1", s.addr}} {
		m, err := caller(t, endpoints...).Site(t.Context())
		if err != nil || fmt.Sprint(m.Of("p/x")) != "{cell 1 [h:1] c1 <nil>}" {
			t.Errorf("%v, error %v", m, err)
		}
	}
	if m, err := caller(t, "127.0.0.1:1").Site(t.Context()); m != nil || !errors.Is(err, remote.ErrNoServer) {
		t.Errorf("nobody answers: %v, error %v", m, err)
	}
}

// TestSiteOfServersThatStart: a server that answers a little later still tells of the others, or a command would take its cell for all there is.
func TestSiteOfServersThatStart(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	s.own = &pb.Cell{SiteId: cluster.ID{3}.String(), Version: 1, Ranges: []*pb.CellRange{{Cell: 0}}, Pins: []*pb.CellPin{{Prefix: "p/", Cell: 1}}}
	s.cells = []*pb.CellServers{{Cell: 0, Clients: []string{s.addr}, ClusterId: "c0"}, {Cell: 1, Clients: []string{"h:1"}, ClusterId: "c1"}}
	l, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and answers nothing yet
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(1200 * time.Millisecond)
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", s.addr)
			if err != nil {
				return
			}
			go io.Copy(to, from) //nolint:errcheck // it ends with either
			go io.Copy(from, to) //nolint:errcheck // as above
		}
	}()
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // nobody is there
	for _, endpoints := range [][]string{{l.Addr().String()}, {"127.0.0.1:1", l.Addr().String()}} {
		if m, err := caller(t, endpoints...).Site(t.Context()); err != nil || m == nil {
			t.Errorf("at %v: %v, error %v", endpoints, m, err)
		}
	}
}

// TestCellIsTheClusterThatWasTold, or nothing is executed.
func TestCellIsTheClusterThatWasTold(t *testing.T) {
	s := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	s.cluster = "c2"
	c, err := remote.New(remote.Options{Endpoints: []string{s.addr}, ClusterID: "c1", Budget: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	if _, err := remote.Write(t.Context(), c, release); err == nil || !strings.Contains(err.Error(), "belongs to cluster c2") || s.asked() != 0 {
		t.Errorf("error %v, after %d requests", err, s.asked())
	}
}
