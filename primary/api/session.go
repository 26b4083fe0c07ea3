// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Reign is a primary that takes orders without waiting for their outcomes.
type Reign interface {
	Epoch() cluster.Epoch
	LSN() cluster.LSN
	State() primary.State
	// Serving is closed when the reign begins to serve.
	Serving() <-chan struct{}
	// Submit hands orders in, see primary.Primary.Submit.
	Submit([]*primary.Order)
	// Ended is closed when the reign has ended. What is not answered then is UNKNOWN.
	Ended() <-chan struct{}
}

const (
	// maxInFlight is how many operations of one session may be without an answer, but
	// for acquires that wait. It is what the table keeps for one client at most.
	maxInFlight = locktable.MaxOutstanding
	// fencingHold is how long a session waits for the end of a takeover. A client
	// that had to come again would come too late.
	fencingHold = 800 * time.Millisecond
	// maxIntake is how many operations of one message are looked at before more is made of
	// it: what a client sends in two bytes takes hundreds here.
	maxIntake = 1024
	// maxUnread is how much may wait to be sent, in bytes, before nothing more is read.
	maxUnread = 16 << 20
	// maxBytes of appends may be without an answer, and fewHelpers keep-alives and
	// questions under way, before nothing more is read.
	maxBytes   = 64 << 20
	fewHelpers = 16
)

// session is one stream of a client, within one reign. The handler's goroutine
// writes, another one reads, and each keep-alive and question under way has one of
// its own. The reading goroutine owns client, holder, names and losses.
type session struct {
	s      *service
	reign  Reign
	stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]
	out    outbox

	client cluster.ClientID // stands in where an operation names none; "" for none
	holder locktable.Holder
	names  convert.Names
	losses map[cluster.ClientID]func() // stop telling of a client's

	watches watches
	// gone is set when the stream has ended: nobody waits any more for the places
	// in queues that were asked for here.
	gone atomic.Bool
	// inFlight counts the operations whose answers are not on the wire, without
	// acquires that wait.
	inFlight atomic.Int64
	bytes    atomic.Int64  // of appends among them
	drained  chan struct{} // capacity 1: bytes got fewer
	few      chan struct{} // has room for helpers
	helpers  sync.WaitGroup
}

// Session implements the service: many operations of one client on one stream.
func (g *grpcServer) Session(stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return streamError(err)
	}
	x := &session{s: g.s, stream: stream, reign: g.s.b.Reign(), names: convert.Names{}, losses: map[cluster.ClientID]func(){}}
	x.out.wake, x.drained, x.few = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, fewHelpers)
	x.waitServing()
	if status, message := x.begin(first.GetHello()); status != cluster.StatusOK {
		return stream.Send(x.ending(status, message))
	}
	x.out.tell(&pb.SessionResponse{Welcome: x.welcome()}, false)
	read := make(chan error, 1)
	go func() { read <- x.read(first) }()
	return x.write(read)
}

// waitServing waits a moment for a takeover to end.
func (x *session) waitServing() {
	if x.reign == nil || x.reign.State() != primary.StateFencing {
		return
	}
	t := time.NewTimer(fencingHold)
	defer t.Stop()
	select {
	case <-x.reign.Serving():
	case <-x.reign.Ended():
	case <-x.stream.Context().Done():
	case <-t.C:
	}
}

// begin takes the hello, or says why there is no session.
func (x *session) begin(hello *pb.SessionHello) (cluster.Status, string) {
	switch {
	case x.reign == nil, x.reign.State() == primary.StateEnded:
		return cluster.StatusSecondaryMode, "this server is not primary"
	case x.reign.State() == primary.StateFencing:
		return cluster.StatusServerFencing, "this server is becoming primary"
	case hello == nil:
		return cluster.StatusInvalidArgument, "the first message of a session needs a hello"
	}
	if x.client = cluster.ClientID(hello.GetClientId()); x.client != "" {
		if err := x.client.Validate(); err != nil {
			return cluster.StatusInvalidArgument, err.Error()
		}
	}
	h := hello.GetHolder()
	x.holder = locktable.Holder{Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()}
	return cluster.StatusOK, ""
}

func (x *session) welcome() *pb.SessionWelcome {
	return &pb.SessionWelcome{
		ClientId: string(x.client), ServerId: uint32(x.s.self),
		Epoch: uint64(x.reign.Epoch()), Lsn: uint64(x.reign.LSN()), MaxInFlight: maxInFlight, ClusterId: x.s.cluster,
	}
}

// ending is the last message of a session that the server ends.
func (x *session) ending(status cluster.Status, message string) *pb.SessionResponse {
	d := &pb.ErrorDetail{Status: pb.Status(status), Message: message}
	d.Primary, d.RetryAfterMs = x.s.advice(status)
	return &pb.SessionResponse{End: d}
}

// write sends what there is to tell, many answers in one message, until the client
// has closed the stream and has its answers, it broke or the reign ended.
func (x *session) write(read <-chan error) error {
	closed, over := false, false
	for !over {
		select {
		case <-x.out.wake:
			// Writers of files answer one by one: whoever is about to does so first.
			runtime.Gosched()
		case err := <-read:
			if !errors.Is(err, io.EOF) {
				return err
			}
			closed = true
		case <-x.reign.Ended():
			over = true
		case <-x.stream.Context().Done():
			return status.FromContextError(x.stream.Context().Err()).Err()
		}
		for p := x.out.take(); p != nil; p = x.out.take() {
			if err := x.stream.SendMsg(&wire.Frame{B: p.b}); err != nil {
				return err
			}
			x.inFlight.Add(-p.n)
			if p.sent != nil {
				close(p.sent)
			}
		}
		if closed && x.inFlight.Load() == 0 {
			return nil
		}
	}
	return x.stream.Send(x.ending(cluster.StatusSecondaryMode, "the reign ended: what has no answer is UNKNOWN"))
}

// read hands in what the client sends, until it closes the stream or that breaks.
func (x *session) read(first *pb.SessionRequest) error {
	ctx, cancel := context.WithCancel(x.stream.Context())
	x.listen(x.client, cluster.LSN(first.GetHello().GetLossesAfterLsn()))
	x.take(ctx, first)
	var err error
	for err == nil {
		x.breathe(ctx)
		var m wire.Frame
		if err = x.stream.RecvMsg(&m); err == nil {
			err = x.decode(ctx, m.B)
		}
	}
	x.gone.Store(true)
	for _, stop := range x.losses {
		stop()
	}
	if errors.Is(err, io.EOF) {
		x.watches.endAll()
	} else {
		cancel()
	}
	x.helpers.Wait()
	cancel()
	return err
}

// streamError is how a stream ends: without an error if the client closed it.
func streamError(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// decode handles one message as it came.
func (x *session) decode(ctx context.Context, b []byte) error {
	n, only, err := wire.CountOnly(b, wire.TagOperations)
	if err == nil && n > maxInFlight {
		err = fmt.Errorf("a message of %d operations: at most %d are allowed", n, maxInFlight)
	}
	if err == nil && only {
		in := x.intake(n)
		err = convert.EachOperation(b, func(plain *wire.OperationFrame, op *pb.Operation) { in.add(ctx, plain, op) })
		if err == nil {
			x.reign.Submit(in.orders)
		}
	} else if err == nil {
		m := &pb.SessionRequest{}
		if err = proto.Unmarshal(b, m); err == nil {
			x.take(ctx, m)
		}
	}
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// intake makes orders of the operations of one message.
type intake struct {
	x      *session
	slab   []primary.Order // room for more
	orders []*primary.Order
	seen   int
}

func (x *session) intake(n int) intake {
	n = min(n, maxIntake)
	return intake{x: x, slab: make([]primary.Order, n), orders: make([]*primary.Order, 0, n)}
}

func (in *intake) add(ctx context.Context, plain *wire.OperationFrame, op *pb.Operation) {
	if in.seen++; in.seen%maxIntake == 0 {
		in.x.reign.Submit(in.orders)
		in.orders = nil
		in.x.breathe(ctx)
	}
	if len(in.slab) == 0 {
		in.slab = make([]primary.Order, 16)
	}
	o := &in.slab[0]
	*o = primary.Order{To: in.x, Abandoned: &in.x.gone}
	if !in.x.operation(ctx, o, plain, op) {
		return
	}
	if waits(o) { // for hours, maybe: it must not keep the others of its message
		alone := *o
		o = &alone
	} else {
		in.slab = in.slab[1:]
	}
	in.orders = append(in.orders, o)
}

// waits says that an order may stand in a queue, and so does not count as in flight.
func waits(o *primary.Order) bool { return o.Request.Op == locktable.OpAcquire && o.Request.Wait != 0 }

// take handles one message.
func (x *session) take(ctx context.Context, m *pb.SessionRequest) {
	in := x.intake(len(m.GetOperations()))
	for _, op := range m.GetOperations() {
		in.add(ctx, nil, op)
	}
	x.reign.Submit(in.orders)
	for _, q := range m.GetKeepAlives() {
		x.listen(cluster.ClientID(q.GetClientId()), cluster.LSN(q.GetLossesAfterLsn()))
		x.help(ctx, func() { x.keepAlive(ctx, q) })
	}
	for _, id := range m.GetUnwatch() { // first: another watch may take its number
		x.watches.end(id)
	}
	for _, w := range m.GetWatches() {
		x.watch(ctx, w)
	}
}

// operation makes o the order of an operation, which comes in one form or the other.
// False means that it is seen to otherwise.
func (x *session) operation(ctx context.Context, o *primary.Order, plain *wire.OperationFrame, op *pb.Operation) bool {
	o.Correlation = op.GetCorrelation()
	if plain != nil {
		o.Correlation = plain.Correlation
	}
	n := o.Correlation
	if x.inFlight.Add(1) > maxInFlight {
		x.tell(n, refusal(&wire.Error{
			Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("the session has %d operations in flight", maxInFlight),
		}))
		return false
	}
	switch q := op.GetRequest().(type) {
	case *pb.Operation_Renew:
		x.help(ctx, func() { x.answer(n)(x.s.renew(ctx, q.Renew)) })
		return false
	case *pb.Operation_Outcome:
		x.help(ctx, func() { x.outcome(ctx, n, q.Outcome) })
		return false
	}
	var err error
	if plain != nil {
		err = convert.FromFrame(&o.Request, plain, x.client, x.names)
	} else {
		err = convert.Into(&o.Request, op, x.client)
	}
	if err != nil {
		x.tell(n, refusal(err))
		return false
	}
	if q := &o.Request; q.Op == locktable.OpAcquire && q.Holder == (locktable.Holder{}) {
		q.Holder = x.holder
	}
	if convert.Anonymous(&o.Request) {
		// The service cleans up behind those, so they take its way.
		q := o.Request
		x.helpers.Go(func() { x.answer(n)(x.s.own(ctx, &q)) })
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

// Answer implements primary.Outlet: the outcome leaves with the next Flush.
func (x *session) Answer(o *primary.Order, out locktable.Outcome) {
	counts := !waits(o)
	x.drain(o.Bytes)
	// The lock of a cancelled request is news to whoever cancels it.
	if p, after := x.s.advice(out.Status); p == nil && after == 0 && o.Request.Op != locktable.OpCancel &&
		x.out.outcome(o.Correlation, &out, counts) {
		return
	}
	a := x.s.answer(&out)
	a.Correlation, a.ClientId, a.RequestId = o.Correlation, "", 0 // the operation named them
	if o.Request.Op != locktable.OpCancel {
		a.Lock = ""
	}
	x.out.tell(&pb.SessionResponse{Answers: []*pb.Answer{a}}, counts)
}

// Flush implements primary.Outlet.
func (x *session) Flush() { x.out.poke() }

// tell answers an operation that counts as in flight.
func (x *session) tell(correlation uint64, a *pb.Answer) {
	a.Correlation = correlation
	x.out.tell(&pb.SessionResponse{Answers: []*pb.Answer{a}}, true)
}

// answer tells what a helper brought. A context that ended has nobody to tell.
func (x *session) answer(correlation uint64) func(*pb.Answer, error) {
	return func(a *pb.Answer, err error) {
		if err != nil {
			x.inFlight.Add(-1)
			return
		}
		x.tell(correlation, a)
	}
}

func (x *session) outcome(ctx context.Context, correlation uint64, q *pb.OutcomeRequest) {
	r, err := x.s.outcome(ctx, q)
	if err != nil {
		x.inFlight.Add(-1)
		return
	}
	r.Correlation = correlation
	x.out.tell(&pb.SessionResponse{Outcomes: []*pb.OutcomeResponse{r}}, true)
}
