// SPDX-License-Identifier: Apache-2.0

// Package remote makes single calls for commands that end after them.
//
// It differs from clientlib, whose Client lives as long as its locks, renews their leases, and
// releases grants that it does not know. A command like `holdfast acquire`
// needs the opposite: its lock must stay held when the process has ended.
//
// A call goes to one server after the other, first to those that other servers name as
// primary, with the same request each time, until it is answered or
// the budget is used up. So a request that changes something must have its IDs
// before the first attempt.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// ErrNoServer is the error of a call that no server answered.
var ErrNoServer = errors.New("no server answers")

const (
	// DefaultBudget is how long a call may search for a server that answers.
	DefaultBudget = 15 * time.Second
	// attemptTime is how long one server may take. A request that waits there is
	// sent again after it, and finds its place in the queue.
	attemptTime = 2 * time.Second
	// maxMessage bounds a message, in bytes.
	maxMessage = 8 << 20
)

// Options configure a Caller.
type Options struct {
	// Endpoints are addresses, or alone a path or a join string, see package join.
	Endpoints []string
	// Budget is how long a call may search for a server that answers; 0 = DefaultBudget.
	Budget time.Duration
	// Dial connects to an endpoint; nil = over TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Credential returns what proves who the caller is; nil = nothing.
	Credential credential.Source
	// Certificate returns what proves it in the handshakes of TLS; nil = nothing.
	Certificate join.Certificate
	// ClusterID is that of the servers; "" = that of the first one which answers.
	ClusterID string

	trust *join.Trust // in the servers at Endpoints; nil = plain text
}

// Caller calls one server at a time. It is for one goroutine.
type Caller struct {
	opt    Options
	conns  map[string]*grpc.ClientConn
	target string // the next one to ask
	// doubted is true if an earlier request may still be executed.
	doubted bool
	located bool // whether locate has run
	cluster meantCluster
}

// volumeWait is how long a volume may take at least to say where its servers are.
const volumeWait = 5 * time.Second

// Resolve is join.Resolve for commands, which wait for no volume that hangs for longer than a call looks for a server: there may be others to ask, as the
// cells of a site. Its error wraps ErrNoServer then.
func Resolve(endpoints []string, budget time.Duration) (addresses []string, trust *join.Trust, err error) {
	type result struct {
		addresses []string
		trust     *join.Trust
		err       error
	}
	read := make(chan result, 1)
	go func() {
		addresses, trust, err := join.Resolve(endpoints)
		read <- result{addresses, trust, err}
	}()
	select {
	case r := <-read:
		return r.addresses, r.trust, r.err
	case <-time.After(max(volumeWait, cmp.Or(budget, DefaultBudget))):
		return nil, nil, fmt.Errorf("endpoint %s: the volume there hangs, and its server may be down: %w", endpoints[0], ErrNoServer)
	}
}

// New returns a Caller. It connects with the first call. It returns an error if there are no endpoints.
func New(opt Options) (*Caller, error) {
	if opt.trust == nil {
		var err error
		if opt.Endpoints, opt.trust, err = Resolve(opt.Endpoints, opt.Budget); err != nil {
			return nil, err
		}
		opt.trust.Show(opt.Certificate)
	}
	if len(opt.Endpoints) == 0 {
		return nil, errors.New("no endpoints: name at least one server, host:port of its gRPC front end")
	}
	if opt.Budget == 0 {
		opt.Budget = DefaultBudget
	}
	c := &Caller{opt: opt, conns: map[string]*grpc.ClientConn{}, target: opt.Endpoints[0], cluster: meantCluster{met: map[string]bool{}, gateways: map[string]bool{}}}
	c.cluster.known.Check(opt.ClusterID)
	return c, nil
}

// Site returns the map of the site of which the servers are one cell; nil if they are of none. It waits for a server to answer: whoever does not
// know would take one cell for all there is. It returns an error that wraps ErrNoServer if none does.
func (c *Caller) Site(ctx context.Context) (*sitemap.Map, error) {
	c.locate(ctx)
	if !c.located { // which asks each server for its status
		_ = c.askStatus(ctx)
	}
	if !c.cluster.told() {
		_, err := Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
			return s.Status(ctx, &pb.StatusRequest{Local: true})
		})
		if errors.Is(err, ErrNoServer) { // any other, the call itself reports
			return nil, err
		}
	}
	if !c.cluster.severalCells() {
		return nil, nil
	}
	r, err := Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
		return s.Status(ctx, &pb.StatusRequest{})
	})
	if err != nil {
		return nil, err
	}
	return sitemap.Of(r, c.opt.Endpoints, c.opt.trust.Endpoints)
}

// Other returns a Caller of one server, which has to belong to the same cluster as those of c. It makes one attempt.
func (c *Caller) Other(addr string) (*Caller, error) {
	return New(Options{Endpoints: []string{addr}, Budget: time.Millisecond, Dial: c.opt.Dial, Credential: c.opt.Credential, trust: c.opt.trust})
}

// Close ends the connections.
func (c *Caller) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func (c *Caller) stub() (pb.LockServiceClient, error) { return c.stubOf(c.target) }

func (c *Caller) stubOf(addr string) (pb.LockServiceClient, error) {
	conn := c.conns[addr]
	if conn == nil {
		var err error
		b := c.opt.Credential.Bearer()
		options := []grpc.DialOption{
			grpc.WithContextDialer(b.Dialer(c.dialer())), grpc.WithPerRPCCredentials(b),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
			grpc.WithPerRPCCredentials(&c.cluster.known), grpc.WithChainUnaryInterceptor(c.cluster.check, markUnsent),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		}
		target := addr
		if c.opt.trust != nil { // whose dialer wants the name, not what gRPC resolves it to
			target = passthrough + addr
		}
		conn, err = grpc.NewClient(target, options...)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", addr, err)
		}
		c.conns[addr] = conn
	}
	return pb.NewLockServiceClient(conn), nil
}

// dialer returns what connects.
func (c *Caller) dialer() join.Dialer {
	dial := c.opt.Dial
	if dial == nil {
		dial = dialNetwork
	}
	return c.opt.trust.Dialer(join.GRPC, dial)
}

// dialNetwork connects to an address as gRPC resolved it: those of sockets of the filesystem begin with unix://, and of
// abstract ones with a zero.
func dialNetwork(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	if path, ok := strings.CutPrefix(addr, "unix://"); ok || strings.HasPrefix(addr, "\x00") {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// next makes the named server the target or, with "", the one after the present target.
func (c *Caller) next(named string) {
	if named != "" && named != c.target {
		c.target = named
		return
	}
	i := slices.Index(c.opt.Endpoints, c.target)
	c.target = c.opt.Endpoints[(i+1)%len(c.opt.Endpoints)]
}

// forgetTime bounds the call of Forget, which is only clean-up.
const forgetTime = 100 * time.Millisecond

// Forget asks the service to forget a client that will make no more requests, unless an earlier
// request may still be executed. An error does not matter: silent clients are forgotten in time.
func (c *Caller) Forget(ctx context.Context, client string) {
	stub, err := c.stub()
	if err != nil || c.doubted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	_, _ = stub.ForgetClient(ctx, &pb.ForgetClientRequest{ClientId: client})
}

// kind decides how a call may be repeated.
type kind int

const (
	kindRead  kind = iota // changes nothing
	kindWrite             // has request IDs
	kindBreak             // has request IDs, but not always the token that it ends
	kindWait              // has request IDs and waits at the server
	kindOnce              // must not be executed twice
)

// Read makes a call that changes nothing. For a status other than OK it returns an error
// with a *wire.Error in its chain, and the answer too. Returns ErrNoServer if no server answered.
func Read[R retry.Response](ctx context.Context, c *Caller, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	return call(ctx, c, kindRead, send)
}

// Write makes a call that changes something and has request IDs. Errors are those of Read, or
// wire.ErrUnknown if the request may have been executed but no server answered that.
func Write[R retry.Response](ctx context.Context, c *Caller, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	return call(ctx, c, kindWrite, send)
}

// Break is Write for a request that need not name the token that it ends.
func Break[R retry.Response](ctx context.Context, c *Caller, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	return call(ctx, c, kindBreak, send)
}

// Wait is Write for a request that waits at the server. While it is connected
// and waits, no budget is used up.
func Wait[R retry.Response](ctx context.Context, c *Caller, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	return call(ctx, c, kindWait, send)
}

// Once makes a call that has no request IDs and must not be executed twice.
func Once[R retry.Response](ctx context.Context, c *Caller, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	return call(ctx, c, kindOnce, send)
}

func call[R retry.Response](ctx context.Context, c *Caller, k kind, send func(context.Context, pb.LockServiceClient) (R, error)) (R, error) {
	var none R
	left := c.opt.Budget
	unknown := false // some attempt may have been executed
	var failures []string
	var refused retry.StorageRefusals
	pause := retry.Pauses{Random: rand.Uint64}
	for n := 1; ; n++ {
		began := time.Now()
		c.locate(ctx)
		stub, err := c.stub()
		if err != nil {
			return none, err
		}
		// A token on the command line is used on purpose, even if it is another client's.
		attempt, cancel := context.WithTimeout(wire.PassedOn(ctx), attemptTime)
		var r R
		if n > 1 { // it may be another server now
			err = c.acquaint(ctx)
		}
		if err == nil {
			r, err = send(attempt, stub)
		}
		late := attempt.Err() != nil
		cancel()
		v := judge(c.target, r, err)
		if v.Verdict.Final() && unknown && !k.settles(v.Err) {
			return none, give(unknown, v.Err, note(failures, c.target, v.Err)) // this server is not the one that may have executed it
		}
		if v.Verdict.Final() {
			return r, v.Err
		}
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		unknown = unknown || v.Verdict == retry.Unknown && k != kindRead
		c.doubted = c.doubted || unknown && k != kindWait // the service remembers a waiting request with its place
		if k == kindWait && late && c.well(ctx, stub) {
			continue // it has its place in the queue, and the next attempt finds it
		}
		failures = note(failures, c.target, v.Err)
		if refused.Enough(v.Err, began) || v.Verdict == retry.TooFast && left-time.Since(began) <= 2*v.RetryAfter {
			if unknown {
				return none, give(unknown, v.Err, failures)
			}
			return none, v.Err
		}
		named := ""
		if v.Primary != nil && v.Primary.Client != "" && !c.throughGateway(ctx) {
			named = v.Primary.Client
		}
		if v.Verdict != retry.TooFast { // no server is quicker
			c.next(named)
		}
		rest := v.RetryAfter
		if rest > 0 || n%len(c.opt.Endpoints) == 0 { // or all have been asked
			rest = pause.Next(v.RetryAfter, false)
		}
		if left -= time.Since(began) + rest; left <= 0 || k == kindOnce && unknown {
			return none, give(unknown, v.Err, failures)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

// well reports whether a server answers and is primary.
func (c *Caller) well(ctx context.Context, stub pb.LockServiceClient) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTime/4)
	defer cancel()
	r, err := stub.Status(ctx, &pb.StatusRequest{Local: true})
	return err == nil && r.GetRole() == pb.Role_ROLE_PRIMARY
}

// judge decides from the result of an attempt whether to repeat the request elsewhere or later. The
// error of an answer is that of its status.
func judge(target string, r retry.Response, err error) retry.Attempt {
	v := retry.Judge(r, err)
	switch {
	case v.Err == nil:
		v.Err = wire.FailureOf(r)
	case v.Verdict == retry.Refused && status.Code(v.Err) == codes.Unimplemented:
		v.Err = fmt.Errorf("%w, but something else at %s: give the address that a server has for clients (port 7601 by default), and use a holdfast no newer than it", ErrNoServer, target)
	}
	return v
}

// settles reports whether an answer holds for every attempt of a request, also for one that may
// have been executed elsewhere.
func (k kind) settles(err error) bool {
	if err == nil {
		return true
	}
	e, told := errors.AsType[*wire.Error](err)
	return told && retry.Decided(e.Status, e.Committed, k != kindBreak)
}

// note adds an error of a server to failures, in place of an earlier one of the same server.
func note(failures []string, target string, err error) []string {
	err = retry.Plain(err)
	failures = slices.DeleteFunc(failures, func(f string) bool { return strings.HasPrefix(f, target+": ") })
	return append(failures, fmt.Sprintf("%s: %v", target, err))
}

// give returns the error of a call that was given up.
func give(unknown bool, last error, failures []string) error {
	text := strings.Join(failures, "; ")
	if unknown {
		return fmt.Errorf("%w (%s)", wire.ErrUnknown, text)
	}
	if _, ok := errors.AsType[*wire.Error](last); ok {
		if all, same := saidBy(failures, last.Error()); same {
			text = all
		}
		return fmt.Errorf("%w (%s)", last, text)
	}
	return fmt.Errorf("%w: %s", ErrNoServer, text)
}

// saidBy names the servers of failures, if all of them said the same.
func saidBy(failures []string, text string) (servers string, same bool) {
	var all []string
	for _, f := range failures {
		server, found := strings.CutSuffix(f, ": "+text)
		if !found {
			return "", false
		}
		all = append(all, server)
	}
	return "said by " + strings.Join(all, ", "), true
}

// markUnsent is a client interceptor that returns a *retry.UnsentError for a call that never had a
// connection: an unknown name, a port without a server or with another one. It refuses a request
// that cannot be encoded, as every server would.
func markUnsent(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var to peer.Peer // set as soon as the call has a connection
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Peer(&to))...)
	if err == nil {
		return nil
	}
	if m, ok := req.(proto.Message); ok {
		if _, bad := proto.Marshal(m); bad != nil {
			return wire.Invalid("names and texts must be UTF-8")
		}
	}
	if to.Addr == nil {
		return &retry.UnsentError{Err: err}
	}
	return err
}
