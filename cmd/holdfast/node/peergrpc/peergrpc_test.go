// SPDX-License-Identifier: Apache-2.0

package peergrpc_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// fake answers with what it was asked, so that nothing can be lost on the way.
type fake struct {
	id     cluster.ServerID
	refuse error
	block  chan struct{} // a push waits for it, unless nil
	stuck  chan struct{} // the first ping waits for it, unless nil

	mu     sync.Mutex
	pushes []push.Push
	pings  []election.Ping
	asks   []election.Ask
	epochs []cluster.Epoch
	others []election.Stranger
}

func (f *fake) HandleStranger(x election.Stranger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others = append(f.others, x)
}

// newShare returns a disk on which servers find each other's keys.
func newShare(t *testing.T) *volumetest.Disk {
	t.Helper()
	d := volumetest.New(1)
	h := d.Host(9, volumetest.ProfileLocal())
	if err := errors.Join(h.Mkdir("servers"), volume.RequireTLS(h)); err != nil {
		t.Fatal(err)
	}
	return d
}

// keysOf returns the keys of a new process of a server.
func keysOf(t *testing.T, d *volumetest.Disk, id cluster.ServerID) *peertls.Keys {
	t.Helper()
	k, err := peertls.New(peertls.Options{Self: id, Members: cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}}, FS: d.Host(int(id), volumetest.ProfileLocal()), Log: zerolog.New(t.Output())})
	if err != nil {
		t.Fatal(err)
	}
	k.Keep()
	return k
}

func (f *fake) HandlePing(p election.Ping) election.Pong {
	if f.stuck != nil && p.Seq == 1 {
		<-f.stuck
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pings = append(f.pings, p)
	return election.Pong{From: f.id, Nonce: uint64(f.id) << 60, Seq: p.Seq, Status: p.Status, Primary: 2}
}

func (f *fake) HandlePreVote(_ context.Context, a election.Ask) election.Vote {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks = append(f.asks, a)
	return election.Vote{From: f.id, Nonce: 7, Status: status(), HearsPrimary: true, Primary: 3, Live: []cluster.ServerID{1, 3}}
}

func (f *fake) HandlePush(p push.Push) (push.Ack, error) {
	if f.block != nil {
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes = append(f.pushes, p)
	return push.Ack{Epoch: p.Epoch + 1, At: p.Before, Chunk: len(f.pushes), Stamp: 1<<63 + 4, Unread: true}, f.refuse
}

func (f *fake) HandleHandover(e cluster.Epoch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epochs = append(f.epochs, e)
	return f.refuse
}

func status() election.Status {
	return election.Status{Role: election.RolePrimary, Epoch: 1 << 40, LSN: 1<<63 + 1, Able: true, Progress: 3, Storage: time.Hour, Beat: 1<<63 + 3, FeatureLevel: 1<<32 - 1, Timing: 1<<63 + 7}
}

// listen serves f at addr, "127.0.0.1:0" for any port.
func listen(t *testing.T, d *volumetest.Disk, addr, clusterID string, f *fake) (string, *peergrpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := peergrpc.NewServer(clusterID, f, keysOf(t, d, f.id))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String(), s
}

// three is a cluster of three fakes as server 1 reaches it.
func three(t *testing.T) (*peergrpc.Peers, volume.Cluster, map[cluster.ServerID]*fake) {
	t.Helper()
	d := newShare(t)
	c, fakes := fakesOn(t, d)
	return open(t, c, keysOf(t, d, 1)), c, fakes
}

// fakesOn is a cluster of three fakes whose keys are on a disk.
func fakesOn(t *testing.T, d *volumetest.Disk) (volume.Cluster, map[cluster.ServerID]*fake) {
	t.Helper()
	c := volume.Cluster{ID: cluster.ID{1, 2, 3}}
	fakes := map[cluster.ServerID]*fake{}
	for id := cluster.ServerID(1); id <= 3; id++ {
		fakes[id] = &fake{id: id}
		addr, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), fakes[id])
		c.Servers = append(c.Servers, cluster.Member{ID: id, Peer: addr})
	}
	return c, fakes
}

func open(t *testing.T, c volume.Cluster, k *peertls.Keys) *peergrpc.Peers {
	t.Helper()
	p := peergrpc.New(1, c, k)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestNothingIsLostOnTheWay(t *testing.T) {
	p, _, fakes := three(t)
	ctx := within(t, 10*time.Second)
	for id, f := range fakes {
		ping := election.Ping{From: 1, Nonce: 1<<63 + 5, Seq: 42, Status: status(), About: "process 7"}
		pong, err := p.Ping(ctx, id, ping)
		if want := (election.Pong{From: id, Nonce: uint64(id) << 60, Seq: 42, Status: status(), Primary: 2}); err != nil || pong != want {
			t.Errorf("ping %d: got %+v, %v, want %+v", id, pong, err, want)
		}
		if len(f.pings) == 1 && strings.HasPrefix(f.pings[0].Address, "127.0.0.1:") {
			ping.Address = f.pings[0].Address // nobody but the transport knows it
		}
		if len(f.pings) != 1 || f.pings[0] != ping || ping.Address == "" {
			t.Errorf("server %d was pinged with %+v", id, f.pings)
		}
		ask := election.Ask{From: 1, Nonce: 9, Epoch: 11}
		vote, err := p.PreVote(ctx, id, ask)
		ask.Address = ping.Address // over the same connection
		want := election.Vote{From: id, Nonce: 7, Status: status(), HearsPrimary: true, Primary: 3, Live: []cluster.ServerID{1, 3}}
		if err != nil || !reflect.DeepEqual(vote, want) || len(f.asks) != 1 || f.asks[0] != ask {
			t.Errorf("pre-vote %d: got %+v, %v, want %+v; asked %+v", id, vote, err, want, f.asks)
		}
		for _, m := range []push.Push{
			{Epoch: 3},
			{Epoch: 3, Before: wal.Position{LSN: 8, Chain: 1<<64 - 1}, Frames: make([]byte, 2<<20)},
			{Epoch: 3, Chunk: &push.Chunk{At: wal.Position{LSN: 9, Chain: 2}, Offset: 256 << 10, Bytes: []byte("x"), Last: true}},
		} {
			ack, err := p.Push(ctx, id, m)
			if want := (push.Ack{Epoch: 4, At: m.Before, Chunk: len(f.pushes), Stamp: 1<<63 + 4, Unread: true}); err != nil || ack != want {
				t.Errorf("push to %d: %+v, %v", id, ack, err)
			}
			if got := f.pushes[len(f.pushes)-1]; !reflect.DeepEqual(got, m) {
				t.Errorf("push to %d arrived as %+v", id, got)
			}
		}
		if err := p.Handover(ctx, id, 77); err != nil || len(f.epochs) != 1 || f.epochs[0] != 77 {
			t.Errorf("handover to %d: %v, told %v", id, err, f.epochs)
		}
		f.refuse = errors.New("no prepared claim")
		if err := p.Handover(ctx, id, 77); err == nil {
			t.Errorf("handover to %d, which is not able, succeeded", id)
		}
	}
	if _, err := p.Ping(ctx, 4, election.Ping{}); err == nil {
		t.Error("a ping to nobody was answered")
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func TestRefusedConnectionIsAnErrorAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := open(t, volume.Cluster{Servers: cluster.Members{{ID: 2, Peer: addr}}}, keysOf(t, newShare(t), 1))
	ctx := within(t, 10*time.Second)
	for i := range 3 { // the first dials, the others find it failed
		start := time.Now()
		_, err := p.Ping(ctx, 2, election.Ping{From: 1})
		if took := time.Since(start); err == nil || isContext(err) || took > time.Second {
			t.Errorf("ping %d of nobody: %v after %v", i, err, took)
		}
		if _, err := p.Push(ctx, 2, push.Push{}); err == nil || isContext(err) {
			t.Errorf("push to nobody: %v", err)
		}
	}
}

func TestCallsOfAStoppedServerFailAndThoseOfARestartedOneSucceed(t *testing.T) {
	f := &fake{id: 2}
	c := volume.Cluster{ID: cluster.ID{9}}
	d := newShare(t)
	addr, s := listen(t, d, "127.0.0.1:0", c.ID.String(), f)
	c.Servers = cluster.Members{{ID: 2, Peer: addr}}
	p := open(t, c, keysOf(t, d, 1))
	ctx := within(t, time.Minute)
	if _, err := p.Ping(ctx, 2, election.Ping{From: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Push(ctx, 2, push.Push{}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := p.Ping(ctx, 2, election.Ping{}); err == nil || isContext(err) {
		t.Errorf("ping of a stopped server: %v", err)
	}
	if _, err := p.Push(ctx, 2, push.Push{}); err == nil || isContext(err) {
		t.Errorf("push to a stopped server: %v", err)
	}
	listen(t, d, addr, c.ID.String(), f) // a new process, with a new key
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for pinged, pushed := false, false; !pinged || !pushed; <-tick.C {
		_, err := p.Ping(ctx, 2, election.Ping{From: 1})
		pinged = pinged || err == nil
		_, err = p.Push(ctx, 2, push.Push{})
		pushed = pushed || err == nil
		if ctx.Err() != nil {
			t.Fatal("the restarted server is not seen")
		}
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the restarted server was seen after %v", took)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	d := newShare(t)
	c, fakes := fakesOn(t, d)
	own := c.ID.String()
	c.ID = cluster.ID{6, 6, 6}
	p := open(t, c, keysOf(t, d, 1))
	ctx := within(t, 10*time.Second)
	_, perr := p.Ping(ctx, 2, election.Ping{From: 1})
	_, verr := p.PreVote(ctx, 2, election.Ask{From: 1})
	_, uerr := p.Push(ctx, 2, push.Push{})
	herr := p.Handover(ctx, 2, 1)
	for _, err := range []error{perr, verr, uerr, herr} {
		if err == nil || isContext(err) {
			t.Errorf("a stranger was answered: %v", err)
			continue
		}
		if strings.Contains(err.Error(), own) {
			t.Errorf("a stranger is told the cluster's ID: %v", err)
		}
	}
	if f := fakes[2]; len(f.pings)+len(f.asks)+len(f.pushes)+len(f.epochs) != 0 {
		t.Errorf("a stranger was listened to: %+v", f)
	}
}

func TestSlowPushHoldsNothingElseUp(t *testing.T) {
	p, _, fakes := three(t)
	f := fakes[2]
	f.block = make(chan struct{})
	short := within(t, 50*time.Millisecond)
	if _, err := p.Push(short, 2, push.Push{Epoch: 1, Frames: make([]byte, 1<<20)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a push without an answer: %v", err)
	}
	ctx := within(t, 10*time.Second)
	if _, err := p.Ping(ctx, 2, election.Ping{From: 1, Seq: 1}); err != nil {
		t.Errorf("ping beside a push: %v", err)
	}
	close(f.block)
	// The answer to the push that was given up must not be taken for this one's.
	ack, err := p.Push(ctx, 2, push.Push{Epoch: 5})
	if err != nil || ack.Epoch != 6 {
		t.Errorf("push after one that was given up: %+v, %v", ack, err)
	}
}

// TestServerThatIsLateToGreetIsNotGone has a server whose system accepts connections and which
// does not come to speak: that is silence, which a late replica waits for longer, and no refusal.
func TestServerThatIsLateToGreetIsNotGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := open(t, volume.Cluster{Servers: cluster.Members{{ID: 2, Peer: l.Addr().String()}}}, keysOf(t, newShare(t), 1))
	if _, err := p.Ping(within(t, 1500*time.Millisecond), 2, election.Ping{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping to a server that does not greet: %v", err)
	}
}

func TestConcurrentPushesGoOneByOne(t *testing.T) {
	p, _, _ := three(t)
	ctx := within(t, 10*time.Second)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ack, err := p.Push(ctx, 3, push.Push{Epoch: cluster.Epoch(i)})
			if err != nil || ack.Epoch != cluster.Epoch(i)+1 {
				t.Errorf("push %d: %+v, %v", i, ack, err)
			}
		})
	}
	wg.Wait()
}

func TestServerThatWasStoppedBeforeItServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := peergrpc.NewServer("c", &fake{id: 1}, keysOf(t, newShare(t), 1))
	s.Stop()
	if err := s.Serve(l); err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it left the listener open: %v", err)
	}
}

func TestClosedPeersAnswerWithAContextError(t *testing.T) {
	d := newShare(t)
	c, _ := fakesOn(t, d)
	p := peergrpc.New(1, c, keysOf(t, d, 1))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Ping(t.Context(), 2, election.Ping{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ping over closed connections: %v", err)
	}
}

// recorded keeps what is written to a connection.
type recorded struct {
	net.Conn
	mu      sync.Mutex
	written []byte
}

func (r *recorded) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, b...)
	return r.Conn.Write(b)
}

// pings counts the PING frames of HTTP/2 that were written and are no answers.
func (r *recorded) pings() int { return r.frames(6, 1) }

// frames counts the frames of HTTP/2 of a kind that were written without this flag.
func (r *recorded) frames(kind, flag byte) int {
	const preface, header = 24, 9
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for b := r.written[min(preface, len(r.written)):]; len(b) >= header; {
		if b[3] == kind && b[4]&flag == 0 {
			n++
		}
		b = b[min(len(b), header+int(b[0])<<16+int(b[1])<<8+int(b[2])):]
	}
	return n
}

// recording records what is sent over TLS.
type recording struct {
	credentials.TransportCredentials
	conns chan *recorded
}

func (x recording) Clone() credentials.TransportCredentials { return x }

func (x recording) ClientHandshake(ctx context.Context, name string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := x.TransportCredentials.ClientHandshake(ctx, name, raw)
	if err != nil {
		return nil, nil, err
	}
	r := &recorded{Conn: c}
	x.conns <- r
	return r, info, nil
}

// A replica answers hundreds of pushes a second: no answer may cost a ping.
func TestAnswersCostNoPings(t *testing.T) {
	c, d := volume.Cluster{ID: cluster.ID{1, 2, 3}}, newShare(t)
	addr, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), &fake{id: 2})
	c.Servers = []cluster.Member{{ID: 2, Peer: addr}}
	conns, k := make(chan *recorded, 1), keysOf(t, d, 1)
	p := peergrpc.New(1, c, k, grpc.WithTransportCredentials(recording{k.Client(2, nil), conns}))
	defer p.Close()
	ctx := within(t, 10*time.Second)
	for range 5 {
		if _, err := p.Push(ctx, 2, push.Push{Epoch: 1, Frames: []byte("frames")}); err != nil {
			t.Fatal(err)
		}
	}
	if n := (<-conns).pings(); n != 0 {
		t.Errorf("%d pings went with 5 pushes", n)
	}
}

// TestPeersFollow: a server that is added, or has moved, is reached; one that is gone is not.
func TestPeersFollow(t *testing.T) {
	d, c := newShare(t), volume.Cluster{ID: cluster.ID{9}}
	first, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), &fake{id: 2})
	c.Servers = cluster.Members{{ID: 1, Peer: "127.0.0.1:1"}, {ID: 2, Peer: first}}
	p := open(t, c, keysOf(t, d, 1))
	ctx := within(t, 20*time.Second)
	reached := func(when string, id cluster.ServerID, want bool) {
		t.Helper()
		_, err := p.Ping(ctx, id, election.Ping{From: 1})
		if _, pushErr := p.Push(ctx, id, push.Push{}); (err == nil) != want || (pushErr == nil) != want {
			t.Errorf("%s: server %d: %v, %v", when, id, err, pushErr)
		}
	}
	reached("at first", 2, true)
	reached("at first", 3, false)
	third, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), &fake{id: 3})
	all := append(c.Servers, cluster.Member{ID: 3, Peer: third})
	p.Follow(all)
	reached("added", 3, true)
	reached("added", 2, true)
	moved := &fake{id: 2}
	second, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), moved)
	all[1].Peer = second
	p.Follow(all)
	reached("moved", 2, true)
	if len(moved.pings) != 1 || len(moved.pushes) != 1 {
		t.Errorf("where it is now, it got %d pings and %d pushes", len(moved.pings), len(moved.pushes))
	}
	p.Follow(all[:2])
	reached("removed", 3, false)
}

// TestPingsShareAStream: a call for each would be most of what an idle server does. Each gets its own answer.
func TestPingsShareAStream(t *testing.T) {
	c, d := volume.Cluster{ID: cluster.ID{1, 2, 3}}, newShare(t)
	f := &fake{id: 2}
	addr, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), f)
	c.Servers = []cluster.Member{{ID: 2, Peer: addr}}
	conns, k := make(chan *recorded, 1), keysOf(t, d, 1)
	p := peergrpc.New(1, c, k, grpc.WithTransportCredentials(recording{k.Client(2, nil), conns}))
	defer p.Close()
	ctx := within(t, 10*time.Second)
	var all sync.WaitGroup
	for seq := range uint64(50) {
		all.Go(func() {
			r, err := p.Ping(ctx, 2, election.Ping{From: 1, Seq: seq + 1})
			if err != nil || r.Seq != seq+1 || r.From != 2 {
				t.Errorf("ping %d: %+v, %v", seq+1, r, err)
			}
		})
	}
	all.Wait()
	if n := (<-conns).frames(1, 1); n != 1 { // HEADERS, which begin a stream
		t.Errorf("50 pings took %d streams", n)
	}
}

// TestStoppedServerIsPingedAnew: where a server took pings, and answers none, those after it do not heap up behind them for ever.
func TestStoppedServerIsPingedAnew(t *testing.T) {
	p, _, fakes := three(t)
	f := fakes[2]
	f.stuck = make(chan struct{}, 1)
	defer close(f.stuck)
	ctx := within(t, 10*time.Second)
	for seq := uint64(1); ; seq++ {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_, err := p.Ping(short, 2, election.Ping{From: 1, Seq: seq})
		cancel()
		if err == nil {
			break
		}
		if !isContext(err) || ctx.Err() != nil {
			t.Fatalf("ping %d: %v", seq, err)
		}
	}
}

// TestBrokenConnectionIsTold, without a ping that finds out, and the end of a stream that this side wants is not.
func TestBrokenConnectionIsTold(t *testing.T) {
	d, c := newShare(t), volume.Cluster{ID: cluster.ID{9}}
	addr, s := listen(t, d, "127.0.0.1:0", c.ID.String(), &fake{id: 2})
	other, _ := listen(t, d, "127.0.0.1:0", c.ID.String(), &fake{id: 3})
	c.Servers = cluster.Members{{ID: 1, Peer: "127.0.0.1:1"}, {ID: 2, Peer: addr}, {ID: 3, Peer: other}}
	p := open(t, c, keysOf(t, d, 1))
	broke := make(chan cluster.ServerID, 10)
	p.OnBroken(func(id cluster.ServerID) { broke <- id })
	for _, id := range []cluster.ServerID{2, 3} {
		if _, err := p.Ping(within(t, 10*time.Second), id, election.Ping{From: 1, Seq: 1}); err != nil {
			t.Fatal(err)
		}
	}
	p.Follow(c.Servers[:2]) // server 3 is removed
	s.Stop()
	select {
	case id := <-broke:
		if id != 2 {
			t.Errorf("the connection to server %d is said to be broken", id)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody was told")
	}
	if len(broke) > 0 {
		t.Errorf("server %d, too", <-broke)
	}
}
