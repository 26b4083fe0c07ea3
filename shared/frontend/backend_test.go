// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/watch"
)

// backend is a primary as a node shows it, or a replica without a table.
type backend struct {
	cells     []serving.CellServers
	self      cluster.ServerID
	members   cluster.Members
	p         *primary.Primary // nil at a replica
	hub       *watch.Hub       // nil until serving
	search    func(context.Context, history.Query, history.Recent, cluster.LSN) (historydir.Result, error)
	disk      *volumetest.Disk                            // likewise
	host      *volumetest.Host                            // likewise
	clusterID string                                      // "" for c0
	v         *volume.Volume                              // likewise
	spoil     func(serving.SharedFile) serving.SharedFile // what is read, if not nil
	storage   time.Duration                               // how long ago the volume took a write

	orders, most, keeping, kept atomic.Int64 // counted: handed in, and the most at once; keep-alives under way, and the most there were

	mu    sync.Mutex
	term  cluster.ServerID // who is believed to be primary
	epoch cluster.Epoch
}

var _ serving.Backend = (*backend)(nil)

func (b *backend) elect(id cluster.ServerID, epoch cluster.Epoch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term, b.epoch = id, epoch
}

func secondary() locktable.Outcome { return locktable.Outcome{Status: cluster.StatusSecondaryMode} }

func (b *backend) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if b.p == nil {
		return secondary(), nil
	}
	return b.p.Do(ctx, q)
}

func (b *backend) Term() serving.Term {
	if b.p == nil {
		return nil
	}
	return counted{b.p, b}
}

// counted is a term whose orders are counted.
type counted struct {
	serving.Term
	b *backend
}

func (c counted) Submit(orders []*serving.AsyncRequest) {
	c.b.orders.Add(int64(len(orders)))
	raise(&c.b.most, int64(len(orders)))
	c.Term.Submit(orders)
}

// raise has most be n at least.
func raise(most *atomic.Int64, n int64) {
	for {
		if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
			return
		}
	}
}

func (b *backend) Renew(ctx context.Context, l cluster.LockName, t cluster.Token) (locktable.Outcome, error) {
	if b.p == nil {
		return secondary(), nil
	}
	return b.p.Renew(ctx, l, t)
}

func (b *backend) KeepAlive(ctx context.Context, id cluster.ClientID, held serving.Belief) ([]locktable.Grant, []locktable.Ask, locktable.Outcome, error) {
	if b.p == nil {
		return nil, nil, secondary(), nil
	}
	raise(&b.kept, b.keeping.Add(1))
	defer b.keeping.Add(-1)
	return b.p.KeepAlive(ctx, id, held)
}

func (b *backend) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	if b.p == nil {
		return serving.Reading{Status: cluster.StatusSecondaryMode, Local: true}, nil
	}
	var at cluster.LSN
	out, err := b.p.Read(ctx, func(v serving.View) { at = v.At.LSN; f(v) })
	if err != nil || out.Status != cluster.StatusOK {
		return serving.Reading{Status: out.Status}, err
	}
	return serving.Reading{Status: cluster.StatusOK, LSN: at, Epoch: b.p.Epoch()}, nil
}

func (b *backend) Recent() history.Recent {
	if b.p == nil {
		return history.Recent{From: ^cluster.LSN(0)}
	}
	return b.p.Recent()
}

func (b *backend) SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (historydir.Result, error) {
	if b.search == nil {
		return historydir.Result{}, errors.New("there are no files here")
	}
	return b.search(ctx, q, r, upTo)
}

func (b *backend) File(ctx context.Context, name cluster.FileName) (locktable.FileState, bool, serving.Reading, string, error) {
	if b.p == nil {
		return locktable.FileState{}, false, serving.Reading{Status: cluster.StatusSecondaryMode, Local: true}, "", nil
	}
	state, bound, out, err := b.p.File(ctx, name)
	return state, bound, serving.Reading{Status: out.Status, LSN: out.LSN, Epoch: b.p.Epoch()}, out.Message, err
}

func (b *backend) OpenFile(name cluster.FileName) (serving.SharedFile, error) {
	f, err := b.v.OpenReader(name)
	if err == nil && b.spoil != nil {
		return b.spoil(f), nil
	}
	return f, err
}

func (b *backend) Blame(ctx context.Context, q index.Query) (index.Blame, error) {
	b.p.SyncIndex(ctx)
	return index.ReadBlame(ctx, b.disk.Host(9, volumetest.ProfileLocal()), q)
}

func (b *backend) Hub() *watch.Hub { return b.hub }

func (b *backend) Primary() (cluster.Member, cluster.Epoch, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, ok := b.members.Find(b.term)
	return m, b.epoch, ok
}

func (b *backend) Handover(context.Context, cluster.ServerID) (cluster.ServerID, error) {
	return 0, errors.New("no live server is able to take over")
}

func (b *backend) Upgrade(_ context.Context, level uint32) (locktable.Outcome, error) {
	return locktable.Outcome{Status: cluster.StatusError, Message: fmt.Sprintf("not yet: level %d", level)}, nil
}

func (b *backend) Takeover() locktable.Outcome {
	return locktable.Outcome{Status: cluster.StatusError, Message: "refused: server 1 is primary"}
}

func (b *backend) Status() serving.ClusterStatus {
	s := serving.ClusterStatus{ClusterID: cmp.Or(b.clusterID, "c0"), Server: b.self, Epoch: 7, Cells: b.cells}
	if b.v != nil {
		s.Own = b.v.Cluster().Cell
	}
	for _, m := range b.members {
		x := serving.ServerStatus{Member: m, Role: "unreachable", Heard: -1}
		if m.ID == b.self {
			x = serving.ServerStatus{Member: m, Role: "replica", PID: 4711, Filesystem: "tmpfs", Storage: b.storage}
			if b.p != nil {
				x.Role = "primary"
			}
		}
		s.Servers = append(s.Servers, x)
	}
	return s
}

func (b *backend) Timing() cluster.Timing { return primarytest.Timing() }

// startPrimary returns a primary over a simulated disk.
func startPrimary(t *testing.T) *backend {
	t.Helper()
	return startPrimaryUnder(t, nil)
}

// startPrimaryUnder is startPrimary under access rules.
func startPrimaryUnder(t *testing.T, rules func() *access.Rules) *backend {
	t.Helper()
	return startPrimaryOf(t, primarytest.Init, rules)
}

// startPrimaryOf is startPrimaryUnder on a volume that init makes.
func startPrimaryOf(t *testing.T, init func(testing.TB, vfs.FS, cluster.Members), rules func() *access.Rules) *backend {
	t.Helper()
	d := volumetest.New(1)
	init(t, d.Host(9, volumetest.ProfileLocal()), primarytest.Members())
	host := d.Host(1, volumetest.ProfileLocal())
	x := primarytest.ServeUnder(t, host, volume.Options{FirstSegment: 4 << 20, Segment: 4 << 20}, rules)
	past := historydir.Dir{FS: host, Cluster: x.Volume.Cluster().ID}
	return &backend{
		self: 1, members: primarytest.Members(), p: x.Primary, hub: x.Hub, v: x.Volume, disk: d, host: host, search: past.Search, term: 1, epoch: 1,
	}
}

// eventually looks until what is said is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("never: %s", what)
		}
	}
}

// lockAt is a lock as the primary has it.
func (b *backend) lockAt(t *testing.T, name cluster.LockName) locktable.LockView {
	t.Helper()
	var l locktable.LockView
	if r, err := b.Read(t.Context(), func(v serving.View) { l, _ = v.Table.Lock(name) }); err != nil || r.Status != cluster.StatusOK {
		t.Fatalf("read: %v %v", r.Status, err)
	}
	return l
}

// scripted answers everything with one outcome.
type scripted struct {
	backend
	out  locktable.Outcome
	asks []*locktable.Request
}

func answering(out locktable.Outcome) *scripted {
	return &scripted{backend: backend{self: 1, members: primarytest.Members(), term: 2, epoch: 3}, out: out}
}

func (s *scripted) Do(_ context.Context, q *locktable.Request) (locktable.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks = append(s.asks, q)
	return s.out, nil
}

func (s *scripted) Renew(context.Context, cluster.LockName, cluster.Token) (locktable.Outcome, error) {
	return s.out, nil
}

func (s *scripted) KeepAlive(context.Context, cluster.ClientID, serving.Belief) ([]locktable.Grant, []locktable.Ask, locktable.Outcome, error) {
	return nil, nil, s.out, nil
}

func (s *scripted) File(context.Context, cluster.FileName) (locktable.FileState, bool, serving.Reading, string, error) {
	return locktable.FileState{}, false, serving.Reading{Status: s.out.Status}, s.out.Message, nil
}

func (s *scripted) Read(context.Context, func(serving.View)) (serving.Reading, error) {
	return serving.Reading{Status: s.out.Status}, nil
}
