// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// server is one process: an Elector, and a node that claims in the register.
type server struct {
	w      *world
	id     cluster.ServerID
	nonce  uint64
	e      *election.Elector
	higher chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		role      election.Role
		epoch     cluster.Epoch
		probed    time.Time     // last success on the volume
		progress  time.Time     // the core loop stands still since; zero: it runs
		noVolume  bool          // every access hangs
		fresh     bool          // the last access is always a moment ago
		unable    bool          // has no prepared claim
		cannot    bool          // every takeover fails after its fence
		slowClaim time.Duration // how long a claim takes
		slowFence time.Duration // by how much longer a takeover takes
		paused    chan struct{} // closed at resume
		conflicts []cluster.ServerID
		strangers []election.Stranger
		old       bool    // shows nothing on the volume
		ends      []error // how terms ended
		resign    chan struct{}
		asks      int // pre-votes sent
	}
}

func (s *server) end() {
	s.cancel()
	s.wg.Wait()
}

func (s *server) role() (election.Role, cluster.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.role, s.mu.epoch
}

func (s *server) set(role election.Role, epoch cluster.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.role, s.mu.epoch = role, epoch
}

// change alters how the process behaves.
func (s *server) change(f func(s *server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *server) hasVolume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.noVolume
}

// gate holds every goroutine of a frozen process.
func (s *server) gate() {
	s.mu.Lock()
	paused := s.mu.paused
	s.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// status is what the node says to its Elector. It never blocks, except that a
// frozen process runs nothing at all.
func (s *server) status() election.Status {
	s.gate()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := election.Status{Role: s.mu.role, Epoch: s.mu.epoch, Storage: time.Since(s.mu.probed)}
	if s.mu.fresh {
		st.Storage = 0
	}
	st.Able = s.mu.role == election.RoleReplica && !s.mu.noVolume && !s.mu.unable
	if !s.mu.progress.IsZero() {
		st.Progress = time.Since(s.mu.progress)
	}
	return st
}

// probe touches the volume twice a second.
func (s *server) probe(ctx context.Context) {
	seen := map[uint64]int{}
	for s.sleep(ctx, 500*time.Millisecond) {
		s.mu.Lock()
		has, old := !s.mu.noVolume, s.mu.old
		if has {
			s.mu.probed = time.Now()
		}
		s.mu.Unlock()
		if has && !old {
			s.show(seen)
		}
	}
}

// show leaves a sign of life on the volume, and looks for those of others.
func (s *server) show(seen map[uint64]int) {
	ids := append(s.e.Unproven(), s.id)
	s.w.mu.Lock()
	s.w.mu.shown[s.nonce] = showing{s.id, s.w.mu.shown[s.nonce].count + 1}
	shown := maps.Clone(s.w.mu.shown)
	s.w.mu.Unlock()
	for nonce, x := range shown {
		if !slices.Contains(ids, x.id) {
			continue
		}
		if was, ok := seen[nonce]; ok && was < x.count {
			s.e.Prove(x.id, nonce)
		}
		seen[nonce] = x.count
	}
}

// sleep waits, and longer when the process is frozen.
func (s *server) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
	}
	s.gate()
	return ctx.Err() == nil
}

// serve is the node: it claims when told to.
func (s *server) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.e.Elected():
		}
		served, err := s.serveTerm(ctx)
		s.mu.Lock()
		s.mu.role = election.RoleReplica
		s.mu.ends = append(s.mu.ends, err)
		s.mu.Unlock()
		s.e.Done(err, served)
	}
}

// serveTerm claims, takes over and serves until it is fenced or steps down.
func (s *server) serveTerm(ctx context.Context) (time.Duration, error) {
	_, known := s.role()
	s.set(election.RoleCandidate, known)
	s.mu.Lock()
	slow := s.mu.slowClaim
	s.mu.Unlock()
	if !s.sleep(ctx, time.Millisecond+slow+s.w.random(20*time.Millisecond)) {
		return 0, ctx.Err()
	}
	if !s.hasVolume() {
		return 0, errVolume
	}
	epoch := s.w.claim()
	s.set(election.RoleFencing, epoch)
	if err := s.e.Confirm(ctx); err != nil {
		return 0, err
	}
	if err := s.w.fence(epoch); err != nil {
		return 0, err
	}
	if !s.sleep(ctx, 5*time.Millisecond+s.w.random(50*time.Millisecond)) {
		return 0, ctx.Err()
	}
	s.mu.Lock()
	cannot, slow := s.mu.cannot, s.mu.slowFence
	s.mu.Unlock()
	for end := time.Now().Add(slow); time.Now().Before(end); {
		s.sign(func(x *election.Sign) { x.Takeover++ })
		if !s.sleep(ctx, time.Second) {
			return 0, ctx.Err()
		}
	}
	s.sign(func(x *election.Sign) { x.Takeover = 0 })
	if cannot {
		return 0, errCannot
	}
	if !s.w.check(epoch) {
		return 0, errFenced
	}
	return s.rule(ctx, epoch)
}

// rule serves. An idle primary checks its fence once a second, or when it is
// told of a higher epoch.
func (s *server) rule(ctx context.Context, epoch cluster.Epoch) (time.Duration, error) {
	began := time.Now()
	checked, heard, looked, beat := began, began, began, began
	var slept time.Duration
	var woke time.Time
	resign := make(chan struct{}, 1)
	s.mu.Lock()
	s.mu.resign = resign
	s.mu.Unlock()
	s.set(election.RolePrimary, epoch)
	for {
		told := false
		select {
		case <-ctx.Done():
			return time.Since(began), ctx.Err()
		case <-resign:
			return time.Since(began), nil
		case <-s.higher:
			told = true
		case <-time.After(20 * time.Millisecond):
		}
		s.gate()
		if s.hasVolume() && (told || time.Since(checked) >= time.Second) {
			checked = time.Now()
			if !s.w.check(epoch) {
				return time.Since(began), errFenced
			}
		}
		if s.hasVolume() && time.Since(beat) >= time.Second {
			beat = time.Now()
			s.sign(func(x *election.Sign) { x.Beat++ })
		}
		if time.Since(looked) > s.w.timing.StorageTimeout { // as package node counts it
			woke = time.Now()
		}
		s.mu.Lock()
		stalled := min(time.Since(s.mu.probed), time.Since(woke)) > s.w.timing.StorageTimeout
		s.mu.Unlock()
		if stalled && s.e.FreshStorageElsewhere() {
			return time.Since(began), errVolume
		}
		slept = max(slept, time.Since(looked)) // as package node counts it
		looked = time.Now()
		if s.e.Majority() {
			heard, slept = looked, 0
		} else if time.Since(heard)-slept > s.w.timing.QuorumTimeout+s.e.Allowance() {
			return time.Since(began), errLonely
		}
	}
}

// sign changes this server's sign on the volume.
func (s *server) sign(change func(*election.Sign)) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	x := s.w.mu.signs[s.id]
	change(&x)
	s.w.mu.signs[s.id] = x
}

// look shows the Elector what the volume shows, where it asks.
func (s *server) look(ctx context.Context) {
	for s.sleep(ctx, 200*time.Millisecond) {
		if !s.hasVolume() || !s.e.AsksVolume() {
			continue
		}
		began := time.Now()
		s.w.mu.Lock()
		signs := maps.Clone(s.w.mu.signs)
		if x := s.w.mu.stale[s.id]; x != nil {
			signs = maps.Clone(x)
		}
		s.w.mu.Unlock()
		delete(signs, s.id)
		s.e.Saw(election.Look{Began: began, Ended: time.Now(), Signs: signs})
	}
}

// claim takes the next epoch.
func (w *world) claim() cluster.Epoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.claims++
	w.mu.epoch++
	return w.mu.epoch
}

// fence fences every epoch below, unless this one is fenced itself.
func (w *world) fence(epoch cluster.Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch < w.mu.fence {
		return errFenced
	}
	w.mu.fence = epoch
	return nil
}

// check reports whether the epoch is not fenced.
func (w *world) check(epoch cluster.Epoch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return epoch >= w.mu.fence
}

// Ping implements election.Transport over the simulated network.
func (s *server) Ping(ctx context.Context, to cluster.ServerID, p election.Ping) (pong election.Pong, err error) {
	err = s.exchange(ctx, to, func(other *server) { pong = other.e.HandlePing(p) })
	return pong, err
}

// PreVote implements election.Transport.
func (s *server) PreVote(ctx context.Context, to cluster.ServerID, a election.Ask) (vote election.Vote, err error) {
	s.change(func(s *server) { s.mu.asks++ })
	err = s.exchange(ctx, to, func(other *server) { vote = other.e.HandlePreVote(ctx, a) })
	return vote, err
}

// exchange carries a question there and an answer back.
func (s *server) exchange(ctx context.Context, to cluster.ServerID, ask func(*server)) error {
	defer s.gate()
	if !s.travel(ctx, s.id, to) {
		return fmt.Errorf("to %d: %w", to, context.Cause(ctx))
	}
	w := s.w.dialed()
	other := w.server(to)
	w.mu.Lock()
	refuse := other == nil || w.mu.refuse[to]
	w.mu.Unlock()
	if refuse {
		return fmt.Errorf("to %d: %w", to, errRefused)
	}
	other.mu.Lock()
	paused := other.mu.paused
	other.mu.Unlock()
	if paused != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("to %d: %w", to, context.Cause(ctx))
		case <-paused: // until then in its socket's buffer
		}
	}
	ask(other)
	if !s.travel(ctx, to, s.id) {
		return fmt.Errorf("from %d: %w", to, context.Cause(ctx))
	}
	return nil
}

// travel is one way of a message; false means that it never arrives.
func (s *server) travel(ctx context.Context, from, to cluster.ServerID) bool {
	if s.w.lost(from, to) {
		<-ctx.Done()
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100*time.Microsecond + s.w.random(s.w.longest())):
		return true
	}
}
