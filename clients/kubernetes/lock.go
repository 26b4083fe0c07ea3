// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-lock/holdfast/clientlib"
)

const (
	// DefaultRenewDeadline and DefaultRetryPeriod are those of Kubernetes' own programs and of controller-runtime.
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second

	// renewals is how often one call renews a lease whose renewals are answered too late.
	renewals = 3
	// stoppedLeading is the event that an elector records when it does not lead any more.
	stoppedLeading = "stopped leading"
)

// Options configure a Lock.
type Options struct {
	// RenewDeadline and RetryPeriod are those of the LeaderElectionConfig in which the Lock is used: a lease is
	// believed only if it outlasts both. 0 = DefaultRenewDeadline and DefaultRetryPeriod.
	RenewDeadline, RetryPeriod time.Duration
	// Recorder gets an event about Subject, such as the Deployment of the program, when this candidate begins to
	// lead and when it stops. nil = no events.
	Recorder resourcelock.EventRecorder
	Subject  runtime.Object
}

// Lock is one candidate's side of an election. It implements resourcelock.Interface. One elector at a time uses it; an
// elector that has stopped may run again with the same Lock. Leading and Token are safe for use by several goroutines.
type Lock struct {
	c        *clientlib.Client
	name     clientlib.LockName
	identity string
	o        Options

	mu struct {
		sync.Mutex
		// grant is the newest that this Lock got; nil if it got none.
		grant *clientlib.Lock
		// leads is set while an elector believes that it leads under grant.
		leads bool
		// published is the record in the metadata of grant, but for its RenewTime.
		published string
		// seen is the latest record of any leader; nil if there was none.
		seen *record
	}
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock for the candidate identity in the election that is named by the lock. It does not use the network;
// the error is about the arguments. Identities of candidates must differ: of two with the same one only one leads, but
// people cannot tell which.
func New(c *clientlib.Client, name clientlib.LockName, identity string, o Options) (*Lock, error) {
	if err := name.Validate(); err != nil {
		return nil, fmt.Errorf("kubernetes lock: %w", err)
	}
	if identity == "" || !utf8.ValidString(identity) {
		return nil, fmt.Errorf("kubernetes lock %q: identity %q: use a text in UTF-8, such as the name of the pod or the host", name, identity)
	}
	if n := len(longest(identity).text()); n > clientlib.MaxMetadata {
		return nil, fmt.Errorf("kubernetes lock %q: a record with this identity has %d bytes, more than %d: use a shorter one", name, n, clientlib.MaxMetadata)
	}
	if o.RenewDeadline < 0 || o.RetryPeriod < 0 {
		return nil, fmt.Errorf("kubernetes lock %q: RenewDeadline %v, RetryPeriod %v: use those of the LeaderElectionConfig", name, o.RenewDeadline, o.RetryPeriod)
	}
	if o.RenewDeadline == 0 {
		o.RenewDeadline = DefaultRenewDeadline
	}
	if o.RetryPeriod == 0 {
		o.RetryPeriod = DefaultRetryPeriod
	}
	if o.Recorder != nil && o.Subject == nil {
		return nil, fmt.Errorf("kubernetes lock %q: a Recorder without a Subject: name the object that the events are about", name)
	}
	return &Lock{c: c, name: name, identity: identity, o: o}, nil
}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe names the lock in logs.
func (l *Lock) Describe() string { return fmt.Sprintf("holdfast lock %q", l.name) }

// Leading returns the grant under which this candidate leads, and a context for what it does as the leader. Call it
// first in OnStartedLeading, with the context from there, and pass both on. The context ends with that one, and as soon as
// the grant is lost or released, with a *clientlib.LostError or clientlib.ErrReleased as its cause: the elector itself may notice a
// loss up to RetryPeriod + RenewDeadline later. A candidate that has never led gets a context that has ended, and nil.
func (l *Lock) Leading(ctx context.Context) (context.Context, *clientlib.Lock) {
	grant, _ := l.current()
	if grant == nil {
		ctx, end := context.WithCancelCause(ctx)
		end(fmt.Errorf("lock %q: this candidate has never led", l.name))
		return ctx, nil
	}
	ctx, _ = within(ctx, grant)
	return ctx, grant
}

// Token returns the fencing token of this candidate while it leads, else 0. Pass it to the resources that the leader
// changes; they refuse any token lower than the highest they have seen.
func (l *Lock) Token() clientlib.Token {
	if grant, leads := l.current(); leads && live(grant) {
		return grant.Token()
	}
	return 0
}

// RecordEvent notes that this candidate leads or has stopped, and passes it to Options.Recorder. It is for the elector.
func (l *Lock) RecordEvent(s string) {
	if s == stoppedLeading {
		l.noteStop()
	}
	if l.o.Recorder != nil {
		l.o.Recorder.Eventf(l.o.Subject, "Normal", "LeaderElection", "%s %s", l.identity, s)
	}
}

// Get returns the record of the leader, by what the service says now, with the time of the last renewal. Where the lock is free, it
// returns the last record that it has seen, without a holder, or an error for which apierrors.IsNotFound is true if it has
// seen none. Either has an elector acquire the lock at once.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := l.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(r)
	return (*resourcelock.LeaderElectionRecord)(&r), raw, err
}

func (l *Lock) get(ctx context.Context) (record, error) {
	grant, leads := l.current()
	if leads {
		if !live(grant) {
			return l.free() // at once, whether the service can be reached or not
		}
		var end func()
		ctx, end = within(ctx, grant)
		defer end()
	}
	info, err := l.c.Get(ctx, l.name)
	switch {
	case leads && !live(grant):
		return l.free()
	case err != nil:
		return record{}, err
	case info.Holder == nil:
		return l.free()
	}
	own := grant != nil && grant.Token() == info.Holder.Token
	if own && !leads {
		return l.free() // an elector that has stopped left it
	}
	r := recordOf(&info, l.identity, own)
	l.noteRecord(r)
	return r, nil
}

// Create acquires the lock for a leader with this record. If others hold it or wait for it, apierrors.IsAlreadyExists is
// true of the error.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.hold(ctx, record(r), exists)
}

// Update renews the lease if this candidate holds the lock, and otherwise acquires it. Without a holder in the record it
// releases the lock. If others hold it or wait for it, or if the grant of this leader was lost, apierrors.IsConflict is true of the error.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		return l.release(ctx)
	}
	return l.hold(ctx, record(r), conflict)
}

// hold renews or acquires.
func (l *Lock) hold(ctx context.Context, r record, refuse func(clientlib.LockName, error) error) error {
	ttl := time.Duration(r.LeaseDurationSeconds) * time.Second
	if belief := l.o.RetryPeriod + l.o.RenewDeadline; ttl <= belief {
		return fmt.Errorf("lock %q: LeaseDuration, %v in whole seconds, has to be longer than RetryPeriod %v and RenewDeadline %v together, else a leader "+
			"would go on after its lease: change them, or set Options to those of the LeaderElectionConfig", l.name, ttl, l.o.RetryPeriod, l.o.RenewDeadline)
	}
	if grant, leads := l.current(); leads {
		err := l.renew(ctx, grant, r)
		if err != nil && !live(grant) {
			return conflict(l.name, context.Cause(grant.Context()))
		}
		return err
	}
	// An elector that has stopped without a release may have left a grant.
	if err := l.release(ctx); err != nil {
		return err
	}
	err := l.acquire(ctx, ttl, r)
	if errors.Is(err, clientlib.ErrNotAcquired) {
		return refuse(l.name, err)
	}
	return err
}

// acquire tries to get the lock, once. Nothing but Update renews the lease: that of an elector that hangs ends.
func (l *Lock) acquire(ctx context.Context, ttl time.Duration, r record) error {
	grant, err := l.c.TryAcquire(ctx, l.name, clientlib.AcquireOptions{TTL: ttl, Heartbeat: true, Metadata: r.text()})
	if err != nil {
		return err
	}
	if err := l.outlast(ctx, grant); err != nil {
		return errors.Join(err, grant.Release(ctx))
	}
	l.noteLeader(grant, r)
	return nil
}

// renew extends the lease of a leader. A lease that has ended is not revived.
func (l *Lock) renew(ctx context.Context, grant *clientlib.Lock, r record) error {
	if at, ok := ctx.Deadline(); ok {
		if left := time.Until(at); left > l.o.RenewDeadline && left < grant.TTL() {
			return fmt.Errorf("lock %q: the elector tries to renew for %v, longer than Options.RenewDeadline, %v: set it to that of the LeaderElectionConfig", l.name, left, l.o.RenewDeadline)
		}
	}
	ctx, end := within(ctx, grant)
	defer end()
	if l.differs(r) {
		if err := grant.SetMetadata(ctx, r.text()); err != nil {
			return err
		}
	}
	if err := grant.Renew(ctx); err != nil {
		return err
	}
	if err := l.outlast(ctx, grant); err != nil {
		return err
	}
	l.noteLeader(grant, r)
	return nil
}

// outlast renews the lease until it ends no earlier than an elector would stop that succeeds now.
func (l *Lock) outlast(ctx context.Context, grant *clientlib.Lock) error {
	belief := l.o.RetryPeriod + l.o.RenewDeadline
	for range renewals {
		if time.Until(grant.Expires()) >= belief {
			return nil
		}
		if err := grant.Renew(ctx); err != nil {
			return err
		}
	}
	left := time.Until(grant.Expires())
	if left >= belief {
		return nil
	}
	return fmt.Errorf("lock %q: the service answers so late that the lease ends in %v, and the elector would lead for up to %v: "+
		"look why it is slow, or make LeaseDuration longer than RetryPeriod and RenewDeadline by more", l.name, left, belief)
}

// release gives the lock back. That a grant has ended before is no error: the elector wants to be without it.
func (l *Lock) release(ctx context.Context) error {
	grant, _ := l.current()
	l.noteStop()
	if grant == nil || !live(grant) {
		return nil
	}
	// After that the lease has ended, and the elector has to stop.
	ctx, cancel := context.WithDeadline(ctx, grant.Expires())
	defer cancel()
	if err := grant.Release(ctx); err != nil && !errors.Is(err, clientlib.ErrLost) {
		return err
	}
	return nil
}

// live reports whether a grant is held, by this side's count.
func live(grant *clientlib.Lock) bool {
	phase := grant.State().Phase
	return phase != clientlib.PhaseLost && phase != clientlib.PhaseReleased
}

// within returns a context that ends with ctx, and with a grant.
func within(ctx context.Context, grant *clientlib.Lock) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(grant.Context(), func() { cancel(context.Cause(grant.Context())) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// current returns the newest grant, nil for none, and whether an elector believes that it leads under it.
func (l *Lock) current() (grant *clientlib.Lock, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.grant, l.mu.leads
}

// noteLeader notes that an elector leads under a grant, with this record in its metadata.
func (l *Lock) noteLeader(grant *clientlib.Lock, r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.grant, l.mu.leads, l.mu.published, l.mu.seen = grant, true, r.lasting(), &r
}

// noteStop notes that no elector believes that it leads.
func (l *Lock) noteStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.leads = false
}

// differs reports whether a record has to be published.
func (l *Lock) differs(r record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.published != r.lasting()
}

// noteRecord notes the record of a leader.
func (l *Lock) noteRecord(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.seen = &r
}

// free returns what an elector is told of a lock without a holder.
func (l *Lock) free() (record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.seen == nil {
		return record{}, notFound(l.name)
	}
	r := *l.mu.seen
	r.HolderIdentity, r.LeaseDurationSeconds = "", 1
	return r, nil
}
