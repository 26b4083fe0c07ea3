// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
	"github.com/holdfast-lock/holdfast/clients/kubernetes"
)

const (
	name          = "billing/controller"
	leaseDuration = 15 * time.Second // with the default Options
)

// candidate returns a lock with a client of its own.
func candidate(t *testing.T, s *holdfasttest.Server, identity string) *kubernetes.Lock {
	t.Helper()
	return lockOf(t, s.NewClient(clientlib.Options{}), identity, kubernetes.Options{})
}

func lockOf(t *testing.T, c *clientlib.Client, identity string, o kubernetes.Options) *kubernetes.Lock {
	t.Helper()
	l, err := kubernetes.New(c, name, identity, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// record returns the record with which an elector begins to lead.
func record(identity string) resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: identity, LeaseDurationSeconds: int(leaseDuration / time.Second), AcquireTime: now, RenewTime: now,
	}
}

// lead has a candidate acquire the lock.
func lead(t *testing.T, l *kubernetes.Lock) *clientlib.Lock {
	t.Helper()
	if err := l.Create(t.Context(), record(l.Identity())); err != nil {
		t.Fatal(err)
	}
	_, grant := l.Leading(t.Context())
	return grant
}

func get(t *testing.T, l *kubernetes.Lock) *resourcelock.LeaderElectionRecord {
	t.Helper()
	r, _, err := l.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// over waits for the end of a context.
func over(t *testing.T, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(20 * time.Second):
		t.Fatal("the context does not end")
		return nil
	}
}

func TestNew(t *testing.T) {
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, x := range []struct {
		name     clientlib.LockName
		identity string
		o        kubernetes.Options
		want     string // in the error; "" = none
	}{
		{"a/b", "pod-1", kubernetes.Options{}, ""},
		{"a/b", "pod-1", kubernetes.Options{RenewDeadline: time.Second, RetryPeriod: time.Second, Recorder: &recorder{}, Subject: &metav1.Status{}}, ""},
		{"a/b", strings.Repeat("x", 3800), kubernetes.Options{}, ""},
		{"", "pod-1", kubernetes.Options{}, "name"},
		{"a/b", "", kubernetes.Options{}, "identity"},
		{"a/b", "\xff", kubernetes.Options{}, "UTF-8"},
		{"a/b", strings.Repeat("x", 4000), kubernetes.Options{}, "more than 4096"},
		{"a/b", strings.Repeat("\x01", 800), kubernetes.Options{}, "more than 4096"}, // 6 bytes each in JSON
		{"a/b", "pod-1", kubernetes.Options{RenewDeadline: -1}, "RenewDeadline"},
		{"a/b", "pod-1", kubernetes.Options{RetryPeriod: -1}, "RetryPeriod"},
		{"a/b", "pod-1", kubernetes.Options{Recorder: &recorder{}}, "Subject"},
	} {
		l, err := kubernetes.New(c, x.name, x.identity, x.o)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%q %.20q: %v, want %q", x.name, x.identity, err, x.want)
		}
		if err == nil && (l.Identity() != x.identity || !strings.Contains(l.Describe(), string(x.name)) || l.Token() != 0) {
			t.Errorf("identity %q, %s, token %d", l.Identity(), l.Describe(), l.Token())
		}
	}
}

// Who holds the lock, as each candidate reads it.
func TestGet(t *testing.T) {
	for _, x := range []struct {
		name string
		set  func(t *testing.T, s *holdfasttest.Server, me *kubernetes.Lock)
		want string // the holder, with … for the end; "none" = not found
	}{
		{"free", func(*testing.T, *holdfasttest.Server, *kubernetes.Lock) {}, "none"},
		{"own", func(t *testing.T, _ *holdfasttest.Server, me *kubernetes.Lock) { lead(t, me) }, "me"},
		{"another's", func(t *testing.T, s *holdfasttest.Server, _ *kubernetes.Lock) { lead(t, candidate(t, s, "you")) }, "you"},
		{"of another with the same identity", func(t *testing.T, s *holdfasttest.Server, _ *kubernetes.Lock) { lead(t, candidate(t, s, "me")) }, "… (token "},
		{"of no elector", func(t *testing.T, s *holdfasttest.Server, _ *kubernetes.Lock) {
			if _, err := s.Client().Acquire(t.Context(), name, clientlib.AcquireOptions{TTL: leaseDuration, Metadata: "[1]"}); err != nil {
				t.Fatal(err)
			}
		}, "… (token "},
		{"released", func(t *testing.T, _ *holdfasttest.Server, me *kubernetes.Lock) {
			lead(t, me)
			if err := me.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"lost", func(t *testing.T, s *holdfasttest.Server, me *kubernetes.Lock) {
			grant := lead(t, me)
			s.Expire(name)
			over(t, grant.Context())
			lead(t, candidate(t, s, "you"))
		}, ""},
		{"left by an elector that has stopped", func(t *testing.T, _ *holdfasttest.Server, me *kubernetes.Lock) {
			lead(t, me)
			me.RecordEvent("stopped leading")
		}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := holdfasttest.Start(t)
			me := candidate(t, s, "me")
			x.set(t, s, me)
			r, raw, err := me.Get(t.Context())
			if x.want == "none" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("got %v, %v", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			end, ends := strings.CutPrefix(x.want, "…")
			if ends && !strings.Contains(r.HolderIdentity, end) || !ends && r.HolderIdentity != x.want {
				t.Errorf("the holder is %q, want %q", r.HolderIdentity, x.want)
			}
			if held := r.HolderIdentity != ""; held && r.LeaseDurationSeconds != 15 || r.AcquireTime.IsZero() || time.Since(r.RenewTime.Time).Abs() > time.Minute {
				t.Errorf("got %+v", r)
			}
			if !strings.Contains(string(raw), `"holderIdentity":`) {
				t.Errorf("the raw record is %s", raw)
			}
		})
	}
}

func TestOthersAreRefused(t *testing.T) {
	s := holdfasttest.Start(t)
	me, you := candidate(t, s, "me"), candidate(t, s, "you")
	lead(t, you)
	created, updated := me.Create(t.Context(), record("me")), me.Update(t.Context(), record("me"))
	if !apierrors.IsAlreadyExists(created) || !apierrors.IsConflict(updated) {
		t.Errorf("create: %v; update: %v", created, updated)
	}
	for _, err := range []error{created, updated} {
		held, ok := errors.AsType[*clientlib.HeldError](err)
		if !ok || held.Holder.Token != you.Token() || !errors.Is(err, clientlib.ErrNotAcquired) || !strings.Contains(err.Error(), "is held") {
			t.Errorf("got %v", err)
		}
	}
	if me.Token() != 0 {
		t.Errorf("who was refused has token %d", me.Token())
	}
	ctx, grant := me.Leading(t.Context())
	if grant != nil || ctx.Err() == nil {
		t.Errorf("who has never led has %v, in a context that ended with %v", grant, context.Cause(ctx))
	}
	if err := you.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	if err := me.Update(t.Context(), record("me")); err != nil {
		t.Errorf("when the lock is free: %v", err)
	}
}

// A leader keeps its grant as long as it updates, and a renewal writes nothing to the log.
func TestUpdateRenews(t *testing.T) {
	s := holdfasttest.Start(t)
	me := candidate(t, s, "me")
	grant := lead(t, me)
	lsn := func() clientlib.LSN {
		info, err := s.Client().Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return info.LSN
	}
	before, r := lsn(), *get(t, me)
	for range 4 {
		s.Advance(leaseDuration * 2 / 3)
		r.RenewTime = metav1.NewTime(r.RenewTime.Add(leaseDuration))
		if err := me.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if me.Token() != grant.Token() || lsn() != before {
		t.Errorf("token %d became %d, and LSN %d became %d", grant.Token(), me.Token(), before, lsn())
	}
	r.LeaderTransitions = 7
	if err := me.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := get(t, candidate(t, s, "you")); got.LeaderTransitions != 7 || got.HolderIdentity != "me" || !got.AcquireTime.Equal(&r.AcquireTime) {
		t.Errorf("others read %+v, want %+v", got, r)
	}
	s.Advance(leaseDuration + time.Second)
	if err := over(t, grant.Context()); !errors.Is(err, clientlib.ErrLost) {
		t.Errorf("the lease ended with %v", err)
	}
}

// TestTimeOfRenewalMoves though nobody writes it.
func TestTimeOfRenewalMoves(t *testing.T) {
	s := holdfasttest.Start(t)
	me, you := candidate(t, s, "me"), candidate(t, s, "you")
	lead(t, me)
	s.Advance(10 * time.Second)
	old := get(t, you).RenewTime
	if err := me.Update(t.Context(), record("me")); err != nil {
		t.Fatal(err)
	}
	if now := get(t, you).RenewTime; now.Sub(old.Time) < 9*time.Second {
		t.Errorf("the time of the last renewal was %v and is %v", old, now)
	}
}

// TestNothingButUpdateRenews a lease: that of an elector that hangs ends.
func TestNothingButUpdateRenews(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	me := lockOf(t, s.NewClient(clientlib.Options{}), "me", kubernetes.Options{RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond})
	r := record("me")
	r.LeaseDurationSeconds = 2
	if err := me.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, grant := me.Leading(t.Context())
	if err := over(t, grant.Context()); !errors.Is(err, clientlib.ErrLost) {
		t.Errorf("the lease ended with %v", err)
	}
}

func TestDurationsThatDoNotFit(t *testing.T) {
	s := holdfasttest.Start(t)
	for _, x := range []struct {
		lease int
		o     kubernetes.Options
		fine  bool
	}{
		{15, kubernetes.Options{}, true},
		{12, kubernetes.Options{}, false}, // not longer than both
		{0, kubernetes.Options{RenewDeadline: time.Millisecond, RetryPeriod: time.Millisecond}, false}, // of 900 ms, say
		{15, kubernetes.Options{RenewDeadline: 14 * time.Second}, false},
		{15, kubernetes.Options{RetryPeriod: 6 * time.Second}, false},
		{8, kubernetes.Options{RenewDeadline: 5 * time.Second, RetryPeriod: time.Second}, true},
	} {
		l := lockOf(t, s.Client(), "me", x.o)
		r := record("me")
		r.LeaseDurationSeconds = x.lease
		err := l.Create(t.Context(), r)
		if x.fine != (err == nil) || err != nil && !strings.Contains(err.Error(), "has to be longer") {
			t.Errorf("%d s, %+v: %v", x.lease, x.o, err)
		}
		if err == nil {
			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	me := candidate(t, s, "me")
	lead(t, me)
	ctx, cancel := context.WithTimeout(t.Context(), 13*time.Second) // of an elector whose RenewDeadline is 13 s
	defer cancel()
	if err := me.Update(ctx, record("me")); err == nil || !strings.Contains(err.Error(), "Options.RenewDeadline") {
		t.Errorf("a renew deadline that is longer than told: %v", err)
	}
}

// An elector that has lost its grant does not lead on under another one, also where the lock is free.
func TestLostGrantIsNotReplaced(t *testing.T) {
	s := holdfasttest.Start(t)
	me := candidate(t, s, "me")
	lead(t, me)
	ctx, grant := me.Leading(t.Context())
	s.Break(name, "test")
	if err := over(t, ctx); !errors.Is(err, clientlib.ErrLost) {
		t.Errorf("the context of the leader ended with %v", err)
	}
	if me.Token() != 0 {
		t.Errorf("who has lost the lock has token %d", me.Token())
	}
	for range 2 {
		updated, r, created := me.Update(t.Context(), record("me")), get(t, me), me.Create(t.Context(), record("me"))
		if !apierrors.IsConflict(updated) || !apierrors.IsConflict(created) || !errors.Is(updated, clientlib.ErrLost) || r.HolderIdentity != "" {
			t.Errorf("update: %v; holder %q; create: %v", updated, r.HolderIdentity, created)
		}
	}
	me.RecordEvent("stopped leading")
	if next := lead(t, me); next.Token() <= grant.Token() {
		t.Errorf("token %d comes after %d", next.Token(), grant.Token())
	}
	if ctx, _ := me.Leading(t.Context()); ctx.Err() != nil {
		t.Errorf("the new leader's context has ended with %v", context.Cause(ctx))
	}
}

// An elector that runs again gets a new token, also if the lease of its former grant has not ended.
func TestEveryLeadershipHasItsToken(t *testing.T) {
	s := holdfasttest.Start(t)
	me := candidate(t, s, "me")
	first := lead(t, me)
	me.RecordEvent("stopped leading")
	second := lead(t, me)
	if second.Token() <= first.Token() || first.Context().Err() == nil || second.Context().Err() != nil {
		t.Errorf("token %d comes after %d; their contexts: %v, %v", second.Token(), first.Token(), context.Cause(second.Context()), context.Cause(first.Context()))
	}
}

func TestRelease(t *testing.T) {
	s := holdfasttest.Start(t)
	me, you := candidate(t, s, "me"), candidate(t, s, "you")
	r := record("me")
	r.LeaderTransitions = 4
	if err := me.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	get(t, you)
	ctx, _ := me.Leading(t.Context())
	for range 2 {
		if err := me.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
			t.Error(err)
		}
	}
	if err := over(t, ctx); !errors.Is(err, clientlib.ErrReleased) || me.Token() != 0 {
		t.Errorf("the context ended with %v, and the token is %d", err, me.Token())
	}
	if got := get(t, you); got.HolderIdentity != "" || got.LeaderTransitions != 4 {
		t.Errorf("who has seen the former leader reads %+v", got)
	}
	if _, _, err := candidate(t, s, "third").Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("who has seen none gets %v", err)
	}
	lead(t, you)
}

// An elector that releases what it has lost is not told of a conflict: it would try again without a pause.
func TestReleaseOfALostGrant(t *testing.T) {
	s := holdfasttest.Start(t)
	me, you := candidate(t, s, "me"), candidate(t, s, "you")
	grant := lead(t, me)
	s.Expire(name)
	over(t, grant.Context())
	lead(t, you)
	if err := me.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Error(err)
	}
	if you.Token() == 0 || get(t, me).HolderIdentity != "you" {
		t.Errorf("the next leader has token %d, and the lock is of %q", you.Token(), get(t, me).HolderIdentity)
	}
}

// A release whose answer does not come ends with the lease: until it has ended, the elector has not stopped.
func TestReleaseEndsWithTheLease(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	c := s.NewClient(clientlib.Options{})
	me := lockOf(t, c, "me", kubernetes.Options{RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond})
	r := record("me")
	r.LeaseDurationSeconds = 2
	if err := me.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, grant := me.Leading(t.Context())
	s.CutOff(c)
	if err := me.Update(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a release without an answer: %v", err)
	}
	if late := time.Since(grant.Expires()); late > 2*time.Second {
		t.Errorf("it ended %v after the lease", late)
	}
}

// lateClock is that of a client to which each piece of an answer comes late.
type lateClock struct {
	began time.Time
	late  atomic.Int64 // the delay of each piece
	ahead atomic.Int64
}

func (c *lateClock) Now() time.Duration { return time.Since(c.began) + time.Duration(c.ahead.Load()) }

func (c *lateClock) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	return &lateConn{conn, c}, err
}

type lateConn struct {
	net.Conn
	clock *lateClock
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.clock.ahead.Add(c.clock.late.Load())
	return n, err
}

// A renewal is not believed whose answer is so late that the elector would lead on after the end of the lease.
func TestLateAnswerIsNotBelieved(t *testing.T) {
	s := holdfasttest.Start(t)
	clock := &lateClock{began: time.Now()}
	me := lockOf(t, s.NewClient(clientlib.Options{Clock: clock, Dialer: clock.dial}), "me", kubernetes.Options{})
	grant := lead(t, me)
	clock.late.Store(int64(3 * time.Second)) // LeaseDuration - RenewDeadline - RetryPeriod is 3 s
	err := me.Update(t.Context(), record("me"))
	clock.late.Store(0)
	if err == nil {
		t.Errorf("the lease ends in %v, and the elector may lead for 12 s", time.Until(grant.Expires()))
	} else if !strings.Contains(err.Error(), "so late") {
		t.Error(err)
	}
	if grant.Context().Err() != nil {
		t.Fatal("the answers came in so many pieces that the lease has ended: this test needs a shorter delay of each")
	}
	if err := me.Update(t.Context(), record("me")); err != nil {
		t.Errorf("a renewal in time: %v", err)
	}
}

// A request whose answer is lost is repeated under its ID until the context ends, and then cancelled.
func TestRequestInDoubt(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t, holdfasttest.Servers(3))
	c := s.NewClient(clientlib.Options{})
	me := lockOf(t, c, "me", kubernetes.Options{})
	if _, _, err := me.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	s.Pause()
	created := make(chan error, 1)
	go func() { created <- me.Create(t.Context(), record("me")) }()
	s.Failover()
	s.Resume()
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	info, err := s.Client().Get(t.Context(), name)
	if err != nil || info.Holders != 1 || info.Holder.Token != me.Token() {
		t.Errorf("%d holders, token %d, want %d; %v", info.Holders, info.Holder.Token, me.Token(), err)
	}

	you := candidate(t, s, "you")
	if err := me.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := you.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := you.Create(ctx, record("you")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request without an answer: %v", err)
	}
	if you.Token() != 0 {
		t.Errorf("a request without an answer got token %d", you.Token())
	}
	s.Resume()
	tries, end := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer tries.Stop()
	for err = errors.New("not tried"); err != nil; {
		select {
		case <-tries.C:
		case <-end:
			t.Fatal("the request that was given up holds the lock")
		}
		if err = me.Create(t.Context(), record("me")); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// recorder keeps events.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (r *recorder) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, fmt.Sprint(eventType, " ", reason, ": ", fmt.Sprintf(format, args...)))
}

func (r *recorder) events() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.got, "; ")
}

func TestEvents(t *testing.T) {
	s := holdfasttest.Start(t)
	r := &recorder{}
	me := lockOf(t, s.Client(), "me", kubernetes.Options{Recorder: r, Subject: &metav1.Status{}})
	me.RecordEvent("became leader")
	me.RecordEvent("100% sure")
	if got, want := r.events(), "Normal LeaderElection: me became leader; Normal LeaderElection: me 100% sure"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	candidate(t, s, "you").RecordEvent("became leader") // to nobody
}
