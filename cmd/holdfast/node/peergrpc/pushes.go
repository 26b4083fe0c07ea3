// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// pushes sends pushes to one server over one stream, which is opened when it is
// needed and given up with the first error: its answers come in order, so a push
// without an answer leaves nothing that the next one could use.
type pushes struct {
	client pb.PeerServiceClient
	// turn holds the stream while nobody uses it, nil for none.
	turn chan *pushStream
}

// pushStream outlives the call that opened it.
type pushStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	stream grpc.BidiStreamingClient[pb.Push, pb.PushAck] // nil until the first push
}

func newPushes(client pb.PeerServiceClient) pushes {
	p := pushes{client: client, turn: make(chan *pushStream, 1)}
	p.turn <- nil
	return p
}

var errStreamEnded = errors.New("the server ended the stream of pushes")

// send returns when the push was answered or ctx ended.
func (p *pushes) send(ctx context.Context, q *pb.Push) (*pb.PushAck, error) {
	var s *pushStream
	select {
	case s = <-p.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ack, s, err := p.use(ctx, s, q)
	p.turn <- s
	return ack, err
}

// use sends over s, or a new stream, and returns the stream if it is still good.
func (p *pushes) use(ctx context.Context, s *pushStream, q *pb.Push) (*pb.PushAck, *pushStream, error) {
	if s == nil {
		s = new(pushStream)
		s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	stop := context.AfterFunc(ctx, s.cancel)
	ack, err := p.exchange(s, q)
	if !stop() || err != nil {
		s.cancel()
		s = nil
	}
	return ack, s, err
}

func (p *pushes) exchange(s *pushStream, q *pb.Push) (*pb.PushAck, error) {
	var err error
	if s.stream == nil {
		if s.stream, err = p.client.UpdateSecondaryState(s.ctx); err != nil {
			return nil, err
		}
	}
	// After the io.EOF of a Send, Recv tells the reason.
	if err := s.stream.Send(q); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	ack, err := s.stream.Recv()
	if errors.Is(err, io.EOF) {
		err = errStreamEnded
	}
	return ack, err
}
