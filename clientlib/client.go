// SPDX-License-Identifier: Apache-2.0

package clientlib

// The mutexes of this package are held in this order, the next one only where it says so: Client.mu, leaseRenewer.mu, Lock.mu.
// registration.mu, sequence.mu, servers.mu, session.mu and cells.mu are held alone. None is held during a call.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// settleTime bounds how long the client cares for a request that was given up.
	settleTime = 5 * time.Second
	// closeGrace is how long Close waits for that.
	closeGrace = time.Second
	// forgetTime bounds how long Close waits for servers to forget its identities.
	forgetTime = 100 * time.Millisecond
)

// Client is one client identity and its connections to a cluster. Make it with New and end it
// with Close.
type Client struct {
	opt     Options
	given   Options // as the user gave them, for the Clients of further cells
	single  bool    // it is for one cell only, whatever others there are
	cells   cells
	servers *servers
	renewer *leaseRenewer
	holder  *pb.Holder // of Options, as it is sent; never changed

	// life ends with Close: calls and renewals end with it.
	life context.Context
	end  context.CancelCauseFunc
	// linked ends when Close has ended all else: connections end with it. links are their goroutines.
	linked context.Context
	unlink context.CancelCauseFunc
	links  sync.WaitGroup
	// calls are those that users wait for; background is what goes on after they returned.
	calls, background sync.WaitGroup
	// cut is closed to end what is in the background, after the grace of Close; gone is
	// closed when Close has ended.
	cut, gone chan struct{}
	// main has the identity of all requests that do not wait.
	main *registration

	mu struct {
		sync.Mutex
		closed bool
		free   []*registration // for waits; in use are those that are not here
	}
}

// New makes a client. It returns an error if the options are wrong. It does not use the network:
// the first call does.
func New(o Options) (*Client, error) { return newClient(o, false) }

// newClient makes a client, for a single cell if it is one of a site.
func newClient(o Options, single bool) (_ *Client, err error) {
	c := &Client{given: o, single: single, cut: make(chan struct{}), gone: make(chan struct{})}
	c.cells.own = c
	if dir := join.SiteDirectory(o.Endpoints); dir != "" && !single {
		o, err = c.cells.begin(o, dir)
	}
	if err == nil {
		o, err = o.complete()
	}
	if err != nil {
		return nil, fmt.Errorf("clientlib options: %w", err)
	}
	c.opt, c.holder = o, o.Holder.proto()
	c.main = newRegistration(c)
	c.renewer = newLeaseRenewer(c)
	if c.servers, err = newServers(c, c.renewer.loseAll); err != nil {
		return nil, fmt.Errorf("clientlib options: %w", err)
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.linked, c.unlink = context.WithCancelCause(context.Background())
	if o.ClientID != "" {
		c.main.mu.who = newIdentity(o.ClientID, true, o.FirstRequest)
	}
	return c, nil
}

// Close ends calls and keep-alives and then the connections. It releases nothing: the Contexts of
// locks end with a *LostError, and their leases run out at the service unless another process
// that has the token renews them. Requests that were given up get a second to be cancelled. A
// client that holds nothing, and of which no request ended without a certain answer, is forgotten
// by the service: Outcome does not know its requests any more. Close may be called again, and
// returns when all that is done; its error is nil.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if !first {
		<-c.gone
		return nil
	}
	defer close(c.gone)
	c.end(ErrClosed)
	c.cells.close()
	c.calls.Wait() // from here on nothing new goes to the background
	holding := c.renewer.holders()
	c.renewer.close()
	grace := time.AfterFunc(closeGrace, func() { close(c.cut) })
	c.background.Wait()
	grace.Stop()
	c.forget(holding)
	c.unlink(ErrClosed)
	c.servers.close()
	c.links.Wait()
	return nil
}

// forget has the primary forget the identities whose requests no caller asks about again. It
// tries once: what it does not reach is forgotten in time all the same. A request that arrives
// late is then refused, as its client is not known.
func (c *Client) forget(holding map[ClientID]bool) {
	p := c.servers.primary()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	c.mu.Lock()
	registrations := append(slices.Clip(c.mu.free), c.main)
	c.mu.Unlock()
	var all []func() error
	for _, s := range registrations {
		who := s.current()
		if who == nil || holding[who.id] || !who.settled() {
			continue
		}
		all = append(all, func() error {
			_, err := p.stub.ForgetClient(ctx, &pb.ForgetClientRequest{ClientId: string(who.id)})
			return err
		})
	}
	if err := runParallel(all); err != nil {
		c.opt.Log.Debug("the service remembers this client for a while", "error", err)
	}
}

// begin admits a call and returns a context for it, which ends with Close, too. The caller calls
// the function when the call has ended. It returns ErrClosed after Close.
func (c *Client) begin(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, nil, ErrClosed
	}
	c.calls.Add(1)
	j := &mergedContext{Context: ctx, life: c.life}
	return j, func() {
		j.end()
		c.calls.Done()
	}, nil
}

// detach runs f after its caller has returned, for settleTime at most. It is called only during a
// call or by the renewer, so never after Close has waited for both.
func (c *Client) detach(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	c.background.Go(func() {
		defer cancel()
		stop := make(chan struct{})
		defer close(stop)
		c.background.Go(func() {
			select {
			case <-c.cut:
				cancel()
			case <-stop:
			}
		})
		f(ctx)
	})
}

// ID returns the name under which the service knows this client. The first use of the client
// opens it. Unless the ID is self-chosen, requests that wait, and grants that they got, are under
// further names; errors name that of their request.
func (c *Client) ID(ctx context.Context) (ClientID, error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	who, err := c.main.identify(ctx)
	if err != nil {
		return "", err
	}
	return who.id, nil
}

// Clock returns the clock on which the client counts leases: Options.Clock, or the one that is
// used where that is nil.
func (c *Client) Clock() Clock { return c.opt.Clock }

// requester is what every request that changes something carries: its client, its ID and the
// low-water mark of the client.
type requester struct {
	client       string
	id, lowWater uint64
}

// sender sends a request to a server, or over a session, and returns the answer.
type sender func(context.Context, pb.LockServiceClient, requester) (*pb.Answer, error)

// cancelMode is what to do with a request that ended without an answer that holds for all its
// attempts.
type cancelMode int

const (
	// cancelRequest: cancel it, so that it is not executed any more.
	cancelRequest cancelMode = iota
	// finishRequest: try it a while longer.
	finishRequest
)

// order describes a request that changes something, before it has an ID.
type order struct {
	op    string
	lock  LockName
	from  *registration
	wait  waitClass
	after cancelMode
	token Token // that it releases; 0 = none
}

// change sends a request under a new ID until it is answered or given up. A refusal is an error.
func (c *Client) change(ctx context.Context, o order, send sender) (*pb.Answer, error) {
	a, finish, err := c.begun(ctx, o, send)
	finish()
	return a, err
}

// begun is like change, but the request stays open, its ID above the low-water mark, until the
// caller has handled what it got, such as a grant, and calls finish, which is never nil. The request
// gets its ID here, once.
func (c *Client) begun(ctx context.Context, o order, send sender) (a *pb.Answer, finish func(), err error) {
	finish = func() {}
	for {
		// The main registration names the client of a session, and is needed for the release in any case.
		if _, err := c.main.identify(ctx); err != nil {
			return nil, finish, err
		}
		who, err := o.from.identify(ctx)
		if err != nil {
			return nil, finish, err
		}
		id, err := who.take(ctx, o.wait)
		if err != nil {
			return nil, finish, (&call{op: o.op, lock: o.lock}).fail(err)
		}
		k := &call{op: o.op, lock: o.lock, who: who, id: id, waits: o.wait == waiting}
		a, err := c.send(ctx, k, send)
		if err == nil && wire.FromStatus(a.GetStatus()) == cluster.StatusStaleRequest && !k.unknown && !who.chosen {
			// A client that was idle for long is forgotten. Nothing was executed
			// under this number, so it may run under another.
			who.seq.done(k.id)
			o.from.forget(who)
			continue
		}
		goesOn := err != nil && o.after == finishRequest
		if err == nil {
			if refusal := wire.AnswerError(a); refusal != nil {
				err = k.fail(refusal)
			}
		}
		if k.unknown || goesOn {
			c.settle(ctx, k, o, send)
			return a, finish, err
		}
		who.seq.answered(k.id)
		return a, func() { who.seq.done(k.id) }, err
	}
}

// send sends a request under the ID that k has, until there is an answer.
func (c *Client) send(ctx context.Context, k *call, send sender) (*pb.Answer, error) {
	return do(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return send(ctx, s, requester{client: string(k.who.id), id: uint64(k.id), lowWater: uint64(k.who.seq.lowWater())})
	})
}

// settle ends a request that was given up, in the background: it cancels or finishes it, and
// releases a lock that it got. The low-water mark then passes it with the next request, which
// ends it also where no server could be reached; a grant that came before that is a stray.
func (c *Client) settle(ctx context.Context, k *call, o order, send sender) {
	k.who.doubted.Store(true)
	lock := k.lock
	o.from.stay()
	c.renewer.expect(lock, o.from, 0)
	left := c.renewer.leave(o.token)
	c.detach(ctx, func(ctx context.Context) {
		defer o.from.leave()
		defer left()
		defer c.renewer.unexpect(lock, o.from, 0)
		defer k.who.seq.done(k.id)
		again := &call{op: k.op, lock: lock, who: k.who, id: k.id}
		if o.after != cancelRequest {
			if _, err := c.send(ctx, again, send); err != nil {
				c.opt.Log.Warn("request was given up and could not be finished", "request", k.id, "error", err)
			}
			return
		}
		again.op = "cancel"
		a, err := c.send(ctx, again, func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
			return s.Cancel(ctx, &pb.CancelRequest{ClientId: r.client, RequestId: r.id, LowWater: r.lowWater})
		})
		if err != nil {
			c.opt.Log.Warn("request was given up and could not be cancelled", "operation", k.op, "lock", lock, "request", k.id, "error", err)
			return
		}
		if token := Token(a.GetToken()); k.op == "acquire" && token != 0 && wire.FromStatus(a.GetStatus()) == cluster.StatusOK {
			c.letGo(ctx, k.who, lock, token)
		}
	})
}

// letGo releases a grant that no caller wants.
func (c *Client) letGo(ctx context.Context, who *identity, lock LockName, token Token) {
	id, err := who.take(ctx, prompt)
	if err == nil {
		defer who.seq.done(id)
		k, a := &call{op: "release", lock: lock, who: who, id: id}, (*pb.Answer)(nil)
		if a, err = c.send(ctx, k, releaseOf(lock, token, false)); err == nil {
			err = wire.AnswerError(a)
		}
	}
	if err != nil {
		c.opt.Log.Warn("a lock that no caller wants could not be released and ends with its lease", "lock", lock, "token", token, "error", err)
	}
}

func releaseOf(lock LockName, token Token, done bool) sender {
	return func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.Release(ctx, &pb.ReleaseRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(lock), Token: uint64(token), Done: done,
		})
	}
}
