// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// settleTime bounds how long a request that was given up is followed.
	settleTime = 5 * time.Second
	// closeGrace is how long Close waits for that.
	closeGrace = time.Second
	// forgetTime bounds what Close does for tidiness.
	forgetTime = 100 * time.Millisecond
)

// Client is a connection to a cluster and the one who asks there. Make it with
// New and end it with Close.
type Client struct {
	opt     Options
	servers *servers
	keep    *keeper
	holder  *pb.Holder // of Options, as it is sent; never changed

	// life ends with Close: calls and renewals end with it.
	life context.Context
	end  context.CancelCauseFunc
	// calls are what users wait for; background is what goes on after they left.
	calls, background sync.WaitGroup
	// cut ends what is in the background, after the grace of Close; gone is closed when
	// nothing is left of the client.
	cut, gone chan struct{}
	// main is where all requests come from that do not wait.
	main *seat

	mu struct {
		sync.Mutex
		closed bool
		free   []*seat // for waits
	}
}

// New makes a client. It does not use the network: the first call does.
func New(o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("clientlib options: %w", err)
	}
	c := &Client{opt: o, cut: make(chan struct{}), gone: make(chan struct{}), holder: o.Holder.proto()}
	c.main = newSeat(c)
	c.keep = newKeeper(c)
	if c.servers, err = newServers(o, c.keep.estranged); err != nil {
		return nil, fmt.Errorf("clientlib options: %w", err)
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	if o.ClientID != "" {
		c.main.mu.who = newIdentity(o.ClientID, true, o.FirstRequest)
	}
	return c, nil
}

// Close ends calls and keep-alives and then the connections. It releases
// nothing: the Contexts of locks end, and their leases run out at the service
// unless somebody else with the token renews them. Requests that were given up
// get a second to be cancelled. A client that holds nothing, and of which no request ended
// without a certain answer, is forgotten by the service: Outcome knows nothing of it then.
// It is safe to call Close again, and it returns when all that is done.
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
	c.calls.Wait() // from here on nothing new goes to the background
	holding := c.keep.holders()
	c.keep.close()
	grace := time.AfterFunc(closeGrace, func() { close(c.cut) })
	c.background.Wait()
	grace.Stop()
	c.forget(holding)
	c.servers.close()
	return nil
}

// forget has the primary forget the identities that nobody asks about again. It asks once:
// what it does not reach is forgotten in time all the same. A request that arrives late finds
// a client that nobody knows, and is refused.
func (c *Client) forget(holding map[cluster.ClientID]bool) {
	p := c.servers.primary()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	c.mu.Lock()
	seats := append(slices.Clip(c.mu.free), c.main)
	c.mu.Unlock()
	var all []func() error
	for _, s := range seats {
		who := s.current()
		if who == nil || holding[who.id] || !who.settled() {
			continue
		}
		all = append(all, func() error {
			_, err := p.stub.ForgetClient(ctx, &pb.ForgetClientRequest{ClientId: string(who.id)})
			return err
		})
	}
	if err := several(all); err != nil {
		c.opt.Log.Debug("the service remembers this client for a while", "error", err)
	}
}

// begin admits a call. The context it returns ends with Close, too.
func (c *Client) begin(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, nil, ErrClosed
	}
	c.calls.Add(1)
	j := &joined{Context: ctx, life: c.life}
	return j, func() {
		j.end()
		c.calls.Done()
	}, nil
}

// detach runs f after its caller has left, for settleTime at most. It is called
// only during a call or by the keeper, so never after Close has let go of both.
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

// ID is the name under which the service knows this client. The first use of the
// client opens it. What it waits for, and got so, is under further names, unless
// the ID is self-chosen; errors tell the name of their request.
func (c *Client) ID(ctx context.Context) (cluster.ClientID, error) {
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

// current is who we are, nil before the main seat is open.
func (c *Client) current() *identity { return c.main.current() }

// requester is what goes into every request that changes something.
type requester struct {
	client       string
	id, lowWater uint64
}

type sender func(context.Context, pb.LockServiceClient, requester) (*pb.Answer, error)

// giveUp is what to do with a request that ended without a word that holds for
// all its attempts.
type giveUp int

const (
	// giveUpCancel: it must not be executed any more.
	giveUpCancel giveUp = iota
	// giveUpFinish: it is wanted all the same, so it is asked a while longer.
	giveUpFinish
)

// order is a request that changes something, before it has an ID.
type order struct {
	op    string
	lock  cluster.LockName
	from  *seat
	wait  patience
	after giveUp
	token cluster.Token // that it gives back; 0 = none
}

// change does a request that changes something. A refusal is an error.
func (c *Client) change(ctx context.Context, o order, send sender) (*pb.Answer, error) {
	a, finish, err := c.begun(ctx, o, send)
	finish()
	return a, err
}

// begun is change for who still has to see to what the request got: until finish it is
// open. The request's ID is chosen here, once.
func (c *Client) begun(ctx context.Context, o order, send sender) (a *pb.Answer, finish func(), err error) {
	finish = func() {}
	for {
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
		goesOn := err != nil && o.after == giveUpFinish
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

// send asks until there is an answer, under the ID that k has.
func (c *Client) send(ctx context.Context, k *call, send sender) (*pb.Answer, error) {
	return do(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return send(ctx, s, requester{client: string(k.who.id), id: uint64(k.id), lowWater: uint64(k.who.seq.lowWater())})
	})
}

// settle sees in the background to it that a request which was given up does not
// execute, or does, and that a lock it got goes back. The low-water mark then
// passes it, which ends it, with the next request, also where nobody could be asked; a grant
// that came before that is a stray.
func (c *Client) settle(ctx context.Context, k *call, o order, send sender) {
	k.who.doubted.Store(true)
	lock := k.lock
	o.from.stay()
	c.keep.expect(lock, o.from, 0)
	left := c.keep.leave(o.token)
	c.detach(ctx, func(ctx context.Context) {
		defer o.from.leave()
		defer left()
		defer c.keep.unexpect(lock, o.from, 0)
		defer k.who.seq.done(k.id)
		again := &call{op: k.op, lock: lock, who: k.who, id: k.id}
		if o.after != giveUpCancel {
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
		if token := cluster.Token(a.GetToken()); k.op == "acquire" && token != 0 && wire.FromStatus(a.GetStatus()) == cluster.StatusOK {
			c.letGo(ctx, k.who, lock, token)
		}
	})
}

// letGo releases a grant that nobody here wants.
func (c *Client) letGo(ctx context.Context, who *identity, lock cluster.LockName, token cluster.Token) {
	id, err := who.take(ctx, prompt)
	if err == nil {
		defer who.seq.done(id)
		k, a := &call{op: "release", lock: lock, who: who, id: id}, (*pb.Answer)(nil)
		if a, err = c.send(ctx, k, releaseOf(lock, token)); err == nil {
			err = wire.AnswerError(a)
		}
	}
	if err != nil {
		c.opt.Log.Warn("lock that nobody wants could not be released", "lock", lock, "token", token, "error", err)
	}
}

func releaseOf(lock cluster.LockName, token cluster.Token) sender {
	return func(ctx context.Context, s pb.LockServiceClient, r requester) (*pb.Answer, error) {
		return s.Release(ctx, &pb.ReleaseRequest{
			ClientId: r.client, RequestId: r.id, LowWater: r.lowWater, Lock: string(lock), Token: uint64(token),
		})
	}
}
