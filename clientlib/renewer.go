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
	// minTick bounds how often the leases are checked.
	minTick = 50 * time.Millisecond
	// maxListed is how many locks the service lists with each answer, on average, while further
	// requests are under way: a client that holds more has them listed less often.
	maxListed = 1024
	// heldUnknown is a number of tokens that no client holds: the service then lists all it has.
	heldUnknown = math.MaxUint32
	// renewers is how many keep-alives or renewals are under way at a time.
	renewers = 64
	// lateness is how late the renewer's own timer may be before that is reported.
	lateness = 100 * time.Millisecond
)

// leaseRenewer keeps leases alive and ends the locks whose lease has ended. It runs one goroutine
// while there is anything to count.
type leaseRenewer struct {
	c    *Client
	wake chan struct{}
	// loops is the goroutine, and the renewals that it started.
	loops sync.WaitGroup

	mu struct {
		sync.Mutex
		locks    map[Token]*Lock // acquired here
		attached map[grant]*Lock // got elsewhere: neither kept alive nor strays
		// expecting counts the requests under way that may end in a grant of the lock. It is
		// needed for older servers, which do not report which request a grant answered.
		expecting map[LockName]int
		// leaving counts the releases under way of a token.
		leaving map[Token]int
		// early has notices of grants whose answers are being handed out.
		early map[LockName][]notice
		// busy are the registrations of these requests; see registration.requests.
		busy map[*registration]bool
		// ttls counts the leases and waits to be kept alive by their TTL.
		ttls      map[time.Duration]int
		next      time.Duration // of the next keep-alive, on the Clock
		wakes     time.Duration // when the goroutine checks next, on the Clock
		overslept overslept
		running   bool
		late      bool // some lock is in jeopardy, and that was reported
		compared  bool // the last keep-alive was compared by what is held, and not by how much
		closed    bool
	}
}

// overslept is by how much the renewer's own timer was late, the last time it was, and until
// when.
type overslept struct{ by, until time.Duration }

// oversleep notes whether the goroutine runs late. It is called with mu held.
func (k *leaseRenewer) oversleep(now time.Duration) {
	if by := now - k.mu.wakes; k.mu.running && by > lateness {
		k.mu.overslept = overslept{by, now}
	}
}

// oversleptBy returns how late the renewer's own timer was within the time of a lease, because
// the process did not run or its machine slept; 0 if it was not.
func (k *leaseRenewer) oversleptBy(ttl time.Duration) time.Duration {
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

func newLeaseRenewer(c *Client) *leaseRenewer {
	k := &leaseRenewer{c: c, wake: make(chan struct{}, 1)}
	k.mu.locks = map[Token]*Lock{}
	k.mu.attached = map[grant]*Lock{}
	k.mu.expecting = map[LockName]int{}
	k.mu.leaving = map[Token]int{}
	k.mu.compared = true
	k.mu.early = map[LockName][]notice{}
	k.mu.busy = map[*registration]bool{}
	k.mu.ttls = map[time.Duration]int{}
	return k
}

// expect notes a request that may be granted lock. Until unexpect its registration is kept alive
// with the others, and with a TTL, for its place in the queue, often enough. That its grant is no
// stray is known by its number, see identity.expects.
func (k *leaseRenewer) expect(lock LockName, from *registration, ttl time.Duration) {
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

func (k *leaseRenewer) unexpect(lock LockName, from *registration, ttl time.Duration) {
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

// leave notes that a token is being released: until left is called, its grant is not a stray.
func (k *leaseRenewer) leave(token Token) (left func()) {
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
func (k *leaseRenewer) count(ttl, now time.Duration) {
	if at := now + ttl/3; len(k.mu.ttls) == 0 || at < k.mu.next {
		k.mu.next = at
	}
	k.mu.ttls[ttl]++
	k.start(ttl, now)
}

// uncount does not wake the goroutine, which sees at its next tick that nothing is left.
func (k *leaseRenewer) uncount(ttl time.Duration) {
	if k.mu.ttls[ttl]--; k.mu.ttls[ttl] <= 0 {
		delete(k.mu.ttls, ttl)
	}
}

// start makes sure that a lease of ttl is checked in time. It is called with mu held, for every
// lock, and so wakes the goroutine only if it must.
func (k *leaseRenewer) start(ttl, now time.Duration) {
	switch {
	case k.mu.closed:
	case !k.mu.running:
		k.mu.running, k.mu.wakes = true, now
		k.loops.Go(k.run)
	case now+tick(ttl) < k.mu.wakes:
		k.notify()
	}
}

// notify wakes the goroutine.
func (k *leaseRenewer) notify() {
	select {
	case k.wake <- struct{}{}:
	default: // it is about to wake up
	}
}

// endIfOver ends a lock whose lease has ended, without waiting for the next tick.
func (k *leaseRenewer) endIfOver(l *Lock) {
	if l.ctx.Err() == nil && l.counted().over(k.c.opt.Clock.Now()) {
		l.lose(l.notRenewed())
	}
}

// close ends all locks. Nothing is added any more.
func (k *leaseRenewer) close() {
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
func (k *leaseRenewer) run() {
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

// plan is what the goroutine does next.
type plan struct {
	over  []*Lock // whose leases have ended
	renew bool
	idle  bool // there is nothing to count
	pause time.Duration
}

// plan checks all leases. Go's timers stand still while the machine sleeps, so it reads the Clock
// at every tick, not only when a timer fires.
func (k *leaseRenewer) plan() plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.c.opt.Clock.Now()
	k.oversleep(now)
	p := plan{pause: time.Hour}
	late, counted := false, false
	for l := range k.handles() {
		s := l.leaseAt(now)
		if !s.counted {
			continue
		}
		counted = true
		if s.over(now) {
			p.over, p.pause = append(p.over, l), min(p.pause, minTick) // to notice that nothing is left
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
func (k *leaseRenewer) interval() time.Duration {
	interval := 3 * time.Hour
	for ttl := range k.mu.ttls {
		interval = min(interval, ttl)
	}
	interval /= 3
	// A little early, by chance, so that clients which started together spread.
	return interval - time.Duration(k.c.opt.Rand()%uint64(interval/10+1))
}

// renewAll keeps alive all that this client holds and waits for. It does not wait for earlier
// keep-alives that are under way: one that hangs delays those of no other registration.
func (k *leaseRenewer) renewAll() {
	opened, err := k.keepRegistrations()
	if err != nil && k.c.life.Err() == nil {
		k.c.opt.Log.Warn("leases could not be renewed", "error", err)
	}
	if err != nil || !opened {
		k.within(time.Second)
	}
}

// within has the leases renewed after d at the latest.
func (k *leaseRenewer) within(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.c.opt.Clock.Now() + d; len(k.mu.ttls) > 0 && at < k.mu.next {
		k.mu.next = at
		k.notify()
	}
}

// keepRegistrations keeps alive each registration that holds or waits, unless that is under way.
// It returns false if one of them is not open yet.
func (k *leaseRenewer) keepRegistrations() (opened bool, err error) {
	k.mu.Lock()
	registrations := map[*registration]bool{}
	for s := range k.mu.busy {
		registrations[s] = !s.renewing
	}
	for _, l := range k.mu.locks {
		registrations[l.from] = !l.from.renewing
	}
	opened = true
	var all []func() error
	for s, idle := range registrations { // any order
		who := s.current()
		if who == nil {
			opened = false
		} else if idle {
			s.renewing = true
			all = append(all, func() error {
				defer k.renewed(s)
				return k.keepAliveReported(s, who)
			})
		}
	}
	k.mu.Unlock()
	return opened, runParallel(all)
}

// renewed notes that the keep-alive of a registration is over.
func (k *leaseRenewer) renewed(s *registration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.renewing = false
}

// runParallel calls all functions, at most renewers at a time, and returns the errors of those
// that failed, one of each worker.
func runParallel(all []func() error) error {
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

// keepAlive renews all leases of an identity with one request, and ends the locks that the service
// does not have any more. Grants that it has and that are strays are released.
func (k *leaseRenewer) keepAlive(from *registration, who *identity) error {
	var sent time.Duration
	var asked []*Lock
	var q *pb.KeepAliveRequest
	var via *session
	failed := func(err error) { k.troubled(from, err) }
	r, err := do(k.c.life, k.c, &call{op: keepAliveOp, failed: failed}, func(ctx context.Context, s pb.LockServiceClient) (*pb.KeepAliveResponse, error) {
		sent = k.c.opt.Clock.Now()
		via, _ = s.(*session)
		asked, q = k.belief(from, who)
		return s.KeepAlive(ctx, q)
	})
	if status.Code(err) == codes.ResourceExhausted {
		// The service lists more than fits into an answer. It has got the request, so
		// places in queues are kept; the leases have to be renewed one by one.
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
		err := &ServiceError{Status: s, Message: r.GetMessage()}
		failed(err)
		return err
	}
	if k.answered(from, via, q, r) {
		return k.keepAlive(from, who) // the number alone proves nothing: this time all are listed
	}
	k.settle(asked, r, sent)
	k.asked(r.GetAsks())
	for _, g := range k.strays(who, r.GetGrants()) {
		lock, token := LockName(g.Lock), Token(g.Token)
		k.c.opt.Log.Warn("releasing a lock that this client holds without a handle", "lock", lock, "token", token)
		left := k.leave(token)
		k.c.detach(k.c.life, func(ctx context.Context) {
			defer left()
			k.c.letGo(ctx, who, lock, token)
		})
	}
	return nil
}

// settle renews, as of when the keep-alive was sent, the locks that it was answered for, and ends
// those that are not held any more.
func (k *leaseRenewer) settle(asked []*Lock, r *pb.KeepAliveResponse, sent time.Duration) {
	granted := make(map[Token]bool, len(r.GetGrants()))
	for _, g := range r.GetGrants() {
		granted[Token(g.Token)] = true
	}
	now := fresh(k.c.opt.Clock)
	for _, l := range asked {
		// A lease that ended before the answer was read may have ended before the service got the
		// request, and a keep-alive without a digest does not tell. This may be the first that the
		// process does after a pause, so the renewer's own timer need not have seen it.
		if l.leaseAt(now).over(now) {
			l.lose(l.notRenewed())
			continue
		}
		if r.GetDiffers() && !granted[l.token] {
			l.lose(l.lost(LossRefused, ErrLeaseExpired))
			continue
		}
		if l.heartbeat {
			continue // it was not renewed by this
		}
		ttl := l.TTL()
		l.grant(ttl, sent, ttl, LSN(r.GetLsn()))
	}
}

// renewEach renews leases one by one.
func (k *leaseRenewer) renewEach(locks []*Lock) error {
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
	return runParallel(all)
}

// belief returns the locks of this identity that are believed to be held, and the keep-alive for
// them. Its digest identifies them. An older server compares only how many they are, which proves
// nothing: one may be lost and another just granted. It is made to list them. For very many locks
// neither is done with every keep-alive while requests are under way, or renewing them would cost
// in proportion to their number: what has just been granted differs each time. A session reports
// a loss at once in any case, and a lease that was not renewed is counted here as well as there.
func (k *leaseRenewer) belief(from *registration, who *identity) ([]*Lock, *pb.KeepAliveRequest) {
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
		q.Held, q.Digest = wire.HeldNotReported, nil
		return locks, q
	}
	from.unlisted, q.Held = 0, heldUnknown
	return locks, q
}

// strays returns the grants of this client that have no handle, no open request and no release
// under way. So a grant of a lock that this client waits for is one, if it answered another
// request.
func (k *leaseRenewer) strays(who *identity, grants []*pb.HeldLock) []*pb.HeldLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	var strays []*pb.HeldLock
	for _, g := range grants {
		lock, token := LockName(g.Lock), Token(g.Token)
		wanted := k.mu.expecting[lock] > 0
		if g.RequestId != 0 {
			wanted = who.expects(RequestID(g.RequestId))
		}
		if k.mu.locks[token] == nil && k.mu.attached[grant{lock, token}] == nil && k.mu.leaving[token] == 0 && !wanted {
			strays = append(strays, g)
		}
	}
	return strays
}
