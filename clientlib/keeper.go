// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// minTick bounds how often the leases are looked at.
	minTick = 50 * time.Millisecond
	// maxListed is how many locks the service lists with each answer, on average, while
	// requests for more are under way: a client that holds more has them listed less often.
	maxListed = 1024
	// unsure is how many tokens nobody holds: the service then lists all it has.
	unsure = math.MaxUint32
	// renewers is how many keep-alives or renewals are under way at a time.
	renewers = 64
	// lateness is how late the keeper's own timer may be before that is worth a word.
	lateness = 100 * time.Millisecond
)

// keeper keeps the leases alive and ends the locks whose time is over. It runs
// one goroutine while there is anything to watch.
type keeper struct {
	c    *Client
	wake chan struct{}
	// loops is the goroutine, and the renewals that it started.
	loops sync.WaitGroup

	mu struct {
		sync.Mutex
		locks    map[cluster.Token]*Lock // acquired here
		attached map[grant]*Lock         // got elsewhere: neither kept alive nor strays
		// expecting counts the requests under way that may end in a grant of the lock. Only
		// older servers, which do not say which request a grant answered, need it.
		expecting map[cluster.LockName]int
		// leaving counts who gives a token back.
		leaving map[cluster.Token]int
		// early is what was told of these locks, of grants whose answers are being handed out.
		early map[cluster.LockName][]notice
		// busy are the seats that they come from; see seat.requests.
		busy map[*seat]bool
		// ttls counts the leases and waits to be kept alive by their TTL.
		ttls      map[time.Duration]int
		next      time.Duration // of the next keep-alive, on the Clock
		wakes     time.Duration // when the goroutine looks again, on the Clock
		overslept overslept
		running   bool
		late      bool // some lock is in danger, and that was reported
		compared  bool // the last keep-alive was compared by what is held, and not by how much
		closed    bool
	}
}

// overslept says by how much the keeper's own timer was late, the last time it was, and until when.
type overslept struct{ by, until time.Duration }

// oversleep notes that the goroutine is about to look. It is called with mu held.
func (k *keeper) oversleep(now time.Duration) {
	if by := now - k.mu.wakes; k.mu.running && by > lateness {
		k.mu.overslept = overslept{by, now}
	}
}

// oversleptBy is how late the keeper's own timer was within the time of a lease, 0 if it was not:
// the process did not run, or its machine slept.
func (k *keeper) oversleptBy(ttl time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := fresh(k.c.opt.Clock)
	k.oversleep(now) // the goroutine may not run yet
	return k.mu.overslept.within(now, ttl)
}

func (x overslept) within(now, d time.Duration) time.Duration {
	if now-x.until > d {
		return 0
	}
	return x.by
}

func newKeeper(c *Client) *keeper {
	k := &keeper{c: c, wake: make(chan struct{}, 1)}
	k.mu.locks = map[cluster.Token]*Lock{}
	k.mu.attached = map[grant]*Lock{}
	k.mu.expecting = map[cluster.LockName]int{}
	k.mu.leaving = map[cluster.Token]int{}
	k.mu.compared = true
	k.mu.early = map[cluster.LockName][]notice{}
	k.mu.busy = map[*seat]bool{}
	k.mu.ttls = map[time.Duration]int{}
	return k
}

// expect notes a request that may be granted lock: until unexpect the seat it came from
// is kept alive with the others, and with a TTL, for its place in the queue, often enough.
// That its grant is no stray is known by its number, see identity.expects.
func (k *keeper) expect(lock cluster.LockName, from *seat, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.expecting[lock]++
	if from != nil {
		from.requests++
		k.mu.busy[from] = true
	}
	if ttl > 0 {
		k.count(ttl, k.c.opt.Clock.Now())
	}
}

func (k *keeper) unexpect(lock cluster.LockName, from *seat, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.expecting[lock]--; k.mu.expecting[lock] == 0 {
		delete(k.mu.expecting, lock)
		delete(k.mu.early, lock)
	}
	if from != nil {
		if from.requests--; from.requests == 0 {
			delete(k.mu.busy, from)
		}
	}
	if ttl > 0 {
		k.uncount(ttl)
	}
}

// leave notes that somebody gives a token back: until left, its grant is not a stray.
func (k *keeper) leave(token cluster.Token) (left func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.leaving[token]++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.mu.leaving[token]--; k.mu.leaving[token] == 0 {
			delete(k.mu.leaving, token)
		}
	}
}

// count and uncount are called with mu held.
func (k *keeper) count(ttl, now time.Duration) {
	if at := now + ttl/3; len(k.mu.ttls) == 0 || at < k.mu.next {
		k.mu.next = at
	}
	k.mu.ttls[ttl]++
	k.start(ttl, now)
}

// uncount wakes nobody: that nothing is left, the goroutine sees at its next tick.
func (k *keeper) uncount(ttl time.Duration) {
	if k.mu.ttls[ttl]--; k.mu.ttls[ttl] <= 0 {
		delete(k.mu.ttls, ttl)
	}
}

// start sees to it that a lease of ttl is looked at in time. It is called with
// mu held, for every lock, and so wakes the goroutine only if it must.
func (k *keeper) start(ttl, now time.Duration) {
	switch {
	case k.mu.closed:
	case !k.mu.running:
		k.mu.running, k.mu.wakes = true, now
		k.loops.Go(k.run)
	case now+tick(ttl) < k.mu.wakes:
		k.poke()
	}
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// look ends a lock whose time is over, without waiting for the next tick.
func (k *keeper) look(l *Lock) {
	if l.ctx.Err() == nil && l.counted().over(k.c.opt.Clock.Now()) {
		l.lose(l.notRenewed())
	}
}

// close ends all locks. Nothing is added any more.
func (k *keeper) close() {
	k.mu.Lock()
	k.mu.closed = true
	all := slices.Collect(k.handles())
	k.mu.Unlock()
	for _, l := range all {
		l.end(l.lost(LossClosed, nil))
	}
	k.loops.Wait()
}

// run is the goroutine. It never blocks on the network, so that leases end on
// time however the network is.
func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.c.life.Done():
			return
		}
		p := k.plan()
		for _, l := range p.over {
			l.lose(l.notRenewed())
		}
		if p.idle {
			return
		}
		if p.renew {
			k.loops.Go(k.renewAll)
		}
		timer.Reset(p.pause)
	}
}

// plan is what the keeper does next.
type plan struct {
	over  []*Lock // whose time is over
	renew bool
	idle  bool // there is nothing to watch
	pause time.Duration
}

// plan looks at all leases. Go's timers stand still while the machine sleeps, so
// it reads the Clock at every tick, not only when a timer says so.
func (k *keeper) plan() plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.c.opt.Clock.Now()
	k.oversleep(now)
	p := plan{pause: time.Hour}
	late, counted := false, false
	for l := range k.handles() {
		s := l.judged(now)
		if !s.counted {
			continue
		}
		counted = true
		if s.over(now) {
			p.over, p.pause = append(p.over, l), min(p.pause, minTick) // to see that nothing is left
			continue
		}
		p.pause = min(p.pause, s.deadline-now, tick(s.ttl))
		if left := s.danger() - now; left >= 0 {
			p.pause = min(p.pause, left+1) // it is in danger when the moment has passed
		} else {
			late = late || l.owner != ""
		}
	}
	if late && !k.mu.late {
		k.c.opt.Log.Warn("no renewal was answered for half a lease: locks are in danger", "own_timer_late_by", k.mu.overslept.within(now, time.Minute))
	}
	k.mu.late = late
	if len(k.mu.ttls) > 0 {
		if k.mu.next <= now {
			p.renew, k.mu.next = true, now+k.interval()
		}
		p.pause = min(p.pause, k.mu.next-now)
	}
	for ttl := range k.mu.ttls {
		p.pause = min(p.pause, tick(ttl))
	}
	k.mu.wakes = now + p.pause
	p.idle = !counted && len(k.mu.ttls) == 0
	if p.idle {
		k.mu.running = false
	}
	return p
}

func tick(ttl time.Duration) time.Duration { return max(minTick, ttl/20) }

// interval is the time from one keep-alive to the next. It is called with mu held.
func (k *keeper) interval() time.Duration {
	interval := 3 * time.Hour
	for ttl := range k.mu.ttls {
		interval = min(interval, ttl)
	}
	interval /= 3
	// A little early, by chance, so that clients which started together spread.
	return interval - time.Duration(k.c.opt.Rand()%uint64(interval/10+1))
}

// renewAll keeps alive all that this client holds and waits for. It does not wait for a
// keep-alive of before that is under way: one that hangs delays those of no other seat.
func (k *keeper) renewAll() {
	opened, err := k.keepSeats()
	if err != nil && k.c.life.Err() == nil {
		k.c.opt.Log.Warn("leases could not be renewed", "error", err)
	}
	if err != nil || !opened {
		k.within(time.Second)
	}
}

// within has the leases renewed after d at the latest.
func (k *keeper) within(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.c.opt.Clock.Now() + d; len(k.mu.ttls) > 0 && at < k.mu.next {
		k.mu.next = at
		k.poke()
	}
}

// keepSeats keeps alive each seat that holds or waits, unless that is under way. False
// means that one of them is not open yet.
func (k *keeper) keepSeats() (opened bool, err error) {
	k.mu.Lock()
	seats := map[*seat]bool{}
	for s := range k.mu.busy {
		seats[s] = !s.renewing
	}
	for _, l := range k.mu.locks {
		seats[l.from] = !l.from.renewing
	}
	opened = true
	var all []func() error
	for s, idle := range seats { // any order
		who := s.current()
		if who == nil {
			opened = false
		} else if idle {
			s.renewing = true
			all = append(all, func() error {
				defer k.renewed(s)
				return k.keepAlive(s, who)
			})
		}
	}
	k.mu.Unlock()
	return opened, several(all)
}

// renewed notes that the keep-alive of a seat is over.
func (k *keeper) renewed(s *seat) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.renewing = false
}

// several does all of it, renewers at a time.
func several(all []func() error) error {
	next := make(chan func() error)
	errs := make([]error, min(renewers, len(all)))
	var workers sync.WaitGroup
	for i := range errs {
		workers.Go(func() {
			for f := range next {
				if err := f(); err != nil {
					errs[i] = err
				}
			}
		})
	}
	for _, f := range all {
		next <- f
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

func (k *keeper) keepAlive(from *seat, who *identity) error {
	var sent time.Duration
	var asked []*Lock
	var q *pb.KeepAliveRequest
	var via *session
	failed := func(err error) { k.troubled(from, err) }
	r, err := do(k.c.life, k.c, &call{op: "keep alive", failed: failed}, func(ctx context.Context, s pb.LockServiceClient) (*pb.KeepAliveResponse, error) {
		sent = k.c.opt.Clock.Now()
		via, _ = s.(*session)
		asked, q = k.belief(from, who)
		return s.KeepAlive(ctx, q)
	})
	if status.Code(err) == codes.ResourceExhausted {
		// The service lists more than fits into an answer. It has heard us, so
		// places in queues are kept; of the leases each one has to be asked about.
		k.c.opt.Log.Warn("leases are renewed one by one", "locks", len(asked), "error", err)
		err = k.renewEach(asked)
		failed(err)
		return err
	}
	if err != nil {
		failed(err)
		return err
	}
	switch s := wire.FromStatus(r.GetStatus()); s {
	case cluster.StatusOK:
	case cluster.StatusStaleRequest:
		from.forget(who)
		for _, l := range asked {
			l.lose(l.lost(LossForgotten, wire.Err(s)))
		}
		return nil
	default:
		err := &wire.Error{Status: s, Message: r.GetMessage()}
		failed(err)
		return err
	}
	if k.answered(from, via, q, r) {
		return k.keepAlive(from, who) // the number alone proves nothing: this time all is listed
	}
	granted := make(map[cluster.Token]bool, len(r.GetGrants()))
	for _, g := range r.GetGrants() {
		granted[cluster.Token(g.Token)] = true
	}
	for _, l := range asked {
		if r.GetDiffers() && !granted[l.token] {
			l.lose(l.lost(LossRefused, wire.ErrLeaseExpired))
			continue
		}
		if l.heartbeat {
			continue // it was not renewed by this
		}
		ttl := l.TTL()
		l.grant(ttl, sent, ttl, cluster.LSN(r.GetLsn()))
	}
	k.asked(r.GetAsks())
	for _, g := range k.strays(who, r.GetGrants()) {
		lock, token := cluster.LockName(g.Lock), cluster.Token(g.Token)
		k.c.opt.Log.Warn("releasing a lock that nobody here holds", "lock", lock, "token", token)
		left := k.leave(token)
		k.c.detach(k.c.life, func(ctx context.Context) {
			defer left()
			k.c.letGo(ctx, who, lock, token)
		})
	}
	return nil
}

// renewEach renews leases one by one.
func (k *keeper) renewEach(locks []*Lock) error {
	all := make([]func() error, 0, len(locks))
	for _, l := range locks {
		if l.heartbeat {
			continue
		}
		all = append(all, func() error {
			err := l.renew(k.c.life)
			if refused(err) {
				l.lose(l.lost(LossRefused, err))
				return nil
			}
			return err
		})
	}
	return several(all)
}

// belief is which locks of this identity are believed to be held, and what to say of them.
// A digest says which they are. An older server looks at how many they are, which proves
// nothing: one may be lost and another just granted. It is made to list them. Of very many
// neither is done with every keep-alive while requests are under way, or renewing them
// would cost in proportion to their number: what has just been granted differs each time.
// A session is told of a loss at once in any case, and a lease that nobody renewed
// is counted here as well as there.
func (k *keeper) belief(from *seat, who *identity) ([]*Lock, *pb.KeepAliveRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	locks := make([]*Lock, 0, len(k.mu.locks))
	digest := cluster.Digest(0)
	q := &pb.KeepAliveRequest{ClientId: string(who.id)}
	for _, l := range k.mu.locks {
		if l.owner != who.id {
			continue
		}
		locks, digest = append(locks, l), digest.With(l.token)
		if lsn := uint64(l.token); q.LossesAfterLsn == 0 || lsn < q.LossesAfterLsn {
			q.LossesAfterLsn = lsn // no loss of them lies before
		}
	}
	q.Held, q.Digest = uint32(len(locks)), (*uint64)(&digest)
	if k.mu.compared && !k.mu.busy[from] {
		return locks, q
	}
	if from.unlisted += maxListed; from.unlisted < len(locks) {
		q.Held, q.Digest = wire.HeldUnsaid, nil
		return locks, q
	}
	from.unlisted, q.Held = 0, unsure
	return locks, q
}

// strays are grants of this client that nobody here holds, wants or gives back. So a grant
// of a lock that this client waits for is one, if it answered another request.
func (k *keeper) strays(who *identity, grants []*pb.HeldLock) []*pb.HeldLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	var strays []*pb.HeldLock
	for _, g := range grants {
		lock, token := cluster.LockName(g.Lock), cluster.Token(g.Token)
		wanted := k.mu.expecting[lock] > 0
		if g.RequestId != 0 {
			wanted = who.expects(cluster.RequestID(g.RequestId))
		}
		if k.mu.locks[token] == nil && k.mu.attached[grant{lock, token}] == nil && k.mu.leaving[token] == 0 && !wanted {
			strays = append(strays, g)
		}
	}
	return strays
}
