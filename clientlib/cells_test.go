// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fakeSite is a site of several fake clusters, each of one server on loopback. What a cell does not own it refuses as a real one does.
type fakeSite struct {
	t        *testing.T
	division cluster.Division
	cells    []*fakeCell
}

type fakeCell struct {
	*fakeCluster
	site *fakeSite
	own  cluster.Own
	id   cluster.ID // of the cluster
	addr string
	real *grpc.Server
	// refused counts what another cell has, and asked the calls of Status that were not local.
	refused, asked atomic.Int32
	// tells is what a status tells of the cells; nil = where they are.
	tells atomic.Pointer[[]*pb.CellServers]
	// loses is how many refusals get lost.
	loses atomic.Int32
	// outcomes counts questions for outcomes, and requests to cancel.
	outcomes   atomic.Int32
	leaderless atomic.Bool // the cell's server is up, and no primary
}

// newFakeSite makes a site of n cells, and pins the names below pN/ to cell N.
func newFakeSite(t *testing.T, n int) *fakeSite {
	t.Helper()
	var pins []cluster.Pin
	for k := range n {
		pins = append(pins, cluster.Pin{Prefix: fmt.Sprintf("p%d/", k), Cell: CellID(k)})
	}
	d, err := cluster.Divide(n, pins)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSite{t: t, division: d}
	for k := range n {
		c := &fakeCell{fakeCluster: newFakeCluster(), site: s, own: cluster.Own{Site: cluster.ID{9}, Cell: CellID(k), Version: 1, Division: d}, id: cluster.ID{byte(k + 1)}}
		s.cells = append(s.cells, c)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.addr, c.real = l.Addr().String(), grpc.NewServer(grpc.UnaryInterceptor(c.call), grpc.StreamInterceptor(c.stream))
		pb.RegisterLockServiceServer(c.real, c.server(c.addr))
		go c.real.Serve(l)
		t.Cleanup(c.real.Stop)
	}
	return s
}

// told is where the cells are.
func (s *fakeSite) told() (all []*pb.CellServers) {
	for _, c := range s.cells {
		all = append(all, &pb.CellServers{Cell: uint32(c.own.Cell), Clients: []string{c.addr}, ClusterId: c.id.String()})
	}
	return all
}

// call answers what a cell answers, and leaves the rest to its fake server.
func (c *fakeCell) call(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, status := q.(*pb.StatusRequest); !status && c.leaderless.Load() {
		return nil, (&wire.Error{Status: cluster.StatusSecondaryMode}).GRPCStatus().Err()
	}
	lock, file := "", ""
	if x, ok := q.(interface{ GetLock() string }); ok {
		lock = x.GetLock()
	}
	if x, ok := q.(interface{ GetFile() string }); ok {
		file = x.GetFile()
	}
	if why, has := c.own.Refuses(LockName(lock), FileName(file)); why != "" {
		if c.loses.Add(-1) >= 0 {
			return nil, status.Error(codes.Unavailable, "the answer is lost")
		}
		c.refused.Add(1)
		return c.wrongCell(q, why, has)
	}
	switch q := q.(type) {
	case *pb.StatusRequest:
		r, err := handle(ctx, q)
		if r, ok := r.(*pb.StatusResponse); ok {
			c.tell(q, r)
		}
		return r, err
	case *pb.ListLocksRequest:
		return &pb.ListLocksResponse{Status: pb.Status_STATUS_OK, Locks: []*pb.Lock{{Name: fmt.Sprintf("a%d", c.own.Cell)}, {Name: fmt.Sprintf("b%d", c.own.Cell)}}}, nil
	case *pb.ListFilesRequest:
		return &pb.ListFilesResponse{Status: pb.Status_STATUS_OK, Files: []*pb.File{{Name: fmt.Sprintf("f%d", c.own.Cell)}}}, nil
	case *pb.GetLockRequest:
		return &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lock: &pb.Lock{Name: q.Lock, Done: c.own.Cell.String()}}, nil
	case *pb.ReadFileRequest:
		return &pb.ReadFileResponse{Status: pb.Status_STATUS_OK, Generation: 1, Data: []byte(c.own.Cell.String())}, nil
	case *pb.HistoryRequest:
		return &pb.HistoryResponse{Status: pb.Status_STATUS_OK, Message: c.own.Cell.String()}, nil
	case *pb.OutcomeRequest:
		c.outcomes.Add(1)
		return &pb.OutcomeResponse{Status: pb.Status_STATUS_OK, State: pb.RequestState_REQUEST_STATE_NOT_SEEN}, nil
	case *pb.CancelRequest:
		c.outcomes.Add(1)
		return &pb.Answer{Status: pb.Status_STATUS_CANCELLED}, nil
	}
	return handle(ctx, q)
}

// stream serves a follower of a file, and a watch of locks: one message each.
func (c *fakeCell) stream(_ any, s grpc.ServerStream, info *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
	switch {
	case strings.HasSuffix(info.FullMethod, "/FollowFile"):
		if err := s.SendMsg(&pb.ReadFileResponse{Status: pb.Status_STATUS_OK, Generation: 1, Data: []byte(c.own.Cell.String())}); err != nil {
			return err
		}
	case strings.HasSuffix(info.FullMethod, "/Watch"):
		if err := s.SendMsg(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: 7, Reset_: &pb.Reset{Last: true, Locks: []*pb.Lock{{Name: c.own.Cell.String()}}}}); err != nil {
			return err
		}
	default:
		return status.Error(codes.Unimplemented, "")
	}
	<-s.Context().Done()
	return nil
}

func (c *fakeCell) wrongCell(q any, why string, has CellID) (any, error) {
	e := &wire.Error{Status: cluster.StatusWrongCell, Message: why, Cell: has}
	switch q.(type) {
	case *pb.GetLockRequest, *pb.ReadFileRequest:
		return nil, e.GRPCStatus().Err()
	}
	return e.Answer(), nil
}

func (c *fakeCell) tell(q *pb.StatusRequest, r *pb.StatusResponse) {
	r.ClusterId, r.Cells = c.id.String(), c.site.told()
	if tells := c.tells.Load(); tells != nil {
		r.Cells = *tells
	}
	if c.leaderless.Load() {
		r.Role, r.Primary = pb.Role_ROLE_REPLICA, nil
	}
	if q.Local {
		return
	}
	c.asked.Add(1)
	r.Cell = &pb.Cell{SiteId: c.own.Site.String(), Cell: uint32(c.own.Cell), Version: 1}
	for _, x := range c.own.Ranges {
		r.Cell.Ranges = append(r.Cell.Ranges, &pb.CellRange{From: uint64(x.From), Cell: uint32(x.Cell)})
	}
	for _, x := range c.own.Pins {
		r.Cell.Pins = append(r.Cell.Pins, &pb.CellPin{Prefix: x.Prefix, Cell: uint32(x.Cell)})
	}
}

// client returns a Client with the address of cell 0.
func (s *fakeSite) client(o Options) *Client {
	s.t.Helper()
	o.Endpoints = []string{s.cells[0].addr}
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() }) //nolint:errcheck // it is nil
	return c
}

// TestLocksOfAllCells with a Client that knows a server of one: each request reaches the cell that has the name, and only the first of them another
// one before.
func TestLocksOfAllCells(t *testing.T) {
	s := newFakeSite(t, 3)
	c := s.client(Options{})
	for _, name := range []LockName{"p2/a", "p0/a", "p1/a", "p2/b"} {
		l, err := c.Acquire(t.Context(), name, AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(t.Context(), FileName(name)+"/log", []byte("x")); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if info, err := c.Get(t.Context(), name); err != nil || info.Done != s.division.Route(string(name)).String() {
			t.Errorf("%s is of %s, error %v", name, info.Done, err)
		}
		if p, err := c.ReadFile(t.Context(), FileName(name), ReadOptions{}); err != nil || string(p.Data) != s.division.Route(string(name)).String() {
			t.Errorf("file %s is of %s, error %v", name, p.Data, err)
		}
	}
	for k, want := range []int{1, 1, 2} {
		if got := s.cells[k].executed("append"); got != want {
			t.Errorf("%v had %d appends, want %d", CellID(k), got, want)
		}
	}
	if n := s.cells[0].refused.Load() + s.cells[1].refused.Load() + s.cells[2].refused.Load(); n != 1 {
		t.Errorf("%d requests were refused, want the first only", n)
	}
	if held, err := c.Acquire(t.Context(), "p1/a", AcquireOptions{}); err != nil {
		t.Error(err)
	} else if _, err := held.Append(t.Context(), "p2/log", []byte("x")); !errors.Is(err, ErrWrongCell) || !strings.Contains(err.Error(), "a file is in the cell of its lock") {
		t.Errorf("a file of another cell: %v", err)
	}
}

// TestRefusedByAnotherCellForGood: a request whose refusal is lost once was executed nowhere, so it goes to the right cell.
func TestRefusedByAnotherCellForGood(t *testing.T) {
	s := newFakeSite(t, 2)
	s.cells[0].loses.Store(1)
	l, err := s.client(Options{}).Acquire(t.Context(), "p1/a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClusterThatIsNoCell is asked nothing more than before there were cells.
func TestClusterThatIsNoCell(t *testing.T) {
	s := newFakeSite(t, 1)
	s.cells[0].tells.Store(&[]*pb.CellServers{})
	c := s.client(Options{})
	if _, err := c.Acquire(t.Context(), "p0/a", AcquireOptions{}); err != nil {
		t.Error(err)
	}
	for _, err := range c.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	if cells, err := c.Cells(t.Context()); cells != nil || err != nil {
		t.Errorf("cells %v, error %v", cells, err)
	}
	if n := s.cells[0].asked.Load(); n != 0 {
		t.Errorf("it was asked %d times for its status", n)
	}
	if c, err := c.Cell(t.Context(), 0); err == nil {
		t.Errorf("cell 0 is %v", c)
	}
}

// listed is what a list has, and the error at its end.
func listed(ctx context.Context, c *Client, prefix string) (names []string, last error) {
	for l, err := range c.List(ctx, prefix) {
		if err != nil {
			return names, err
		}
		names = append(names, string(l.Name))
	}
	return names, nil
}

// TestHomeCellWithoutAPrimary keeps no client from the other cells, whose servers its own name, also at the first call.
func TestHomeCellWithoutAPrimary(t *testing.T) {
	s := newFakeSite(t, 2)
	s.cells[0].leaderless.Store(true)
	c := s.client(Options{Budget: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, err := c.Acquire(ctx, "p1/a", AcquireOptions{}); err != nil {
		t.Error(err)
	}
}

func TestListOfAllCells(t *testing.T) {
	s := newFakeSite(t, 3)
	c := s.client(Options{Budget: 2 * time.Second})
	if got, err := listed(t.Context(), c, ""); err != nil || fmt.Sprint(got) != "[a0 a1 a2 b0 b1 b2]" {
		t.Errorf("%v, error %v", got, err)
	}
	if got, err := listed(t.Context(), c, "p1/"); err != nil || fmt.Sprint(got) != "[a1 b1]" { // the fake does not look at the prefix
		t.Errorf("of one cell: %v, error %v", got, err)
	}
	var files []FileName
	for f, err := range c.Files(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		files = append(files, f.Name)
	}
	if fmt.Sprint(files) != "[f0 f1 f2]" {
		t.Errorf("files %v", files)
	}
	for l := range c.List(t.Context(), "") {
		if l.Name == "a1" {
			break // it may be left early
		}
	}
	s.cells[1].real.Stop()
	if got, err := listed(t.Context(), c, ""); err == nil || fmt.Sprint(got) != "[a0 a2 b0 b2]" {
		t.Errorf("without cell 1: %v, error %v", got, err)
	}
}

// TestReadsThatAnyCellWouldAnswer go to the right one at once.
func TestReadsThatAnyCellWouldAnswer(t *testing.T) {
	s := newFakeSite(t, 2)
	c := s.client(Options{})
	for e, err := range c.Watch(t.Context(), WatchOptions{Lock: "p1/a"}) {
		if err != nil || e.Reset == nil || e.Reset.Locks[0].Name != "cell 1" {
			t.Errorf("a watch begins with %+v, error %v", e, err)
		}
		break
	}
	if p, err := c.History(t.Context(), HistoryQuery{Prefix: "p1/"}); err != nil || p.Message != "cell 1" {
		t.Errorf("the history is of %s, error %v", p.Message, err)
	}
	f := c.Follow(t.Context(), "p1/log", FollowOptions{})
	defer f.Close() //nolint:errcheck // it is nil
	b := make([]byte, 10)
	if n, err := f.Read(b); err != nil || string(b[:n]) != "cell 1" {
		t.Errorf("read %q, error %v", b[:n], err)
	}
	for _, err := range c.Watch(t.Context(), WatchOptions{}) {
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "in 2 cells of the site") {
			t.Errorf("a watch of all cells: %v", err)
		}
		break
	}
	if _, err := c.History(t.Context(), HistoryQuery{}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("the history of all cells: %v", err)
	}
}

// TestAttachedToAnotherCell: where the token is from shows with its first use.
func TestAttachedToAnotherCell(t *testing.T) {
	s := newFakeSite(t, 2)
	other := s.cells[1]
	other.fakeCluster.mu.Lock()
	token := other.grant(fakeKey{"other", 1}, "p1/a", 10_000).Token
	other.fakeCluster.mu.Unlock()
	c := s.client(Options{})
	l := c.Attach("p1/a", Token(token))
	if _, err := l.Append(t.Context(), "p1/log", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if c.Attach("p1/a", Token(token)) != l {
		t.Error("the token has two handles")
	}
	if err := l.Release(t.Context()); err != nil || s.cells[0].refused.Load() != 0 {
		t.Errorf("release: %v; %d refused", err, s.cells[0].refused.Load())
	}
}

// TestReleaseWhereNobodyAnswers, and so nobody says which cell has the lock, ends its Context all the same.
func TestReleaseWhereNobodyAnswers(t *testing.T) {
	c, err := New(Options{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it is nil
	l := c.Attach("a", 7)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Release(ctx); err == nil {
		t.Error("it was released by nobody")
	}
	if l.Context().Err() == nil {
		t.Error("the lock was given back, and its Context lives on")
	}
}

// directory returns that of the site, which has two cells.
func (s *fakeSite) directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := s.cells[0].own.Text()
	write("SITE", `{"format":1,"site_id":"`+s.cells[0].own.Site.String()+`","cells":[{"cell":0,"path":"cells/0"},{"cell":1,"path":"cells/1"}]}`)
	write("SITE.init", `{"format":1,"site_id":"`+s.cells[0].own.Site.String()+`","division":`+own+`}`)
	for k, c := range s.cells {
		write(fmt.Sprintf("cells/%d/CLUSTER", k), `{"cluster_id":"`+c.id.String()+`","servers":[{"id":1,"client":"`+c.addr+`","peer":"h:1"}]}`)
	}
	return dir
}

// TestCellWhoseVolumeHangs, as a pipe does to which nobody writes, holds up nobody who wants another cell, and nobody for longer than the call lasts.
func TestCellWhoseVolumeHangs(t *testing.T) {
	for _, hangs := range []int{0, 1} {
		s := newFakeSite(t, 2)
		dir := s.directory(t)
		file := filepath.Join(dir, fmt.Sprintf("cells/%d/CLUSTER", hangs))
		if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o644)); err != nil {
			t.Skip(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := New(Options{Endpoints: []string{dir}})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close() //nolint:errcheck // it is nil
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := c.Acquire(ctx, LockName(fmt.Sprintf("p%d/a", hangs)), AcquireOptions{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a lock of cell %d, whose volume hangs: %v", hangs, err)
			}
			impatient, err := New(Options{Endpoints: []string{dir}, Budget: 100 * time.Millisecond})
			if err != nil {
				t.Error(err)
				return
			}
			defer impatient.Close() //nolint:errcheck // it is nil
			if _, err := impatient.Acquire(t.Context(), LockName(fmt.Sprintf("p%d/b", hangs)), AcquireOptions{}); err == nil || !strings.Contains(err.Error(), "has not said within 100ms") {
				t.Errorf("a lock of cell %d, in time: %v", hangs, err)
			}
			if _, err := c.Acquire(t.Context(), LockName(fmt.Sprintf("p%d/a", 1-hangs)), AcquireOptions{}); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done:
		case <-time.After(4 * time.Second): // a volume is waited for for longer
			t.Errorf("cell %d hangs, and so does who uses the other one", hangs)
		}
		if end, err := os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			end.Close() //nolint:errcheck // who reads there reads its end
		}
		<-done
	}
}

// TestOneCell is what a Client of one cell has, and what it refuses.
func TestOneCell(t *testing.T) {
	s := newFakeSite(t, 2)
	c := s.client(Options{})
	if cells, err := c.Cells(t.Context()); err != nil || !slices.Equal(cells, []CellID{0, 1}) {
		t.Errorf("cells %v, error %v", cells, err)
	}
	for k := range CellID(2) {
		one, err := c.Cell(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := listed(t.Context(), one, ""); err != nil || len(got) != 2 {
			t.Errorf("%v has %v, error %v", k, got, err)
		}
		if _, err := one.Acquire(t.Context(), LockName(fmt.Sprintf("p%d/a", 1-k)), AcquireOptions{}); !errors.Is(err, ErrWrongCell) {
			t.Errorf("a lock of another cell: %v", err)
		}
		if st, err := one.Status(t.Context()); err != nil || st.ClusterID != s.cells[k].id.String() {
			t.Errorf("the status is of %s, error %v", st.ClusterID, err)
		}
		if again, err := c.Cell(t.Context(), k); again != one || err != nil {
			t.Errorf("a second Client of %v, error %v", k, err)
		}
	}
	if _, err := c.Cell(t.Context(), 2); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a cell that is none: %v", err)
	}
	one, err := c.Cell(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	one.Close() //nolint:errcheck // it is nil
	if one, err = c.Cell(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Get(t.Context(), "p1/a"); err != nil {
		t.Errorf("after its Client was closed: %v", err)
	}
	c.Close() //nolint:errcheck // it is nil
	if _, err := one.Get(t.Context(), "p1/a"); !errors.Is(err, ErrClosed) {
		t.Errorf("a Client whose owner is closed: %v", err)
	}
	if _, err := c.Acquire(t.Context(), "p1/a", AcquireOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestOutcomeIsAskedWhereTheClientIsFrom, and nowhere if that cannot be told.
func TestOutcomeIsAskedWhereTheClientIsFrom(t *testing.T) {
	s := newFakeSite(t, 2)
	c := s.client(Options{})
	for k, cell := range s.cells {
		id := cluster.OpenedClientID(7, cluster.MarkOf(cell.id))
		if _, err := c.Outcome(t.Context(), id, 1); err != nil || cell.outcomes.Load() != 1 {
			t.Errorf("outcome of a client of cell %d: error %v, asked there %d times", k, err, cell.outcomes.Load())
		}
		if _, err := c.Cancel(t.Context(), id, 1); err != nil || cell.outcomes.Load() != 2 {
			t.Errorf("cancel of a client of cell %d: error %v, asked there %d times", k, err, cell.outcomes.Load())
		}
	}
	for _, id := range []ClientID{"me", cluster.OpenedClientID(7, cluster.MarkOf(cluster.ID{99}))} {
		if _, err := c.Outcome(t.Context(), id, 1); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("outcome of %s: %v", id, err)
		}
		if _, err := c.Cancel(t.Context(), id, 1); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("cancel of %s: %v", id, err)
		}
	}
}

// TestOutcomeWhileAnotherCellIsLost needs the cell of the client only.
func TestOutcomeWhileAnotherCellIsLost(t *testing.T) {
	s := newFakeSite(t, 3)
	told := s.told()
	told[1] = &pb.CellServers{Cell: 1} // nobody knows where it is
	s.cells[0].tells.Store(&told)
	if _, err := s.client(Options{}).Outcome(t.Context(), cluster.OpenedClientID(7, cluster.MarkOf(s.cells[2].id)), 1); err != nil || s.cells[2].outcomes.Load() != 1 {
		t.Errorf("outcome of a client of cell 2: error %v, asked there %d times", err, s.cells[2].outcomes.Load())
	}
}

// TestAnotherClusterIsNoCell: servers of a cluster that is not the cell, at its address, execute nothing.
func TestAnotherClusterIsNoCell(t *testing.T) {
	s := newFakeSite(t, 3)
	told := s.told()
	told[1].Clients = []string{s.cells[2].addr}
	s.cells[0].tells.Store(&told)
	c := s.client(Options{Budget: 300 * time.Millisecond})
	if _, err := c.Acquire(t.Context(), "p1/a", AcquireOptions{}); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("got %v", err)
	}
	if n := len(s.cells[2].attempts("acquire")) + int(s.cells[2].refused.Load()); n != 0 {
		t.Errorf("%d requests reached another cell", n)
	}
}

// TestOneCellOfWhichNonsenseIsTold is the trouble of who needs that cell.
func TestOneCellOfWhichNonsenseIsTold(t *testing.T) {
	s := newFakeSite(t, 3)
	told := s.told()
	told[2].Pin = "no pin"
	s.cells[0].tells.Store(&told)
	c := s.client(Options{})
	for _, name := range []LockName{"p0/a", "p1/a"} {
		if _, err := c.Acquire(t.Context(), name, AcquireOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Acquire(t.Context(), "p2/a", AcquireOptions{}); err == nil || !strings.Contains(err.Error(), "cell 2 of the site, as the servers at") {
		t.Errorf("a lock of that cell: %v", err)
	}
}

// TestCellThatMoved: where a cell is served is asked when it is needed.
func TestCellThatMoved(t *testing.T) {
	s := newFakeSite(t, 2)
	told := s.told()
	told[1] = &pb.CellServers{Cell: 1, Clients: told[1].Clients} // of an unknown cluster
	s.cells[0].tells.Store(&told)
	c := s.client(Options{})
	if _, err := c.Acquire(t.Context(), "p1/a", AcquireOptions{}); err == nil || !strings.Contains(err.Error(), "cell 1 of the site is not known") {
		t.Errorf("a cell that is not known: %v", err)
	}
	s.cells[0].tells.Store(nil)
	if _, err := c.Acquire(t.Context(), "p1/a", AcquireOptions{}); err != nil {
		t.Errorf("now that it is known: %v", err)
	}
}

// TestServersOfACellReplaced while a client had nothing to do there: the servers of its own cell name the new ones.
func TestServersOfACellReplaced(t *testing.T) {
	s := newFakeSite(t, 2)
	c := s.client(Options{Budget: time.Second})
	if _, err := c.Get(t.Context(), "p1/a"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	moved, next := s.cells[1], grpc.NewServer(grpc.UnaryInterceptor(s.cells[1].call), grpc.StreamInterceptor(s.cells[1].stream))
	moved.real.Stop()
	there := moved.server(l.Addr().String())
	moved.setPrimary(there)
	pb.RegisterLockServiceServer(next, there)
	go next.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(next.Stop)
	told := s.told()
	told[1].Clients = []string{l.Addr().String()}
	s.cells[0].tells.Store(&told)
	var last error
	for range 3 {
		if _, last = c.Get(t.Context(), "p1/b"); last == nil {
			return
		}
	}
	t.Error(last)
}

// TestSiteDirectory is an endpoint, also where a volume is lost.
func TestSiteDirectory(t *testing.T) {
	s := newFakeSite(t, 2)
	dir := s.directory(t)
	use := func(names ...LockName) {
		t.Helper()
		c, err := New(Options{Endpoints: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // it is nil
		for _, name := range names {
			if _, err := c.Acquire(t.Context(), name, AcquireOptions{}); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Handover(t.Context(), 0); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("a handover: %v", err)
		}
	}
	use("p0/a", "p1/a")
	if n := s.cells[0].refused.Load() + s.cells[1].refused.Load() + s.cells[0].asked.Load() + s.cells[1].asked.Load(); n != 0 {
		t.Errorf("the directory has it, and servers were asked %d times", n)
	}
	if err := os.Remove(filepath.Join(dir, "cells/0/CLUSTER")); err != nil {
		t.Fatal(err)
	}
	use("p1/b")
	if err := os.Remove(filepath.Join(dir, "cells/1/CLUSTER")); err != nil {
		t.Fatal(err)
	}
	if c, err := New(Options{Endpoints: []string{dir}}); err == nil || !strings.Contains(err.Error(), "cell 1") {
		t.Errorf("of no volume: %v, error %v", c, err)
	}
}
