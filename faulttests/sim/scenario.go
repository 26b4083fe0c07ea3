// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// Sizes are small, so that a short scenario rotates, checkpoints and removes.
const (
	firstSegment    = 32 << 10
	segment         = 48 << 10
	maxBatch        = 8 << 10
	checkpointBytes = 40 << 10
)

// Scenario is one run. Make it and use it inside one synctest bubble.
type Scenario struct {
	Disk    *volumetest.Disk
	Profile volumetest.Profile
	Ledger  Ledger
	Log     zerolog.Logger
	Random  io.Reader
	// Clocks is the seed of the servers' wall clocks.
	Clocks uint64
	// Pace is how long a worker rests after a round, so that a scenario lasts.
	Pace time.Duration
	// Timing is that of every server; the zero value means Timing().
	Timing cluster.Timing
	// Servers is how many the volume has, 0 for three.
	Servers int
	// Lossy is true if leases may end while clients hold them: a client may then get the answer of a
	// grant after the next grant.
	Lossy bool
	// Outages is true if the power fails while clients read: the bytes of an append that was just
	// answered may be in the log only.
	Outages bool
	// Breaks is true if operators break grants without asking the holders.
	Breaks bool

	// Older is true if the volume was made by a binary that knew no level above locktable.BaseLevel, and Raised if
	// it was answered that the cluster has a higher one now.
	Older  bool
	Raised atomic.Bool

	// Cell is what the volume was made to own as a cell of a site, nil if it is none.
	Cell *cluster.Own

	// Strangers has each client belong to an identity of its own, and others try all they can with its
	// ID and its tokens, after each of its requests.
	Strangers bool

	denied   atomic.Int32 // requests of strangers
	progress atomic.Int32 // rounds or steps that clients finished
	workers  sync.WaitGroup
	stop     context.CancelFunc

	mu    sync.Mutex
	terms []*Term           // newest last
	last  *volume.WarmState // the table of the term that served last, as it stood at the End
	warm  *volume.WarmState // for the next term
	lists []toldList
	// backends are whole servers, in a Cluster, and audits those of all that ever were.
	backends []backend
	audits   []*audit
	witness  witness // of a Cluster
	book     logbook
	// counted is by how many primaries the counts for quotas were compared with the table at the End, drifts what differed.
	counted int
	drifts  []string
}

// toldList is a change of the list of servers that was answered.
type toldList struct {
	q   locktable.Request
	out locktable.Outcome
}

// backend is whom a client asks: a primary or a whole server.
type backend interface {
	Do(context.Context, *locktable.Request) (locktable.Outcome, error)
}

// Term is one server's process for one term: it opens the volume, prepares,
// claims and runs, once.
type Term struct {
	Host  *volumetest.Host
	audit *audit
	ready chan struct{} // closed when primary is set or the process has ended
	done  chan struct{}
	stop  context.CancelCauseFunc

	primary atomic.Pointer[primary.Primary]
	err     error // once done is closed
}

// Members are the servers of a scenario that does not say how many it has.
func Members() cluster.Members { return membersOf(3) }

// mostServers is how many a scenario may have.
const mostServers = 8

func membersOf(n int) cluster.Members {
	var all cluster.Members
	for id := range cluster.ServerID(n) {
		all = append(all, cluster.Member{
			ID: id + 1, Client: fmt.Sprintf("h%d:1", id+1), Peer: fmt.Sprintf("h%d:3", id+1),
		})
	}
	return all
}

// members are the servers of the scenario's volume.
func (s *Scenario) members() cluster.Members { return membersOf(cmp.Or(s.Servers, 3)) }

// reader is the server under whose ID a volume is read when all have ended: the last one that is a member by now.
func (s *Scenario) reader(disk *volumetest.Disk) cluster.ServerID {
	host := disk.Host(9, s.Profile)
	c, err := volume.ReadCluster(host)
	if err != nil {
		return 0 // to open the volume tells why
	}
	list, _ := volume.ReadMembers(host, c) //nolint:errcheck // that of CLUSTER will do
	voters := list.Servers.Voters()
	return voters[len(voters)-1].ID
}

// Timing returns the default timing with shorter periods; none of them matters for safety.
func Timing() cluster.Timing {
	t := cluster.DefaultTiming()
	t.FencingPeriod = 20 * time.Millisecond
	return t
}

func (s *Scenario) timing() cluster.Timing {
	if s.Timing == (cluster.Timing{}) {
		return Timing()
	}
	return s.Timing
}

// SetWarm gives the next term a replica's table, for a warm takeover.
func (s *Scenario) SetWarm(w *volume.WarmState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warm = w
}

func (s *Scenario) takeWarm() *volume.WarmState {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.warm
	s.warm = nil
	return w
}

// Begin starts a server's process; hook is asked before each of its calls.
func (s *Scenario) Begin(id cluster.ServerID, hook volumetest.Hook) *Term {
	return s.begin(id, hook, &s.book)
}

func (s *Scenario) begin(id cluster.ServerID, hook volumetest.Hook, book *logbook) *Term {
	host := s.Disk.Host(int(id), s.Profile)
	host.SetHook(hook)
	watching := newAudit(book)
	host.SetWatch(watching.Watch)
	ctx, stop := context.WithCancelCause(context.Background())
	r := &Term{Host: host, audit: watching, ready: make(chan struct{}), done: make(chan struct{}), stop: stop}
	s.mu.Lock()
	s.terms = append(s.terms, r)
	s.mu.Unlock()
	go func() {
		defer close(r.done)
		r.err = s.process(ctx, r, id)
	}()
	return r
}

// process is what a server does for one term.
func (s *Scenario) process(ctx context.Context, r *Term, id cluster.ServerID) (err error) {
	ready := sync.OnceFunc(func() { close(r.ready) })
	defer ready()
	v, err := volume.Open(r.Host, volume.Options{Server: id, Random: s.Random, FirstSegment: firstSegment, Segment: segment, HistoryRate: historyOptions().Rate})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := v.RemoveLeftovers(); err != nil {
		return err
	}
	prepared, err := v.Prepare(ctx)
	if err != nil {
		return err
	}
	term, err := v.Claim(ctx, prepared)
	if err != nil {
		return err
	}
	p := primary.New(term, primary.Options{
		Server: id, Timing: s.timing(), Warm: s.takeWarm(), Log: s.Log.With().Int("server", int(id)).Logger(),
		MaxBatch: maxBatch, CheckpointBytes: checkpointBytes, ViewInterval: 50 * time.Millisecond, History: historyOptions(), TimeOfDay: s.timeOfDay(id),
		Rules: quotaRules(),
	})
	r.primary.Store(p)
	ready()
	return p.Run(ctx)
}

// Do executes a request, and audits the answer.
func (r *Term) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	what := fmt.Sprintf("%s/%d %v", q.Client, q.ID, q.Op)
	return r.hear(what, func(p *primary.Primary) (locktable.Outcome, error) { return p.Do(ctx, q) })
}

// hear reads from the primary and audits the answer.
func (r *Term) hear(what string, ask func(*primary.Primary) (locktable.Outcome, error)) (locktable.Outcome, error) {
	arrived := r.audit.arrive()
	out, err := ask(r.primary.Load())
	if err == nil {
		r.audit.leaves(out, arrived, what)
	}
	return out, err
}

// table is a copy of what the term has committed, or nil where it does not serve.
func (r *Term) table() *volume.WarmState {
	p := r.primary.Load()
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := p.Snapshot(ctx)
	if err != nil {
		return nil
	}
	return &volume.WarmState{At: s.At, Table: s.Table}
}

// Serving waits until the term serves. It returns false if the term ends before.
func (r *Term) Serving() bool {
	<-r.ready
	for {
		p := r.primary.Load()
		if p == nil || p.State() == primary.StateEnded {
			return false
		}
		if p.State() == primary.StateServing {
			return true
		}
		select {
		case <-r.done:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the process as kill -9 does, and waits until it has wound up.
func (r *Term) Kill() {
	r.Host.Kill()
	r.stop(errKilled)
	windUp(r.done)
}

// windUp waits for the end of a dead process. One that waits for ever would keep
// virtual time going for ever.
func windUp(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(time.Hour):
		panic("sim: a dead process does not wind up")
	}
}

// pick is the term that a client's n-th try goes to: all in turn, the newest first.
func (s *Scenario) pick(n int) backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backends) > 0 {
		return s.backends[n%len(s.backends)]
	}
	if len(s.terms) == 0 {
		return nil
	}
	if r := s.terms[len(s.terms)-1-n%len(s.terms)]; r.primary.Load() != nil {
		return r
	}
	return nil
}

// pickMostly is the newest term, and for every third try an older one; nil
// where there is none, or it has not claimed yet.
func (s *Scenario) pickMostly(n int) *Term {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.terms) == 0 {
		return nil
	}
	back := 0
	if n%3 == 2 {
		back = n / 3 % len(s.terms)
	}
	if r := s.terms[len(s.terms)-1-back]; r.primary.Load() != nil {
		return r
	}
	return nil
}

// Work starts the clients: two that share a lock and a file, and one alone.
func (s *Scenario) Work(rounds int) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, w := range []*worker{
		{scenario: s, id: "c1", lock: "a", file: "a.txt"},
		{scenario: s, id: "c2", lock: "a", file: "a.txt"},
		{scenario: s, id: "c3", lock: "deep/b", file: "dir/b.txt"},
	} {
		s.workers.Go(func() { w.run(ctx, rounds) })
	}
}

// finished is closed when all clients are done.
func (s *Scenario) finished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		s.workers.Wait()
		close(done)
	}()
	return done
}

// End kills every process that still runs.
func (s *Scenario) End() {
	s.stop()
	s.workers.Wait()
	s.checkQuotas()
	s.mu.Lock()
	terms := s.terms
	s.mu.Unlock()
	for _, r := range slices.Backward(terms) {
		if w := r.table(); w != nil {
			s.last = w
			break
		}
	}
	for _, r := range terms {
		r.Kill()
	}
}

// timeOfDay returns the wall clock of a scenario's machine: every few seconds it is set
// forwards or back by hours, or it runs too fast or too slow. It is a function of the moment
// alone, so that a schedule is the same however often it is asked. See primary.Options.
func (s *Scenario) timeOfDay(host cluster.ServerID) func(time.Time) time.Time {
	return func(now time.Time) time.Time {
		at := time.Duration(now.UnixNano())
		rng := rand.New(rand.NewPCG(s.Clocks, uint64(host)<<32|uint64(at/wallSet)))
		off := time.Duration(rng.Int64N(int64(24*time.Hour))) - 12*time.Hour
		if rng.IntN(3) == 0 {
			off = 0
		}
		rate := []float64{1, 1, 0.4, 3}[rng.IntN(4)]
		return now.Round(0).Add(off + time.Duration((rate-1)*float64(at%wallSet)))
	}
}

// wallSet is how long a wall clock runs before it is set again.
const wallSet = 5 * time.Second
