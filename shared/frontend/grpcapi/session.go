// SPDX-License-Identifier: Apache-2.0

package grpcapi

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
	// fencingHold is how long a session waits for the end of a takeover. A client
	// that had to come again would come too late.
	fencingHold = 800 * time.Millisecond
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

// session is one stream of a client, within one term. The handler's goroutine writes, another one
// reads, and each pending keep-alive and query has one of its own. The reading goroutine owns
// client, holder, names and losses.
type session struct {
	s      *service.Service
	term   serving.Term
	stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]
	out    outbox

	client cluster.ClientID // the client of operations that name none; "" for none
	holder locktable.Holder
	names  convert.Names
	losses map[cluster.ClientID]func() // stops the subscription of a client

	watches watches
	// gone is set when the stream has ended: it keeps no place in a queue alive any more.
	gone atomic.Bool
	// inFlight counts the operations whose answers are not on the wire, without acquires that
	// wait.
	inFlight atomic.Int64
	bytes    atomic.Int64  // of appends among them
	drained  wake.Signal   // bytes got fewer
	few      chan struct{} // has room for fewHelpers helpers
	helpers  sync.WaitGroup
}

// Session serves many operations of one client on one stream, until the client closes it, the
// stream breaks or the term ends. It refuses with SECONDARY_MODE where this server is not primary.
func (g *server) Session(stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return streamError(err)
	}
	x := &session{s: g.s, stream: stream, term: g.s.Backend().Term(), names: convert.Names{}, losses: map[cluster.ClientID]func(){}}
	x.out.wake, x.drained, x.few = wake.NewSignal(), wake.NewSignal(), make(chan struct{}, fewHelpers)
	x.waitServing()
	if status, message := x.begin(first.GetHello()); status != cluster.StatusOK {
		return stream.Send(x.ending(status, message))
	}
	x.out.put(&pb.SessionResponse{Welcome: x.welcome()}, false)
	read := make(chan error, 1)
	go func() { read <- x.read(first) }()
	return x.write(read)
}

// waitServing waits a moment for a takeover to end.
func (x *session) waitServing() {
	if x.term == nil {
		return
	}
	t := time.NewTimer(fencingHold)
	defer t.Stop()
	select {
	case <-x.term.Serving():
	case <-x.term.Ended():
	case <-x.stream.Context().Done():
	case <-t.C:
	}
}

// begin reads the hello and returns OK, or the status and message of the refusal.
func (x *session) begin(hello *pb.SessionHello) (cluster.Status, string) {
	switch {
	case x.term == nil, closed(x.term.Ended()):
		return cluster.StatusSecondaryMode, "this server is not primary"
	case !closed(x.term.Serving()):
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

// closed reports whether a channel that carries nothing is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (x *session) welcome() *pb.SessionWelcome {
	return &pb.SessionWelcome{
		ClientId: string(x.client), ServerId: uint32(x.s.Self()),
		Epoch: uint64(x.term.Epoch()), Lsn: uint64(x.term.LSN()), MaxInFlight: maxInFlight, ClusterId: x.s.Cluster(),
	}
}

// ending returns the last message of a session that the server ends.
func (x *session) ending(status cluster.Status, message string) *pb.SessionResponse {
	d := &pb.ErrorDetail{Status: pb.Status(status), Message: message}
	d.Primary, d.RetryAfterMs = x.s.Advice(status)
	return &pb.SessionResponse{End: d}
}

// write sends answers and events, many in one message, until the client has closed the stream and
// has its answers, the stream broke or the term ended.
func (x *session) write(read <-chan error) error {
	closed, over := false, false
	for !over {
		select {
		case <-x.out.wake:
			// Writers of files answer one by one: let those that are about to do so first.
			runtime.Gosched()
		case err := <-read:
			if !errors.Is(err, io.EOF) {
				return err
			}
			closed = true
		case <-x.term.Ended():
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
	return x.stream.Send(x.ending(cluster.StatusSecondaryMode, "the term ended: what has no answer is UNKNOWN"))
}

// read hands in what the client sends, until it closes the stream or that breaks.
func (x *session) read(first *pb.SessionRequest) error {
	ctx, cancel := context.WithCancel(x.stream.Context())
	x.subscribeLosses(x.client, cluster.LSN(first.GetHello().GetLossesAfterLsn()))
	x.take(ctx, first)
	var err error
	for err == nil {
		x.waitForCapacity(ctx)
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

// streamError returns the error with which a stream ends: none if the client closed it.
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
			x.term.Submit(in.requests)
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

// intake collects the requests of one message until they are submitted.
type intake struct {
	x        *session
	slab     []serving.AsyncRequest // memory for further ones
	requests []*serving.AsyncRequest
	seen     int
}

func (x *session) intake(n int) intake {
	n = min(n, maxIntake)
	return intake{x: x, slab: make([]serving.AsyncRequest, n), requests: make([]*serving.AsyncRequest, 0, n)}
}

func (in *intake) add(ctx context.Context, plain *wire.OperationFrame, op *pb.Operation) {
	if in.seen++; in.seen%maxIntake == 0 {
		in.x.term.Submit(in.requests)
		in.requests = nil
		in.x.waitForCapacity(ctx)
	}
	if len(in.slab) == 0 {
		in.slab = make([]serving.AsyncRequest, 16)
	}
	o := &in.slab[0]
	*o = serving.AsyncRequest{To: in.x, Abandoned: &in.x.gone}
	if !in.x.operation(ctx, o, plain, op) {
		return
	}
	if waits(o) { // for hours, maybe: it must not keep the others of its message
		alone := *o
		o = &alone
	} else {
		in.slab = in.slab[1:]
	}
	in.requests = append(in.requests, o)
}

// waits reports whether a request may wait in a queue, and so does not count as in flight.
func waits(o *serving.AsyncRequest) bool {
	return o.Request.Op == locktable.OpAcquire && o.Request.Wait != 0
}

// take handles one message.
func (x *session) take(ctx context.Context, m *pb.SessionRequest) {
	in := x.intake(len(m.GetOperations()))
	for _, op := range m.GetOperations() {
		in.add(ctx, nil, op)
	}
	x.term.Submit(in.requests)
	for _, q := range m.GetKeepAlives() {
		x.subscribeLosses(cluster.ClientID(q.GetClientId()), cluster.LSN(q.GetLossesAfterLsn()))
		x.runHelper(ctx, func() { x.keepAlive(ctx, q) })
	}
	for _, id := range m.GetUnwatch() { // first: another watch may take its number
		x.watches.end(id)
	}
	for _, w := range m.GetWatches() {
		x.watch(ctx, w)
	}
}

// operation makes o the request of an operation, which comes in one form or the other. It returns
// false where the operation is handled otherwise.
func (x *session) operation(ctx context.Context, o *serving.AsyncRequest, plain *wire.OperationFrame, op *pb.Operation) bool {
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
		x.runHelper(ctx, func() { x.serve(ctx, n, asked, m) })
		return false
	} else {
		err = asked.Into(&o.Request, m, x.client)
	}
	if err != nil {
		x.send(n, service.Refusal(err))
		return false
	}
	if q := &o.Request; q.Op == locktable.OpAcquire && q.Holder == (locktable.Holder{}) {
		q.Holder = x.holder
	}
	if convert.Anonymous(&o.Request) {
		// The service abandons those when their caller is gone.
		q := o.Request
		x.helpers.Go(func() { x.answer(n)(x.s.ExecuteOrAbandon(ctx, &q)) })
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
func (x *session) Answer(o *serving.AsyncRequest, out locktable.Outcome) {
	counts := !waits(o)
	x.drain(o.Bytes)
	// The client does not know the lock of a request that it cancels.
	if p, after := x.s.Advice(out.Status); p == nil && after == 0 && o.Request.Op != locktable.OpCancel &&
		x.out.outcome(o.Correlation, &out, counts) {
		return
	}
	a := x.s.Answer(&out)
	a.Correlation, a.ClientId, a.RequestId = o.Correlation, "", 0 // the operation named them
	if o.Request.Op != locktable.OpCancel {
		a.Lock = ""
	}
	x.out.put(&pb.SessionResponse{Answers: []*pb.Answer{a}}, counts)
}

// Flush implements serving.ResultSink.
func (x *session) Flush() { x.out.wake.Notify() }

// send answers an operation that counts as in flight.
func (x *session) send(correlation uint64, a *pb.Answer) {
	a.Correlation = correlation
	x.out.put(&pb.SessionResponse{Answers: []*pb.Answer{a}}, true)
}

// answer sends the result of a helper. An error is a context that ended: the client is gone.
func (x *session) answer(correlation uint64) func(*pb.Answer, error) {
	return func(a *pb.Answer, err error) {
		if err != nil {
			x.inFlight.Add(-1)
			return
		}
		x.send(correlation, a)
	}
}

// serve answers an operation that is no request to the lock table.
func (x *session) serve(ctx context.Context, correlation uint64, o *ops.Operation, m proto.Message) {
	r, err := o.Serve(ctx, x.s, m)
	switch r := r.(type) {
	case *pb.OutcomeResponse:
		r.Correlation = correlation
		x.out.put(&pb.SessionResponse{Outcomes: []*pb.OutcomeResponse{r}}, true)
	case *pb.Answer:
		x.answer(correlation)(r, err)
	default:
		x.answer(correlation)(nil, err)
	}
}

// waitForCapacity waits until there is room for more of what the client sends: a client that does
// not read is not read either, nor one that has sent much that waits for the volume. It is called
// by the reading goroutine.
func (x *session) waitForCapacity(ctx context.Context) {
	for ctx.Err() == nil {
		sent := x.out.unread(maxUnread)
		if sent == nil && x.bytes.Load() <= maxBytes {
			return
		}
		select {
		case <-sent: // nil waits for nothing
		case <-x.drained:
		case <-ctx.Done():
		}
	}
}

// drain counts n bytes of appends as answered.
func (x *session) drain(n int64) {
	if n == 0 {
		return
	}
	x.bytes.Add(-n)
	x.drained.Notify()
}

// runHelper runs f in a goroutine of its own. The reading goroutine waits while there are many.
func (x *session) runHelper(ctx context.Context, f func()) {
	x.waitForCapacity(ctx)
	select {
	case x.few <- struct{}{}:
	case <-ctx.Done():
		return // the client is gone
	}
	x.helpers.Go(func() {
		defer func() { <-x.few }()
		f()
	})
}

func (x *session) keepAlive(ctx context.Context, q *pb.KeepAliveRequest) {
	if q.GetClientId() == "" {
		q.ClientId = string(x.client)
	}
	if r, err := x.s.KeepAlive(ctx, q); err == nil {
		x.out.put(&pb.SessionResponse{KeepAlives: []*pb.KeepAliveResponse{r}}, false)
	}
}
