// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
	"github.com/holdfast-lock/holdfast/clients/kubernetes"
)

// The leader of an election writes its tokens into logFile.
const logFile = "billing/log"

// durations are those of an elector.
type durations struct{ lease, renew, retry time.Duration }

// leadership is one time in which an elector believed that it led.
type leadership struct {
	identity string
	grant    *clientlib.Lock
	// began is when the elector began to believe it, and stopped when it stopped: when over is closed.
	began, stopped time.Time
	over           chan struct{}
	// told is when the context of Leading ended: when worked is closed.
	told   time.Time
	worked chan struct{}
}

// elections keeps what the electors of a test do.
type elections struct {
	t     *testing.T
	s     *holdfasttest.Server
	began chan *leadership

	mu  sync.Mutex
	all []*leadership
}

func newElections(t *testing.T, s *holdfasttest.Server) *elections {
	return &elections{t: t, s: s, began: make(chan *leadership, 100)}
}

// elector is a process with a candidate.
type elector struct {
	*kubernetes.Lock
	c       *clientlib.Client
	e       *elections
	renewed chan struct{} // gets a value with each renewal, unless it has one
	cancel  context.CancelFunc

	mu      sync.Mutex
	present *leadership // or the last one
}

// Update notes renewals.
func (x *elector) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := x.Lock.Update(ctx, r)
	if err == nil {
		select {
		case x.renewed <- struct{}{}:
		default:
		}
	}
	return err
}

// RecordEvent notes when the elector begins to believe that it leads.
func (x *elector) RecordEvent(s string) {
	x.Lock.RecordEvent(s)
	if s != "became leader" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.present = &leadership{identity: x.Identity(), began: time.Now(), over: make(chan struct{}), worked: make(chan struct{})}
}

// stops notes when the elector stops. It is called also where the elector did not lead.
func (x *elector) stops() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.present; l != nil && l.stopped.IsZero() {
		l.stopped = time.Now()
		close(l.over)
	}
}

// leads appends the token to a protected file, and again when it is told that it does not lead any more.
func (x *elector) leads(ctx context.Context) {
	x.mu.Lock()
	l := x.present
	x.mu.Unlock()
	ctx, l.grant = x.Leading(ctx)
	x.e.mu.Lock()
	x.e.all = append(x.e.all, l)
	x.e.mu.Unlock()
	write := func() error {
		_, err := l.grant.Append(context.WithoutCancel(ctx), logFile, fmt.Appendf(nil, "%d\n", l.grant.Token()))
		return err
	}
	if err := write(); err != nil && !errors.Is(err, clientlib.ErrLost) {
		x.e.t.Errorf("%s appends as the leader: %v", l.identity, err)
	}
	x.e.began <- l
	<-ctx.Done()
	l.told = time.Now()
	ended := l.grant.Context().Err() != nil // else the elector was cancelled, and releases it now
	if err := write(); ended && !errors.Is(err, clientlib.ErrLost) && !errors.Is(err, clientlib.ErrReleased) {
		x.e.t.Errorf("%s appends when its grant has ended: %v", l.identity, err)
	}
	close(l.worked)
}

// start runs client-go's elector, again and again, until the test ends or it is cancelled.
func (e *elections) start(identity string, d durations, release bool) *elector {
	e.t.Helper()
	x := &elector{e: e, c: e.s.NewClient(clientlib.Options{}), renewed: make(chan struct{}, 1)}
	x.Lock = lockOf(e.t, x.c, identity, kubernetes.Options{RenewDeadline: d.renew, RetryPeriod: d.retry})
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	config := leaderelection.LeaderElectionConfig{
		Lock: x, LeaseDuration: d.lease, RenewDeadline: d.renew, RetryPeriod: d.retry, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: x.leads, OnStoppedLeading: x.stops},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			leaderelection.RunOrDie(ctx, config)
		}
	}()
	e.t.Cleanup(func() {
		cancel()
		<-done
	})
	return x
}

// next waits for the next leader.
func (e *elections) next() *leadership {
	e.t.Helper()
	select {
	case l := <-e.began:
		return l
	case <-time.After(30 * time.Second):
		e.t.Fatal("there is no new leader")
		return nil
	}
}

// ends waits until an elector has stopped, and its work, too.
func (e *elections) ends(l *leadership) {
	e.t.Helper()
	for _, c := range []chan struct{}{l.over, l.worked} {
		select {
		case <-c:
		case <-time.After(30 * time.Second):
			e.t.Fatalf("%s goes on", l.identity)
		}
	}
}

// check wants each leader to have stopped before the next one began, and tokens to rise, also in the file.
func (e *elections) check() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, l := range e.all[1:] {
		before := e.all[i]
		if l.grant.Token() <= before.grant.Token() {
			e.t.Errorf("token %d comes after %d", l.grant.Token(), before.grant.Token())
		}
		if late := before.stopped.Sub(l.began); before.stopped.IsZero() || late > 0 {
			e.t.Errorf("%s led for %v when %s had begun", before.identity, late, l.identity)
		}
		if late := before.told.Sub(l.began); before.told.IsZero() || late > 0 {
			e.t.Errorf("%s worked for %v when %s had begun", before.identity, late, l.identity)
		}
	}
	f, err := e.s.Client().ReadFile(e.t.Context(), logFile, clientlib.ReadOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	last := 0
	for _, line := range strings.Fields(string(f.Data)) {
		token, err := strconv.Atoi(line)
		if err != nil || token < last {
			e.t.Errorf("%q comes after %d in the file", line, last)
		}
		last = token
	}
	if last == 0 {
		e.t.Error("no leader wrote into the file")
	}
}

// Primaries are killed, and leaders cut off: one leads at a time.
func TestOneLeader(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t, holdfasttest.Servers(3))
	e, d := newElections(t, s), durations{4 * time.Second, 2 * time.Second, 200 * time.Millisecond}
	electors := map[string]*elector{}
	for _, identity := range []string{"a", "b", "c"} {
		electors[identity] = e.start(identity, d, identity == "c")
	}
	l := e.next()
	for range 3 {
		s.Failover()
		c := electors[l.identity].c
		s.CutOff(c)
		next := e.next()
		if next.identity == l.identity {
			t.Errorf("%s leads again, without the service", next.identity)
		}
		s.Rejoin(c)
		e.ends(l)
		l = next
	}
	for _, x := range electors {
		x.cancel()
	}
	e.ends(l)
	e.check()
}

// A leader goes on leading while another server becomes the primary.
func TestLeaderOutlastsAFailover(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t, holdfasttest.Servers(3))
	e, d := newElections(t, s), durations{leaseDuration, kubernetes.DefaultRenewDeadline, 200 * time.Millisecond}
	x := e.start("a", d, false)
	l := e.next()
	for range 2 {
		s.Failover()
		for range 2 { // the first one may have been answered before
			select {
			case <-x.renewed:
			case <-l.over:
				t.Fatalf("the leader has stopped: %v", context.Cause(l.grant.Context()))
			}
		}
	}
	if x.Token() != l.grant.Token() || l.grant.Context().Err() != nil {
		t.Errorf("token %d became %d: %v", l.grant.Token(), x.Token(), context.Cause(l.grant.Context()))
	}
}

// A leader that is cancelled hands over at once, and its work is told before the next one begins.
func TestReleaseOnCancel(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	e, d := newElections(t, s), durations{time.Minute, kubernetes.DefaultRenewDeadline, 200 * time.Millisecond}
	a := e.start("a", d, true)
	first := e.next()
	b := e.start("b", d, true)
	if r := get(t, b.Lock); r.HolderIdentity != "a" {
		t.Fatalf("%q leads", r.HolderIdentity)
	}
	a.cancel()
	second := e.next()
	e.ends(first)
	if took := second.began.Sub(first.told); took < 0 || took > d.lease/2 {
		t.Errorf("the next leader began %v after the work of the first one was told to end", took)
	}
	if second.grant.Token() <= first.grant.Token() || !errors.Is(context.Cause(first.grant.Context()), clientlib.ErrReleased) {
		t.Errorf("token %d comes after %d, which ended with %v", second.grant.Token(), first.grant.Token(), context.Cause(first.grant.Context()))
	}
	if r := get(t, a.Lock); r.HolderIdentity != "b" || r.LeaderTransitions != 1 || r.AcquireTime.IsZero() {
		t.Errorf("the record of the second leader is %+v", r)
	}
}

// client-go releases the lock before it stops, and tries that for another RenewDeadline. No such try outlasts the lease.
func TestElectorStopsWithItsLease(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	e, d := newElections(t, s), durations{4 * time.Second, 3 * time.Second, 200 * time.Millisecond}
	a := e.start("a", d, true)
	l := e.next()
	s.CutOff(a.c)
	e.ends(l)
	if late := l.stopped.Sub(l.grant.Expires()); late > time.Second {
		t.Errorf("the elector stopped %v after the end of its lease", late)
	}
	if late := l.told.Sub(l.grant.Expires()); late > 500*time.Millisecond {
		t.Errorf("its work was told %v after the end of its lease", late)
	}
}

// An elector whose grant was broken stops, and leads again only when it has begun anew, under another token.
func TestBrokenLeaderBeginsAnew(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	e := newElections(t, s)
	e.start("a", durations{4 * time.Second, 2 * time.Second, 200 * time.Millisecond}, false)
	first := e.next()
	s.Break(name, "test")
	broken := time.Now()
	second := e.next()
	e.ends(first)
	if first.told.Sub(broken) > time.Second {
		t.Errorf("its work was told after %v", first.told.Sub(broken))
	}
	if second.grant.Token() <= first.grant.Token() || second.began.Before(first.stopped) {
		t.Errorf("token %d comes after %d, and it began %v after the first had stopped", second.grant.Token(), first.grant.Token(), second.began.Sub(first.stopped))
	}
}
