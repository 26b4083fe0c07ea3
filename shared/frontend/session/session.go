// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxInFlight is how many operations of one session may be without an answer, not counting
	// acquires that wait. It is the most that the table keeps for one client.
	maxInFlight = locktable.MaxOutstanding
	// fencingHold is how long a hello waits for the end of a takeover: most are over by then, and
	// the calls behind it wait, too.
	fencingHold = 100 * time.Millisecond
	// maxIntake is how many operations of one message are decoded at a time: two bytes from a
	// client may take hundreds here.
	maxIntake = 1024
	// maxUnread is how many bytes may wait to be sent before reading pauses.
	maxUnread = 16 << 20
	// maxBytes is how many bytes of appends may be without an answer, and fewHelpers how many
	// keep-alives and queries may be pending, before reading pauses.
	maxBytes   = 64 << 20
	fewHelpers = 16
)

// session is what a connection knows of the session on it, if there is one. The reading goroutine
// owns client, holder, names, losses, entered and crowded.
type session struct {
	client cluster.ClientID // the client of operations that name none; "" for none
	holder locktable.Holder
	// refused is set behind a hello that was refused: what came with it is not looked at.
	refused bool
	names   convert.Names
	losses  map[cluster.ClientID]func() // stops the subscription of a client
	// entered ends the session's place among those that quotas count, nil if it has none; crowded says why.
	entered func()
	crowded error

	watches watches
	waiting waiting
	// gone is set when the client has closed: it keeps no place in a queue alive any more.
	gone atomic.Bool
	// inFlight counts the operations whose answers are not on the wire, without acquires that
	// wait.
	inFlight atomic.Int64
	bytes    atomic.Int64  // of appends among them
	drained  wake.Signal   // bytes got fewer
	few      chan struct{} // has room for fewHelpers helpers
}

// hello begins the session of the connection, or refuses it with the reason.
func (x *conn) hello(q *pb.SessionHello) {
	if x.term != nil {
		x.end(cluster.StatusInvalidArgument, "a connection has one session, and this one has begun")
		return
	}
	t := x.v.s.Backend().Term()
	if t != nil {
		x.waitServing(t)
	}
	if status, message := x.read(t, q); status != cluster.StatusOK {
		x.put(&pb.SessionResponse{Refused: x.detail(status, message)}, false)
		x.refused = true
		return
	}
	x.refused = false
	x.names, x.losses = convert.Names{}, map[cluster.ClientID]func(){}
	// Before the term can end the session: an end without a welcome says that nothing was executed.
	x.put(&pb.SessionResponse{Welcome: x.welcome(t)}, false)
	x.v.join(x, t)
	x.enter()
	x.subscribeLosses(x.client, cluster.LSN(q.GetLossesAfterLsn()))
}

// waitServing waits a moment for a takeover to end.
func (x *conn) waitServing(of serving.Term) {
	t := time.NewTimer(fencingHold)
	defer t.Stop()
	select {
	case <-of.Serving():
	case <-of.Ended():
	case <-x.ctx.Done():
	case <-t.C:
	}
}

// read reads the hello of a session within a term and returns OK, or the status and message of the
// refusal.
func (x *conn) read(t serving.Term, q *pb.SessionHello) (cluster.Status, string) {
	barred := x.refuses()
	switch meant := q.GetClusterId(); {
	case meant != "" && meant != x.v.s.Cluster():
		// The client knows from the settings whose server this is.
		return cluster.StatusError, fmt.Sprintf("this server belongs to cluster %s, and the session is meant for cluster %s", x.v.s.Cluster(), meant)
	case barred != nil:
		a := service.Refusal(barred)
		return wire.FromStatus(a.GetStatus()), a.GetMessage()
	case t == nil, closed(t.Ended()):
		return cluster.StatusSecondaryMode, "this server is not the primary"
	case !closed(t.Serving()):
		return cluster.StatusServerFencing, "this server is becoming primary"
	}
	if x.client = cluster.ClientID(q.GetClientId()); x.client != "" {
		if err := x.client.Validate(); err != nil {
			return cluster.StatusInvalidArgument, err.Error()
		}
	}
	x.holder = convert.ToHolder(q.GetHolder())
	return cluster.StatusOK, ""
}

// closed reports whether a channel that carries nothing is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (x *conn) welcome(t serving.Term) *pb.SessionWelcome {
	return &pb.SessionWelcome{
		ClientId: string(x.client), ServerId: uint32(x.v.s.Self()),
		Epoch: uint64(t.Epoch()), Lsn: uint64(t.LSN()), MaxInFlight: maxInFlight, ClusterId: x.v.s.Cluster(),
	}
}

// stopLosses ends the subscriptions to losses.
func (x *conn) stopLosses() {
	for _, stop := range x.losses {
		stop()
	}
}

// message handles one message as it came. Its bytes are the callee's if own is set.
func (x *conn) message(b []byte, own bool) error {
	n, only, err := wire.CountOnly(b, wire.TagOperations)
	switch {
	case err != nil:
		return err
	case n > maxInFlight:
		return fmt.Errorf("a message of %d operations: at most %d are allowed", n, maxInFlight)
	case !only:
		m := &pb.SessionRequest{}
		if err := proto.Unmarshal(b, m); err != nil {
			return err
		}
		return x.take(m)
	case x.refused:
		return nil
	case x.term == nil:
		return errNoHello
	}
	in := x.intake(n)
	in.copies = !own
	if err := convert.EachOperation(b, in.add); err != nil {
		return err
	}
	in.submit()
	return nil
}

// errNoHello ends a connection that has operations and no session.
var errNoHello = errors.New("a session begins with a hello")

// intake collects the requests of one message until they are submitted.
type intake struct {
	x        *conn
	slab     []serving.AsyncRequest // memory for further ones
	requests []*serving.AsyncRequest
	seen     int
	alone    bool           // there is one request
	copies   bool           // the data of appends has to be copied from the message
	rules    *access.Rules  // in force when the first of them was looked at
	tracer   serving.Tracer // nil while nothing is traced
}

func (x *conn) intake(n int) intake {
	n = min(n, maxIntake)
	return intake{
		x: x, slab: make([]serving.AsyncRequest, n), requests: make([]*serving.AsyncRequest, 0, n), alone: n == 1,
		rules: x.allowed.Rules(), tracer: x.v.s.Traces().Tracer(),
	}
}

func (in *intake) add(plain *wire.OperationFrame, op *pb.Operation) {
	if in.seen++; in.seen%maxIntake == 0 {
		in.submit()
		in.requests = nil
		in.x.waitForCapacity()
	}
	if len(in.slab) == 0 {
		in.slab = make([]serving.AsyncRequest, 16)
	}
	if in.copies && plain != nil && plain.Data != nil {
		plain.Data = bytes.Clone(plain.Data)
	}
	o := &in.slab[0]
	*o = serving.AsyncRequest{To: in.x, Abandoned: &in.x.gone}
	if !in.x.operation(o, plain, op) {
		return
	}
	if in.tracer != nil {
		o.Trace = in.tracer.Begin(op.GetTraceparent())
	}
	if waits(o) && !in.alone { // for hours, maybe: it must not keep the others of its message
		alone := *o
		o = &alone
	} else {
		in.slab = in.slab[1:]
	}
	in.requests = append(in.requests, o)
}

// submit hands in the requests that quotas leave room for. The others are held for a moment, or refused.
func (in *intake) submit() {
	requests := in.x.withinQuotas(in.requests)
	in.x.handIn(in.x.term, requests, &in.x.allowed, in.rules)
}

// handIn hands in requests, of which some may wait, and which were checked by some rules or later ones. If there are others by now, the look
// at those (leaveQueues) may have come too early to find the requests, or its cancels before them in the term.
func (x *conn) handIn(term serving.Term, requests []*serving.AsyncRequest, allowed *service.Permission, by *access.Rules) {
	some := x.waiting.add(term, requests)
	term.Submit(requests)
	if some && allowed.Rules() != by {
		x.leaveQueues()
	}
}

// withinQuotas returns the requests that the rate of the caller, and the number of its sessions, leave room for. The others are
// answered, or handed in later. What only keeps or ends something is among neither.
func (x *conn) withinQuotas(requests []*serving.AsyncRequest) []*serving.AsyncRequest {
	if x.allowed.Limits() == nil && x.allowed.Boundless() {
		return requests
	}
	if x.allowed.Limits() != nil && x.entered == nil {
		if x.enter(); x.entered == nil { // no other one has ended
			return slices.DeleteFunc(requests, func(o *serving.AsyncRequest) bool {
				_, counts := countedSize(o)
				if counts {
					x.refuse(o, x.crowded)
				}
				return counts
			})
		}
	}
	n, bytes := 0, 0
	for _, o := range requests {
		if size, counts := countedSize(o); counts {
			n, bytes = n+1, bytes+size
		}
	}
	if x.allowed.TakeAll(n, bytes) {
		return requests
	}
	return x.inTurn(requests)
}

// countedSize returns how many bytes a request appends, and false for one that no rate limits.
func countedSize(o *serving.AsyncRequest) (bytes int, counts bool) {
	return len(o.Request.Data), service.Counts(o.Request.Op)
}

// inTurn is withinQuotas for requests of which some have to wait for their turn, or are refused.
func (x *conn) inTurn(requests []*serving.AsyncRequest) []*serving.AsyncRequest {
	allowed, term := x.allowed, x.term // as they are now, for another goroutine
	return service.Filter(&x.allowed, requests, countedSize, func(held []*serving.AsyncRequest) { x.submitHeld(&allowed, term, held) }, x.refuse)
}

// submitHeld hands in requests that were held for a moment, and that the rules still permit.
func (x *conn) submitHeld(allowed *service.Permission, term serving.Term, requests []*serving.AsyncRequest) {
	rules := allowed.Rules()
	requests = slices.DeleteFunc(requests, func(o *serving.AsyncRequest) bool {
		err := allowed.Check(service.VerbOf(o.Request.Op), string(o.Request.Lock), string(o.Request.File))
		if err != nil {
			x.refuse(o, err)
		}
		return err != nil
	})
	x.handIn(term, requests, allowed, rules)
}

// enter counts the session. If quotas leave no room for it, it goes on all the same, for what its client has: renewals, releases
// and keep-alives need it.
func (x *conn) enter() {
	var key any = x.client
	if x.client == "" {
		key = x
	}
	x.entered, x.crowded = x.allowed.EnterSession(key)
}

// refuse answers a request that was to be submitted.
func (x *conn) refuse(o *serving.AsyncRequest, err error) {
	if waits(o) {
		x.inFlight.Add(1) // like other answers
	}
	x.drain(o.Bytes)
	x.send(o.Correlation, service.Refusal(err))
}

// waits reports whether a request may wait in a queue, and so does not count as in flight.
func waits(o *serving.AsyncRequest) bool {
	return o.Request.Op == locktable.OpAcquire && o.Request.Wait != 0
}

// take handles one message that has more than operations.
func (x *conn) take(m *pb.SessionRequest) error {
	for _, q := range m.GetCalls() {
		x.call(q)
	}
	if credential := m.GetCredential(); credential != "" {
		if err := x.renewCredential(credential); err != nil {
			return fmt.Errorf("the new credential is refused: %w", err)
		}
	}
	if q := m.GetHello(); q != nil {
		x.hello(q)
	}
	if x.refused || x.ended.Load() {
		return nil
	}
	if x.term == nil {
		if len(m.GetOperations())+len(m.GetKeepAlives())+len(m.GetWatches())+len(m.GetUnwatch()) > 0 {
			return errNoHello
		}
		return nil
	}
	in := x.intake(len(m.GetOperations()))
	for _, op := range m.GetOperations() {
		in.add(nil, op)
	}
	in.submit()
	for _, q := range m.GetKeepAlives() {
		x.subscribeLosses(cluster.ClientID(q.GetClientId()), cluster.LSN(q.GetLossesAfterLsn()))
		x.runHelper(func() { x.keepAlive(q) })
	}
	for _, id := range m.GetUnwatch() { // first: another watch may take its number
		x.watches.end(id)
	}
	for _, w := range m.GetWatches() {
		x.watch(w)
	}
	return nil
}

// operation makes o the request of an operation, which comes in one form or the other. It returns
// false where the operation is handled otherwise.
func (x *conn) operation(o *serving.AsyncRequest, plain *wire.OperationFrame, op *pb.Operation) bool {
	o.Correlation = op.GetCorrelation()
	if plain != nil {
		o.Correlation = plain.Correlation
	}
	n := o.Correlation
	if x.inFlight.Add(1) > maxInFlight {
		x.send(n, service.Refusal(&wire.Error{
			Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("the session has %d operations in flight", maxInFlight),
		}))
		return false
	}
	var err error
	if plain != nil {
		err = convert.FromFrame(&o.Request, plain, x.client, x.names)
	} else if asked, m, unknown := ops.InSession(op); unknown != nil {
		err = unknown
	} else if asked.Op == 0 {
		x.runHelper(func() { x.ask(x.traced(op), n, asked, m) })
		return false
	} else {
		err = asked.Into(&o.Request, m, x.client)
	}
	if err != nil {
		x.send(n, service.Refusal(err))
		return false
	}
	if err := x.allowed.Check(service.VerbOf(o.Request.Op), string(o.Request.Lock), string(o.Request.File)); err != nil {
		x.send(n, service.Refusal(err))
		return false
	}
	o.Request.Identity = x.caller.Load().Name()
	x.allowed.LimitTo(&o.Request)
	if q := &o.Request; q.Op == locktable.OpAcquire && q.Holder == (locktable.Holder{}) {
		q.Holder = x.holder
	}
	if convert.Anonymous(&o.Request) {
		// The service abandons those when their caller is gone.
		q := o.Request
		ctx := x.traced(op)
		x.helpers.Go(func() { x.answer(n)(x.v.s.ExecuteOrAbandon(ctx, &q)) })
		return false
	}
	if waits(o) {
		x.inFlight.Add(-1)
	}
	if n := len(o.Request.Data); n > 0 {
		o.Bytes = int64(n)
		x.bytes.Add(o.Bytes)
	}
	return true
}

// Answer implements serving.ResultSink: the outcome leaves with the next Flush.
func (x *conn) Answer(o *serving.AsyncRequest, out locktable.Outcome) {
	counts := !waits(o)
	x.drain(o.Bytes)
	if why := x.waiting.remove(o); why != nil && out.Status == cluster.StatusCancelled {
		a := service.Refusal(why)
		a.Correlation = o.Correlation
		x.put(&pb.SessionResponse{Answers: []*pb.Answer{a}}, counts)
		return
	}
	x.v.s.Executed(&o.Request, x.caller.Load(), x.c.RemoteAddr(), &out)
	// The client does not know the lock of a request that it cancels.
	if p, after := x.v.s.Advice(out.Status); p == nil && after == 0 && o.Request.Op != locktable.OpCancel &&
		x.out.outcome(o.Correlation, &out, counts) {
		return
	}
	a := x.v.s.Answer(&out)
	a.Correlation, a.ClientId, a.RequestId = o.Correlation, "", 0 // the operation named them
	if o.Request.Op != locktable.OpCancel {
		a.Lock = ""
	}
	x.put(&pb.SessionResponse{Answers: []*pb.Answer{a}}, counts)
}

// Flush implements serving.ResultSink.
func (x *conn) Flush() { x.start(x.out.flush()) }

// send answers an operation that counts as in flight.
func (x *conn) send(correlation uint64, a *pb.Answer) {
	a.Correlation = correlation
	x.put(&pb.SessionResponse{Answers: []*pb.Answer{a}}, true)
}

// answer sends the result of a helper. An error is a context that ended: the client is gone.
func (x *conn) answer(correlation uint64) func(*pb.Answer, error) {
	return func(a *pb.Answer, err error) {
		if err != nil {
			x.inFlight.Add(-1)
			return
		}
		x.send(correlation, a)
	}
}

// traced returns the context of an operation that is executed on its own, with its trace if its client has a sampled one.
func (x *conn) traced(op *pb.Operation) context.Context {
	if parent := op.GetTraceparent(); parent != "" {
		return x.v.s.Traces().Begin(x.from, parent)
	}
	return x.from
}

// ask answers an operation that is no request to the lock table.
func (x *conn) ask(ctx context.Context, correlation uint64, o *ops.Operation, m proto.Message) {
	r, err := o.Serve(ctx, x.v.s, m)
	switch r := r.(type) {
	case *pb.OutcomeResponse:
		r.Correlation = correlation
		x.put(&pb.SessionResponse{Outcomes: []*pb.OutcomeResponse{r}}, true)
	case *pb.Answer:
		x.answer(correlation)(r, err)
	default:
		x.answer(correlation)(nil, err)
	}
}

// drain counts n bytes of appends as answered.
func (x *conn) drain(n int64) {
	if n == 0 {
		return
	}
	x.bytes.Add(-n)
	x.drained.Notify()
}

func (x *conn) keepAlive(q *pb.KeepAliveRequest) {
	if q.GetClientId() == "" {
		q.ClientId = string(x.client)
	}
	if r, err := x.v.s.KeepAlive(x.from, q); err == nil {
		x.put(&pb.SessionResponse{KeepAlives: []*pb.KeepAliveResponse{r}}, false)
	}
}
