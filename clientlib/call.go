// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// suspicion is how long an attempt may go unanswered before other servers are asked
	// whether there is a newer primary: a paused server must not hold up a call.
	suspicion = 200 * time.Millisecond
	// inquiry is the interval of those questions.
	inquiry = 100 * time.Millisecond
	// waitingAttempt is how long one attempt of a waiting Acquire lasts. The next
	// one, under the same request ID, finds the place in the queue again.
	waitingAttempt = 5 * time.Second
	// waitingInquiry is the interval of the questions while an Acquire waits.
	waitingInquiry = time.Second
)

// errNoPrimary is the error of an attempt that had no server to go to.
var errNoPrimary = errors.New("no server is known to be primary")

// errMoved ends an attempt because another server is primary now.
var errMoved = errors.New("another server is primary now")

// call is one operation on its way to the cluster, and what is known of it.
type call struct {
	op   string
	lock LockName
	who  *identity // nil for what has no request ID
	id   RequestID // 0 likewise
	// waits is set where the answer may come late, as that to a wait in a queue does.
	waits bool
	// unknown is set where some attempt may have been executed, or may be yet.
	unknown bool
	tries   int
	// failed is called with the error of each attempt but the last; nil = do nothing.
	failed func(error)
	// trace follows the call; nil = nothing does.
	trace *CallTrace
}

// fail makes the error of the call, which ends with err.
func (k *call) fail(err error) *CallError {
	e := &CallError{Op: k.op, Lock: k.lock, Unknown: k.unknown && k.id != 0, Tries: k.tries, Err: err}
	if k.who != nil {
		e.Client, e.Request = k.who.id, k.id
	}
	return e
}

// verdict is what follows from the result of one attempt.
type verdict struct {
	retry.Attempt
	moved bool // try again at once: another primary is known already
	over  bool // the server is no longer primary, or never was
}

// judge decides what follows from the result of an attempt.
func judge(r retry.Response, err error) verdict {
	if err == nil && retry.Stands(r) {
		return verdict{}
	}
	v := verdict{Attempt: retry.Judge(r, err)}
	switch v.Verdict {
	case retry.NotPrimary:
		v.over = true
	case retry.Unknown: // a server that answers so without asking for a pause has ended its term
		_, answered := errors.AsType[*ServiceError](v.Err)
		v.over = answered && v.RetryAfter == 0
	case retry.OtherCluster:
		v.over = true
		v.Err, _ = otherCluster(v.Err)
	}
	return v
}

// do sends the same request until it is answered, the context ends or the budget
// is used up. The error is a *CallError; a refusal is an answer.
func do[R retry.Response](ctx context.Context, c *Client, k *call, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	if c.opt.Hooks.Call == nil || k.op == keepAliveOp {
		return untilAnswered(ctx, c, k, send)
	}
	if k.trace = c.opt.Hooks.Call(ctx, k.op, k.lock); k.trace == nil {
		return untilAnswered(ctx, c, k, send)
	}
	r, err := untilAnswered(ctx, c, k, send)
	ended := err
	if err == nil {
		ended = wire.FailureOf(r)
	}
	k.trace.Ended(ended)
	return r, err
}

// untilAnswered is do without the hook for calls.
func untilAnswered[R retry.Response](ctx context.Context, c *Client, k *call, send func(context.Context, pb.LockServiceClient) (R, error)) (none R, err error) {
	r, first, tried := quick(ctx, c, k, send)
	if tried != nil && first.Verdict.Final() {
		return final(k, r, first.Err)
	}
	left, pause, said := budget{left: c.opt.Budget}, retry.Pauses{Random: c.opt.Rand}, lastError{report: k.failed}
	jumped, asked, refused := false, false, retry.StorageRefusals{}
	for last := errNoPrimary; ; {
		began := time.Now()
		v := verdict{Attempt: retry.Attempt{Verdict: retry.Unsent, Err: last}}
		to, takeover, answered := tried, false, false
		if tried != nil {
			v, tried = first, nil
			refused.Enough(v.Err, began) // its time is counted from here
		} else {
			if to = c.servers.primary(); to == nil {
				f := c.servers.locate(ctx)
				if to, takeover = f.to, f.takeover; f.lost {
					return none, k.fail(f.err)
				}
				if to == nil && f.err != nil {
					v.Err = f.err
				}
			}
			if to != nil && ctx.Err() == nil {
				r, v, answered = attempt(ctx, c, k, to, left.left, send)
				if v.Verdict.Final() || refused.Enough(v.Err, began) && !k.waits {
					return final(k, r, v.Err)
				}
			}
		}
		said.note(v.Err)
		if ctx.Err() != nil {
			return none, k.fail(said.beside(ended(ctx)))
		}
		if v.Verdict == retry.TooFast { // the primary has answered: the search for one begins anew after this
			retry.Rest(ctx, pause.Next(v.RetryAfter, false))
			left, pause, last = budget{left: c.opt.Budget}, retry.Pauses{Random: c.opt.Rand}, c.reportRetry(k.op, v.Err)
			continue
		}
		spent := time.Since(began)
		if alone, waited := k.waited(c, to, spent); waited { // only what came after that counts
			left, pause, spent = budget{left: c.opt.Budget}, retry.Pauses{Random: c.opt.Rand}, alone
		}
		if !answered && !left.spend(spent) {
			return none, k.fail(said.beside(fmt.Errorf("no primary answered within %v at %v: check that the servers run: %w", c.opt.Budget, c.servers.addresses(), retry.Plain(v.Err))))
		}
		last = c.reportRetry(k.op, v.Err)
		if answered || v.moved && !jumped {
			jumped = v.moved
			continue
		}
		if v.over { // other servers know which one is primary now, or will soon
			if v.RetryAfter, takeover = 0, true; !asked {
				asked = true
				continue
			}
		}
		jumped = false
		d := pause.Next(v.RetryAfter, takeover)
		left.spend(d)
		if !retry.Rest(ctx, d) {
			return none, k.fail(said.beside(ended(ctx)))
		}
	}
}

// final is the result of a call whose last attempt was answered with r, or ended with err.
func final[R any](k *call, r R, err error) (R, error) {
	if err != nil {
		var none R
		return none, k.fail(err)
	}
	return r, nil
}

// waited reports whether a call was connected to a server and waited there for most of an
// attempt, and returns for how long that server had been silent at the end.
func (k *call) waited(c *Client, to *server, spent time.Duration) (alone time.Duration, waited bool) {
	if to == nil || !k.waits {
		return 0, false
	}
	alone = min(spent, c.opt.Attempt, c.opt.Clock.Now()-time.Duration(to.heard.Load()))
	return alone, spent-alone >= waitingInquiry
}

// quick is a first attempt over the session with the primary, where both are known. Nearly every
// request is answered so, and nothing else is prepared for it. Without either, tried is nil.
func quick[R retry.Response](ctx context.Context, c *Client, k *call, send func(context.Context, pb.LockServiceClient) (R, error)) (r R, v verdict, tried *server) {
	to := c.servers.primary()
	if to == nil || ctx.Err() != nil {
		return r, v, nil
	}
	s := to.session.Load()
	if s == nil {
		return r, v, nil
	}
	r, v, ok := roundTrip(ctx, c, k, s, send)
	if !ok {
		return r, v, nil
	}
	return r, v, to
}

// ended returns why the context of a call ended. A cause that is an error of this package, say
// that of another lock that was lost, is turned into text, for it is no answer to this call.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	looksLike := func(s cluster.Status) bool { return errors.Is(cause, wire.Err(s)) }
	if errors.Is(cause, ErrLost) || slices.ContainsFunc(cluster.Statuses(), looksLike) {
		return fmt.Errorf("%w: %s", ctx.Err(), cause.Error())
	}
	return cause
}

// lastError remembers the last refusal by a server, so that the error of a time-out can name it.
// It keeps the text only: the attempts after it may have been executed.
type lastError struct {
	text   string
	report func(error) // is called with the error of each attempt; nil = do nothing
}

func (r *lastError) note(err error) {
	if r.report != nil {
		r.report(err)
	}
	if e, ok := errors.AsType[*ServiceError](err); ok {
		r.text = e.Error()
	}
}

// beside adds the last refusal to the error that ends a call.
func (r *lastError) beside(err error) error {
	if r.text == "" {
		return err
	}
	return fmt.Errorf("%w (a server said: %s)", err, r.text)
}

// attempt sends the request once, over the session with the server if there is one. It reports as
// waited that it ended after a long wait at a server that answers questions: that uses up no
// budget.
func attempt[R retry.Response](
	ctx context.Context, c *Client, k *call, to *server, left time.Duration, send func(context.Context, pb.LockServiceClient) (R, error),
) (r R, v verdict, waited bool) {
	if s := to.session.Load(); s != nil {
		if r, v, ok := roundTrip(ctx, c, k, s, send); ok {
			return r, v, false
		}
	}
	limit, first := min(c.opt.Attempt, left), suspicion
	if k.waits {
		limit, first = waitingAttempt, waitingInquiry
	}
	asked := c.opt.Clock.Now()
	actx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mctx, move := context.WithCancelCause(actx)
	defer move(nil)
	watch := time.AfterFunc(first, func() { c.watch(mctx, k.waits, to, move) })
	defer watch.Stop()

	s, err := c.session(mctx, to)
	if err != nil { // nothing was sent
		v = judge(r, err)
		if busy, ok := errors.AsType[*busyError](err); ok { // else all who wait for this server would ask the others meanwhile
			v.RetryAfter = max(1, busy.until-c.opt.Clock.Now())
		}
		c.follow(to, &v, errors.Is(context.Cause(mctx), errMoved))
		return r, v, false
	}
	if s != nil {
		watches := watch.Stop()
		if r, v, ok := roundTrip(ctx, c, k, s, send); ok {
			return r, v, false
		}
		if watches {
			watch.Reset(first)
		}
	}
	before := k.unknown
	k.unknown = true // until an answer says otherwise
	k.tries++
	r, err = try(mctx, k, to, to.stub, send)
	v = judge(r, to.checkCluster(r, err))
	if v.Verdict != retry.Unknown {
		to.heard.Store(int64(c.opt.Clock.Now()))
	}
	if v.Verdict.Final() && v.Err == nil {
		c.settled(k, to, r, before)
		return r, v, false
	}
	if !v.Verdict.Doubtful() {
		k.unknown = before
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, false
	}
	if k.waits && actx.Err() != nil && ctx.Err() == nil {
		// The question of the last second was answered: it is well, and we wait.
		if time.Duration(to.heard.Load()) > max(asked, c.opt.Clock.Now()-2*waitingInquiry) {
			return r, v, true
		}
	}
	if ctx.Err() == nil || !c.lately(to, k.waits) {
		c.follow(to, &v, errors.Is(context.Cause(mctx), errMoved))
	}
	return r, v, false
}

// roundTrip is an attempt over a session, which itself asks for a newer primary while there is no
// answer. It returns false if it was no attempt: the session is full, or does not
// carry this.
func roundTrip[R retry.Response](
	ctx context.Context, c *Client, k *call, s *session, send func(context.Context, pb.LockServiceClient) (R, error),
) (r R, v verdict, ok bool) {
	before := k.unknown
	k.unknown = true // until an answer says otherwise
	r, err := try(ctx, k, s.to, s, send)
	if errors.Is(err, errNoSession) {
		k.unknown = before
		return r, v, false
	}
	k.tries++
	v = judge(r, s.to.checkCluster(r, err))
	if v.Verdict.Final() && v.Err == nil {
		c.settled(k, s.to, r, before)
		return r, v, true
	}
	if !v.Verdict.Doubtful() {
		k.unknown = before
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, true
	}
	if ctx.Err() == nil || !c.lately(s.to, k.waits) {
		c.follow(s.to, &v, errors.Is(err, errMoved))
	}
	return r, v, true
}

// lately reports whether a server was heard so lately that a call which ended without an answer
// gives no reason to doubt it. The cancel of the request goes there, and so do all other calls.
func (c *Client) lately(to *server, waits bool) bool {
	patience := suspicion
	if waits {
		patience = 2 * waitingInquiry
	}
	return time.Duration(to.heard.Load()) > c.opt.Clock.Now()-patience
}

// settled notes what an answer shows of the primary and of the call.
func (c *Client) settled(k *call, from *server, r any, before bool) {
	epoch := Epoch(0)
	if e, ok := r.(interface{ GetEpoch() uint64 }); ok {
		epoch = Epoch(e.GetEpoch())
	}
	c.servers.believe(from, epoch)
	c.servers.refresh(from)
	a, ok := r.(*pb.Answer)
	// A receipt speaks for all attempts; so does a refusal for ever, as that of a cell which never has the name. Any
	// other refusal speaks for this attempt only.
	said := wire.FromStatus(a.GetStatus())
	k.unknown = before && ok && said != cluster.StatusWrongCell && !retry.Decided(said, a.GetCommitted(), k.op != "break")
}

// follow decides where the next attempt goes after one at to that failed.
func (c *Client) follow(to *server, v *verdict, moved bool) {
	if moved { // watch has found the new primary
		v.moved, v.Err = true, errMoved
		return
	}
	c.servers.doubt(to)
	if v.Primary == nil || v.Primary.Client == to.addr {
		return
	}
	next := c.servers.named(v.Primary.Client)
	if next == nil {
		return // the others will be asked
	}
	epoch := Epoch(0)
	if e, ok := errors.AsType[*ServiceError](v.Err); ok {
		epoch = e.Epoch
	}
	c.servers.believe(next, epoch)
	v.moved = true
}

// watch asks, while an attempt goes unanswered, whether another server is
// primary, and moves the attempt there. It ends with the attempt.
func (c *Client) watch(ctx context.Context, waits bool, to *server, move context.CancelCauseFunc) {
	every := inquiry
	if waits {
		every = waitingInquiry
	}
	for ctx.Err() == nil {
		if !waits || !c.probeHealthy(ctx, to) {
			f := c.servers.locate(ctx)
			if f.to != nil && f.to != to && f.rank >= rankNamed && c.servers.primary() == f.to {
				move(errMoved)
				return
			}
		}
		if !retry.Rest(ctx, every) {
			return
		}
	}
}

// probeHealthy reports whether a server was heard in the last second or answers now, as primary.
func (c *Client) probeHealthy(ctx context.Context, v *server) bool {
	if heard := time.Duration(v.heard.Load()); heard > c.opt.Clock.Now()-waitingInquiry/2 {
		return c.servers.primary() == v
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return c.servers.ask(ctx, v).rank == rankPrimary
}

// budget is what a call may still spend on looking for a primary that answers.
type budget struct{ left time.Duration }

// spend takes d off and reports whether something is left.
func (b *budget) spend(d time.Duration) bool {
	b.left -= d
	return b.left > 0
}
