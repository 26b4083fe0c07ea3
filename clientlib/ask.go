// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Get returns what the primary knows of a lock. A lock that has no holder, waiters and files is
// free, and is no error.
func (c *Client) Get(ctx context.Context, lock LockName) (LockInfo, error) {
	k := &call{op: "get", lock: lock}
	r, err := inCell(ctx, c, k, string(lock), func(c *Client) (*pb.GetLockResponse, error) {
		return question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
			return s.GetLock(ctx, &pb.GetLockRequest{Lock: string(lock), PrimaryOnly: true})
		})
	})
	if err != nil {
		return LockInfo{}, err
	}
	info := lockInfoOf(r.GetLock(), r.GetEpoch(), r.GetLsn(), r.GetAgeMs())
	info.Name = lock
	return info, nil
}

// List yields the locks whose names begin with prefix, in order of their names,
// page by page: each page is current, all together are no snapshot. It ends
// after an error. Of a site, it yields the locks of all cells; those of a cell that does not answer are missing, and the error comes
// last.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return everywhere(ctx, c, &call{op: "list"}, prefix, func(l LockInfo) string { return string(l.Name) },
		func(c *Client) iter.Seq2[LockInfo, error] { return c.list(ctx, prefix) })
}

// list lists the locks of the Client's own cell.
func (c *Client) list(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		for after := ""; ; {
			r, err := question(ctx, c, &call{op: "list"}, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListLocksResponse, error) {
				return s.ListLocks(ctx, &pb.ListLocksRequest{Prefix: prefix, After: after, PrimaryOnly: true})
			})
			if err != nil {
				yield(LockInfo{}, err)
				return
			}
			for _, l := range r.GetLocks() {
				if !yield(lockInfoOf(l, r.GetEpoch(), r.GetLsn(), r.GetAgeMs()), nil) {
					return
				}
			}
			if after = r.GetNext(); after == "" {
				return
			}
		}
	}
}

// Verified is what the service knows of a live token.
type Verified struct {
	// Remaining is what is left of the lease.
	Remaining time.Duration
	// Shared reports whether others may hold the lock, too: what only a holder alone may do,
	// this one must not.
	Shared bool
	// Limit and Weight are those of AcquireOptions, for a lock with a limit.
	Limit, Weight uint32
}

// Verify checks that a token is the live one of its lock, or one of those that share it, before
// acting for its holder. It returns ErrInvalidToken if it is not. The answer was true at the
// service between the call and its return; the lease may have ended since. A resource that must
// never accept an old holder keeps the highest token that it has seen: see package fencing.
func (c *Client) Verify(ctx context.Context, lock LockName, token Token) (Verified, error) {
	k := &call{op: "verify", lock: lock}
	a, err := inCell(ctx, c, k, string(lock), func(c *Client) (*pb.Answer, error) {
		return question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
			return s.Verify(ctx, &pb.VerifyRequest{Lock: string(lock), Token: uint64(token)})
		})
	})
	if err != nil {
		return Verified{}, err
	}
	return Verified{Remaining: wire.Millis(a.GetTtlMs()), Shared: a.GetMode() == pb.Mode_MODE_SHARED, Limit: a.GetLimit(), Weight: a.GetWeight()}, nil
}

// Outcome returns what became of a request of any client. It changes nothing. For a request that
// the service does not know the state is "not_seen", which is no error.
func (c *Client) Outcome(ctx context.Context, client ClientID, request RequestID) (OutcomeInfo, error) {
	k := &call{op: "outcome"}
	c, err := c.ofClient(ctx, k, client)
	if err != nil {
		return OutcomeInfo{}, err
	}
	r, err := question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.OutcomeResponse, error) {
		r, err := s.Outcome(ctx, &pb.OutcomeRequest{ClientId: string(client), RequestId: uint64(request)})
		if err == nil && r.GetAgeMs() > 0 {
			// A replica may be late, and callers act upon "not_seen".
			return nil, &ServiceError{Status: cluster.StatusSecondaryMode, Primary: wire.PrimaryOf(r.GetPrimary())}
		}
		return r, err
	})
	if err != nil {
		return OutcomeInfo{}, err
	}
	info := outcomeInfoOf(r.GetState(), r.GetOutcome())
	info.Client, info.Request = client, request
	return info, nil
}

// Cancel ends a request of any client: it leaves the queue, or never executes. A request that was
// executed already is not undone; the outcome shows it.
func (c *Client) Cancel(ctx context.Context, client ClientID, request RequestID) (OutcomeInfo, error) {
	k := &call{op: "cancel"}
	if err := client.Validate(); err != nil {
		return OutcomeInfo{}, k.fail(wire.Invalid(err.Error()))
	}
	c, err := c.ofClient(ctx, k, client)
	if err != nil {
		return OutcomeInfo{}, err
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return OutcomeInfo{}, k.fail(err)
	}
	defer end()
	a, err := do(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return s.Cancel(ctx, &pb.CancelRequest{ClientId: string(client), RequestId: uint64(request)})
	})
	if err != nil {
		return OutcomeInfo{}, err
	}
	state := pb.RequestState_REQUEST_STATE_EXECUTED
	switch status := wire.FromStatus(a.GetStatus()); status {
	case cluster.StatusCancelled:
		state = pb.RequestState_REQUEST_STATE_CANCELLED
	case cluster.StatusStaleRequest:
		state = pb.RequestState_REQUEST_STATE_STALE
	case cluster.StatusInvalidArgument, cluster.StatusError, cluster.StatusPermissionDenied:
		return OutcomeInfo{}, k.fail(wire.AnswerError(a))
	}
	info := outcomeInfoOf(state, a)
	info.Client, info.Request = client, request
	return info, nil
}

// Break ends a grant for an operator. Without a grace its token is dead when Break returns. With
// one, Break returns when the holder is asked to release the lock, and the service ends the grant
// when the grace is over, unless it has ended before. It returns ErrInvalidToken if there is no
// such grant.
func (c *Client) Break(ctx context.Context, lock LockName, o BreakOptions) error {
	k := &call{op: "break", lock: lock}
	if err := checkText(o.Actor, o.Reason); err != nil {
		return k.fail(err)
	}
	_, err := inCell(ctx, c, k, string(lock), func(c *Client) (*pb.Answer, error) { return c.breakHere(ctx, lock, o) })
	return err
}

// breakHere is Break of a lock of the Client's own cell.
func (c *Client) breakHere(ctx context.Context, lock LockName, o BreakOptions) (*pb.Answer, error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return nil, (&call{op: "break", lock: lock}).fail(err)
	}
	defer end()
	return c.change(ctx, order{op: "break", lock: lock, from: c.main}, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.BreakLock(ctx, &pb.BreakLockRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater,
			Lock: string(lock), Token: uint64(o.Token), Actor: o.Actor, Reason: o.Reason, GraceMs: wire.CeilMillis(o.Grace),
		})
	})
}

// Status returns the state of the cluster as the primary sees it, or as any server does if there
// is no primary. Of a site, it is the state of the cell whose servers or volume the Endpoints are. Where they are the directory of the site,
// that is the first cell whose volume can be read. Cell has the others.
func (c *Client) Status(ctx context.Context) (StatusInfo, error) {
	k := &call{op: "status"}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return StatusInfo{}, k.fail(err)
	}
	defer end()
	r, err := c.status(ctx, k)
	if err != nil {
		return StatusInfo{}, err
	}
	return statusInfoOf(r), nil
}

// status returns the answer of the primary, or of any server.
func (c *Client) status(ctx context.Context, k *call) (*pb.StatusResponse, error) {
	c.servers.locate(ctx)
	if p := c.servers.primary(); p != nil {
		if r, err := c.statusOf(ctx, p); err == nil {
			return r, nil
		}
	}
	return c.statusOfAny(ctx, k)
}

func (c *Client) statusOf(ctx context.Context, v *server) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Attempt)
	defer cancel()
	r, err := v.stub.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, wire.FromGRPC(err)
	}
	return r, wire.Err(wire.FromStatus(r.GetStatus()))
}

// statusOfAny returns the first answer of any server. It asks each once: a caller of Status wants
// to know now that there is none.
func (c *Client) statusOfAny(ctx context.Context, k *call) (*pb.StatusResponse, error) {
	type answer struct {
		r   *pb.StatusResponse
		err error
	}
	all, _ := c.servers.list()
	answers := make(chan answer, len(all))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, v := range all {
		go func() {
			r, err := c.statusOf(ctx, v)
			answers <- answer{r, err}
		}()
	}
	var errs []error
	for range all {
		a := <-answers
		if a.err == nil {
			return a.r, nil
		}
		errs = append(errs, a.err)
	}
	return nil, k.fail(errors.Join(errs...))
}

// Handover asks the primary to hand its role over, to a server or with 0 to the able one that comes first,
// and returns the next primary. Where the endpoint is the directory of a site, which has as many primaries as cells, it is refused: see Cell.
func (c *Client) Handover(ctx context.Context, to ServerID) (ServerID, error) {
	k := &call{op: "hand over"}
	if !c.single && join.IsSite(c.given.Endpoints) {
		return 0, k.fail(wire.Invalid("each cell of the site has a primary: use the Client of one cell"))
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return 0, k.fail(err)
	}
	defer end()
	a, err := c.handover(ctx, to)
	if err != nil {
		return 0, k.fail(err)
	}
	if p := a.GetPrimary(); p != nil {
		if next, err := c.servers.add(p.Client); err == nil {
			c.servers.believe(next, Epoch(a.GetEpoch()))
		}
		return ServerID(p.Id), nil
	}
	return to, nil
}

// handover sends the request until a primary has got it. The request has no ID, so a lost answer
// ends it: the next primary would hand over once more.
func (c *Client) handover(ctx context.Context, to ServerID) (*pb.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Budget)
	defer cancel()
	for pause := (retry.Pauses{Random: c.opt.Rand}); ; {
		c.servers.locate(ctx)
		v := verdict{Attempt: retry.Attempt{Verdict: retry.Unsent, Err: errors.New("no server is known to be primary")}}
		if p := c.servers.primary(); p != nil {
			a, err := p.stub.Handover(ctx, &pb.HandoverRequest{To: uint32(to)})
			v = judge(a, err)
			if v.Verdict.Final() && v.Err == nil {
				return a, wire.AnswerError(a)
			}
			if v.Verdict.Final() || v.Verdict.Doubtful() {
				return nil, v.Err
			}
			c.follow(p, &v, false)
		}
		if !retry.Rest(ctx, pause.Next(v.RetryAfter, false)) {
			return nil, errors.Join(v.Err, context.Cause(ctx))
		}
	}
}

// question sends the primary a request that changes nothing.
func question[R retry.Response](ctx context.Context, c *Client, k *call, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	var none R
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return none, k.fail(err)
	}
	defer end()
	r, err := do(ctx, c, k, send)
	if err != nil {
		return none, err
	}
	if s := wire.FromStatus(r.GetStatus()); s != cluster.StatusOK {
		return none, k.fail(wire.FailureOf(r))
	}
	return r, nil
}
