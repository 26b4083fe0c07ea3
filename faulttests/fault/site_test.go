// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	siteCells = 4
	// hungCell is the one whose volume hangs.
	hungCell hf.CellID = siteCells - 1
	// siteClients is how many clients append, each to files of all cells at once.
	siteClients = 2
	siteLockers = 3
	// siteLocks are enough that each cell has some by the hashes of their names.
	siteLocks   = 12
	siteNames   = "lock/{run-%d}" // so that a file is in the cell of its lock
	siteText    = 1 << 20
	siteStrikes = 24
	// hangTime is long enough that a cell which waits for another one has a gap that nothing else explains: mostGap is
	// what a takeover needs on a busy machine.
	hangTime = 14 * time.Second
	mostGap  = 8 * time.Second
)

// TestSiteUnderFaults has a few clients use locks and files of four cells, while servers of one cell after the other and whole hosts die or freeze.
// Then the volume of one cell hangs, and the others do not notice. In the end each cell is judged as a volume by itself: what clients saw of locks,
// its files and its log.
func TestSiteUnderFaults(t *testing.T) {
	needFaults(t)
	s := newSiteBattle(t)
	stop := s.work(t)
	s.strikes(t)
	s.hangs(t)
	stop()
	s.end(t)
}

// siteBattle is one run of clients against the faults of a site.
type siteBattle struct {
	*cluster.Site
	share    *fuse.Share // of the volume of hungCell; nil = FUSE is not here
	nemeses  []*Nemesis  // of each cell
	rand     *rand.Rand
	division hf.Division

	ledgers    []*check.Ledger // of each cell, which has an order of its own
	workers    []*traffic.Worker
	lockers    *traffic.Lockers
	locking    []*traffic.Locker
	collectors []*check.Collector
	archives   []string
}

func newSiteBattle(t *testing.T) *siteBattle {
	t.Helper()
	s := &siteBattle{rand: rand.New(rand.NewPCG(*faultSeed, 1))}
	opt := cluster.SiteOptions{Options: options(), Cells: siteCells, Paths: map[hf.CellID]cluster.SitePath{}}
	var pins []hf.Pin
	for k := range hf.CellID(siteCells) {
		opt.Pins = append(opt.Pins, fmt.Sprintf("%s=%d", prefixOf(k), k))
		pins = append(pins, hf.Pin{Prefix: prefixOf(k), Cell: k})
	}
	var err error
	if s.division, err = hf.Divide(siteCells, pins); err != nil {
		t.Fatal(err)
	}
	if s.share = mayShare(t); s.share != nil {
		opt.Paths[hungCell] = sharedPath(t, s.share)
	}
	s.Site = cluster.StartSite(t, opt)
	for k, c := range s.Cells {
		archive := t.TempDir()
		s.archives, s.ledgers = append(s.archives, archive), append(s.ledgers, &check.Ledger{})
		s.collectors = append(s.collectors, check.StartCollector(t.Context(), c.Dir(), archive))
		s.nemeses = append(s.nemeses, &Nemesis{Cluster: c, Rand: rand.New(rand.NewPCG(*faultSeed, uint64(k)+10)), Every: time.Second})
	}
	s.recruit(t)
	has := map[hf.CellID]bool{}
	for i := range siteLocks {
		has[s.division.Route(fmt.Sprintf(siteNames, i))] = true
	}
	if len(has) != siteCells {
		t.Errorf("the locks of the history are in cells %v", has)
	}
	return s
}

// prefixOf is that of names that are pinned to a cell.
func prefixOf(k hf.CellID) string { return fmt.Sprintf("cell-%d/", k) }

// mayShare returns a share for the volume that is to hang, nil if there is no FUSE here.
func mayShare(t *testing.T) *fuse.Share {
	t.Helper()
	if err := fuse.Available(); err != nil {
		t.Logf("the servers of a cell are frozen in place of its volume: %v", err)
		return nil
	}
	backing := filepath.Join(t.TempDir(), "share")
	if err := os.Mkdir(backing, 0o755); err != nil {
		t.Fatal(err)
	}
	share, err := fuse.NewShare(backing, *faultSeed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := share.Close(); err != nil {
			t.Error(err)
		}
	})
	return share
}

// sharedPath mounts the share, for the servers of all hosts at one path. This process serves it, and looks beneath it.
func sharedPath(t *testing.T, share *fuse.Share) cluster.SitePath {
	t.Helper()
	m, err := share.Mount(t.TempDir(), fuse.Strict())
	if err != nil {
		t.Fatal(err)
	}
	return cluster.SitePath{Servers: filepath.Join(m.Dir(), "volume"), Test: filepath.Join(share.Dir(), "volume")}
}

// recruit makes the clients. The first knows servers of cell 0, the next those of the cell that hangs, and so on from the ends.
func (s *siteBattle) recruit(t *testing.T) {
	t.Helper()
	lines := sourceText(t, siteText)
	for i := range siteClients {
		client := newClientAs(t, s.endOf(i), holderName(i))
		for k := range s.Cells {
			s.workers = append(s.workers, &traffic.Worker{
				Client: client, Holder: holderName(i), Speaker: check.NewSpeaker(lines, i, siteClients), Places: sitePlaces(hf.CellID(k), i), Ledger: s.ledgers[k],
				Rand: rand.New(rand.NewPCG(*faultSeed, uint64(i*siteCells+k)+20)), TTL: time.Minute, Pace: 10 * time.Millisecond, Limit: time.Minute, Sharing: true,
			})
		}
	}
	s.lockers = &traffic.Lockers{History: check.NewHistory(), Locks: siteLocks, Names: siteNames, TTL: longTTL, Pace: 3 * time.Millisecond, Limit: cluster.Patience, Log: t.Logf}
	for i := range siteLockers {
		s.locking = append(s.locking, &traffic.Locker{All: s.lockers, Client: newClient(t, s.endOf(i)), Number: i, Rand: rand.New(rand.NewPCG(*faultSeed, uint64(i)+40))})
	}
}

// endOf is the first cell or the last one.
func (s *siteBattle) endOf(client int) *cluster.Cluster {
	if client%2 == 0 {
		return s.Cells[0]
	}
	return s.Cells[hungCell]
}

// sitePlaces are those of one client in one cell.
func sitePlaces(k hf.CellID, client int) (all []traffic.Place) {
	for _, p := range []traffic.Place{
		{Lock: hf.LockName(fmt.Sprintf("own/%d", client)), File: hf.FileName(fmt.Sprintf("own/%d.txt", client))},
		{Lock: "all", File: "deep/er/all.txt"},
		{Lock: "permits", Limit: permits},
	} {
		p.Lock = hf.LockName(prefixOf(k)) + p.Lock
		if p.File != "" {
			p.File = hf.FileName(prefixOf(k)) + p.File
		}
		all = append(all, p)
	}
	return all
}

// work starts the clients; stop has them end, and waits for them.
func (s *siteBattle) work(t *testing.T) (stop func()) {
	t.Helper()
	var working sync.WaitGroup
	over := make(chan struct{})
	isOver := func() bool { return allClosed([]chan struct{}{over}) }
	for _, w := range s.workers {
		working.Go(func() { w.Run(t.Context(), isOver) })
	}
	for _, w := range s.locking {
		working.Go(func() { w.Run(t.Context(), isOver) })
	}
	return func() {
		close(over)
		working.Wait()
	}
}

// strikes has one cell or one host after the other fail.
func (s *siteBattle) strikes(t *testing.T) {
	t.Helper()
	kinds := map[string]int{}
	for range siteStrikes {
		k := s.rand.IntN(siteCells)
		n := s.nemeses[k]
		n.Rest(t.Context())
		kind, ok := s.strike(t.Context(), n)
		if kinds[kind]++; !ok {
			t.Fatalf("I15: no primary of cell %d within %v, for %s", k, cluster.Patience, kind)
		}
	}
	t.Logf("strikes: %v", kinds)
}

// strike injects a random fault. It returns false if the cell had no primary within cluster.Patience.
func (s *siteBattle) strike(ctx context.Context, n *Nemesis) (kind string, ok bool) {
	switch x := s.rand.IntN(12); {
	case x < 5:
		return "kills in a cell", n.Strike(ctx)
	case x < 8:
		return "a primary frozen", s.freeze(ctx, n)
	case x < 10:
		host := s.Hosts.Servers()[s.rand.IntN(3)]
		host.Kill()
		kind = "a supervisor killed"
	default:
		s.KillHost(s.Hosts.Servers()[s.rand.IntN(3)])
		kind = "a host lost"
	}
	traffic.Rest(ctx, time.Duration(s.rand.Int64N(int64(startWithin))))
	s.Hosts.StartAll()
	return kind, true
}

// freeze stops the primary of a cell, as a rule for long enough that another server takes over.
func (s *siteBattle) freeze(ctx context.Context, n *Nemesis) bool {
	p, _, ok := n.primary(ctx, 0)
	if !ok {
		return false
	}
	p.Stop()
	traffic.Rest(ctx, 500*time.Millisecond+time.Duration(s.rand.Int64N(int64(2*time.Second))))
	p.Cont()
	return true
}

// hangs has the volume of one cell hang, and wants the others to go on as before, and that cell to go on when it is back.
func (s *siteBattle) hangs(t *testing.T) {
	t.Helper()
	for _, c := range s.Cells {
		c.AwaitReplicas(2 * cluster.Patience)
	}
	calm := time.Now()
	traffic.Rest(t.Context(), hangTime/2)
	began := time.Now()
	release := s.hang(t)
	s.newcomer(t)
	s.comesBack(t)
	traffic.Rest(t.Context(), hangTime-time.Since(began))
	ended := time.Now()
	release()
	back := s.awaitAnswer(t, hungCell, ended)
	for k := range hf.CellID(siteCells) {
		before, during := longestGap(s.ledgers[k], calm, began), longestGap(s.ledgers[k], began, ended)
		t.Logf("cell %d: the longest time without an answer was %v before, and %v while cell %d hung", k, before.Round(time.Millisecond), during.Round(time.Millisecond), hungCell)
		switch {
		case k != hungCell && during > mostGap:
			t.Errorf("cell %d answered nothing for %v while cell %d hung", k, during, hungCell)
		case k == hungCell && during < hangTime-mostGap:
			t.Errorf("cell %d went on while it hung", k)
		}
	}
	t.Logf("cell %d answered %v after it was back", hungCell, back.Round(time.Millisecond))
}

// hang has the volume of a cell hang, or its servers where there is no FUSE.
func (s *siteBattle) hang(t *testing.T) (release func()) {
	t.Helper()
	if s.share != nil {
		rule := s.share.Inject(fuse.Fault{Hang: true})
		return func() {
			t.Logf("%d calls hung", rule.Waiting())
			rule.Release()
		}
	}
	servers := s.Cells[hungCell].Servers()
	for _, x := range servers {
		x.Stop()
	}
	return func() {
		for _, x := range servers {
			x.Cont()
		}
	}
}

// newcomer is a client that comes while a cell hangs: it finds all others, and only that one does not answer.
func (s *siteBattle) newcomer(t *testing.T) {
	t.Helper()
	client := newClient(t, s.Cells[0])
	for k := range hf.CellID(siteCells) {
		limit := mostGap
		if k == hungCell {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		lock, err := client.Acquire(ctx, hf.LockName(prefixOf(k)+"newcomer"), clientlib.AcquireOptions{TTL: time.Minute})
		if took := time.Since(began); (err == nil) != (k != hungCell) {
			t.Errorf("a new client acquires a lock of cell %d while cell %d hangs: %v, after %v", k, hungCell, err, took)
		}
		if err == nil {
			if err := lock.Release(ctx); err != nil {
				t.Errorf("release in cell %d: %v", k, err)
			}
		}
		cancel()
	}
}

// comesBack kills the primary of a cell while another one hangs: another server takes over, and it is started again.
func (s *siteBattle) comesBack(t *testing.T) {
	t.Helper()
	c := s.Cells[0]
	p, epoch := c.Primary(t.Context())
	if p == nil {
		t.Errorf("cell 0 has no primary while cell %d hangs", hungCell)
		return
	}
	began := time.Now()
	p.Kill()
	if !cluster.Poll(t.Context(), mostGap, func() bool {
		body, err := p.Status(t.Context())
		next, now := c.Primary(t.Context())
		return err == nil && body.Role != "" && next != nil && now > epoch
	}) {
		t.Errorf("server %d of cell 0 was killed while cell %d hung, and %v later nobody took over or it is not back", p.Member.ID, hungCell, mostGap)
	}
	t.Logf("a killed primary of cell 0 was replaced, and back, after %v", time.Since(began).Round(time.Millisecond))
}

// awaitAnswer returns how long after a moment the cell answered to anything.
func (s *siteBattle) awaitAnswer(t *testing.T, k hf.CellID, from time.Time) (d time.Duration) {
	t.Helper()
	cluster.Await(t, cluster.Patience, fmt.Sprintf("an answer of cell %d", k), func() bool {
		all := answersOf(s.ledgers[k])
		i, _ := slices.BinarySearchFunc(all, from, time.Time.Compare)
		if i == len(all) {
			return false
		}
		d = all[i].Sub(from)
		return true
	})
	return d
}

// answersOf returns when appends and grants were answered, in order.
func answersOf(l *check.Ledger) (all []time.Time) {
	appends, grants, _ := l.Entries()
	for _, a := range appends {
		if a.Acked {
			all = append(all, a.Answered)
		}
	}
	for _, g := range grants {
		all = append(all, g.Answered)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// longestGap is the longest time without an answer between two moments.
func longestGap(l *check.Ledger, from, to time.Time) (most time.Duration) {
	last := from
	for _, at := range append(answersOf(l), to) {
		if at.After(last) && !at.After(to) {
			most, last = max(most, at.Sub(last)), at
		}
	}
	return most
}

// end judges the history of locks, then each cell by itself.
func (s *siteBattle) end(t *testing.T) {
	t.Helper()
	var report check.Report
	path := func(name hf.FileName) string { return s.Cells[s.division.Route(string(name))].File(string(name)) }
	if err := s.lockers.Read(path); err != nil {
		t.Error(err)
	}
	v := s.lockers.History.Check(check.HistoryOptions{Limit: checkLimit, Pictures: t.ArtifactDir(), Linger: historyLinger, Landed: traffic.Landed(path), Least: s.lockers.Least()}, &report)
	t.Logf("%+v", v)
	s.Hosts.TermAll()
	if left := s.Left(); len(left) > 0 {
		t.Errorf("all supervisors have ended, and processes %v still serve cells", left)
	}
	for k := range s.Cells {
		s.judge(t, k, &report)
	}
	for _, bad := range report.Violations() {
		t.Error(bad)
	}
}

// judge compares the volume of a cell with what clients were told, and its log with both.
func (s *siteBattle) judge(t *testing.T, k int, r *check.Report) {
	t.Helper()
	if err := s.collectors[k].Stop(); err != nil {
		t.Error(err)
	}
	found, err := s.Cells[k].Fsck()
	check.CheckFsck(found, err, r)
	read := func(name hf.FileName) ([]byte, error) { return os.ReadFile(s.Cells[k].File(string(name))) }
	files := s.ledgers[k].Check(read, r)
	log, err := check.CheckLog(check.LogOptions{Dir: s.archives[k], Ledger: s.ledgers[k], File: read}, r)
	if err != nil {
		t.Error(err)
	}
	check.CheckHolds(s.ledgers[k].Holds(), r)
	appends, grants, unknown, _ := s.ledgers[k].Count()
	t.Logf(`cell %d: epoch %d, %d records, %d appends, %d grants, %d without an answer; lines acknowledged %d, found %d; lost %d, duplicate %d, out of order %d, foreign %d
%s`,
		k, found.Epoch, log.Records, appends, grants, unknown, files.LinesIn, files.LinesOut, files.Lost, files.Duplicate, files.Misordered, files.Foreign,
		check.Describe(s.failovers(k)))
	if appends < 100 || grants < 100 {
		t.Errorf("cell %d: %d appends, %d grants: a cell where nothing happens proves nothing", k, appends, grants)
	}
}

// TestIdleCostOfASite tells what the servers of a site cost that nobody uses. It asserts nothing.
func TestIdleCostOfASite(t *testing.T) {
	needFaults(t)
	for _, cells := range []int{1, siteCells} {
		t.Run(fmt.Sprintf("%d-cells", cells), func(t *testing.T) { idle(t, cells) })
	}
}

func idle(t *testing.T, cells int) {
	s := cluster.StartSite(t, cluster.SiteOptions{Options: options(), Cells: cells})
	for _, c := range s.Cells {
		c.AwaitReplicas(cluster.Patience)
	}
	before := costs(t, s)
	traffic.Rest(t.Context(), *idleTime)
	used := map[string][]string{}
	for x, after := range costs(t, s) {
		used[after.role] = append(used[after.role], fmt.Sprintf("%.1f%% %d MiB", 100*(after.cpu-before[x].cpu).Seconds()/idleTime.Seconds(), after.resident>>20))
	}
	for _, role := range []string{"primaries", "replicas", "supervisors"} {
		slices.Sort(used[role])
		t.Logf("%s, %v: %s", role, *idleTime, strings.Join(used[role], ", "))
	}
	s.Hosts.TermAll()
}

// cost is what a process has used.
type cost struct {
	role     string
	cpu      time.Duration
	resident int64
}

func costs(t *testing.T, s *cluster.Site) map[*cluster.Server]cost {
	t.Helper()
	all := map[*cluster.Server]cost{}
	note := func(role string, x *cluster.Server) {
		resident, err := x.ResidentBytes()
		if err != nil {
			t.Error(err)
		}
		all[x] = cost{role, x.CPU(), resident}
	}
	for _, x := range s.Hosts.Servers() {
		note("supervisors", x)
	}
	for _, c := range s.Cells {
		p, _ := c.Primary(t.Context())
		for _, x := range c.Servers() {
			role := "replicas"
			if x == p {
				role = "primaries"
			}
			note(role, x)
		}
	}
	return all
}

// failovers are those of the cell that the nemesis caused in it.
func (s *siteBattle) failovers(k int) map[string][]time.Duration {
	appends, grants, _ := s.ledgers[k].Entries()
	return check.Failovers(s.nemeses[k].Strikes, appends, grants)
}
