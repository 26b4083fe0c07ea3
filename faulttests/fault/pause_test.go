// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// shortTTL is the lease of everybody in the pause tests.
	shortTTL = 2 * time.Second
	// pauseTime is longer than suspicion, fencing and the longest lease together.
	pauseTime = 6 * time.Second
)

// TestPausedPrimary freezes the primary in the middle of appends until another
// one has served for longer than every lease, and wakes it up. Nobody may be
// told anything wrong, and it may change nothing but its own epoch's directory.
func TestPausedPrimary(t *testing.T) {
	needFaults(t)
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { pausedPrimary(t, *faultSeed+uint64(i)) })
	}
}

func pausedPrimary(t *testing.T, seed uint64) {
	b := newBattle(t, sourceText(t, 2<<20), 4, seed)
	for _, w := range b.workers {
		w.TTL, w.Lossy = shortTTL, true
	}
	_, stop := b.work(t.Context())
	traffic.Rest(t.Context(), time.Second)

	old, epoch := b.awaitTerm(t, 0)
	p := newPinned(t, old)
	p.open(t)
	p.begin(t.Context())
	traffic.Rest(t.Context(), 500*time.Millisecond)
	b.strike("SIGSTOP", epoch)
	old.Stop()
	for range 4 {
		p.ask(t.Context()) // they lie in its socket until it wakes up
	}
	fresh, now := b.awaitTerm(t, epoch)
	traffic.Rest(t.Context(), pauseTime)
	stop()
	before := settled(t, b.c)

	old.Cont()
	p.finish()
	cluster.Await(t, cluster.Patience, "the old primary to be a replica", func() bool {
		body, err := old.Status(t.Context())
		return err == nil && body.Role == "replica"
	})
	traffic.Rest(t.Context(), 4*time.Second) // time to do harm
	after, err := b.c.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	var r check.Report
	check.CheckHarmless(before, after, epoch, &r)
	for _, bad := range r.Violations() {
		t.Errorf("in epoch %d, %s", now, bad)
	}
	p.judge(t, fresh, b.c)
	b.end(t)
}

// settled waits until nothing changes any more, and returns what is there.
func settled(t *testing.T, c *cluster.Cluster) cluster.Snapshot {
	t.Helper()
	last, err := c.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	for range 15 {
		traffic.Rest(t.Context(), 1500*time.Millisecond)
		now, err := c.TakeSnapshot()
		if err != nil {
			t.Fatal(err)
		}
		if len(last.Changes(now, check.AnyonesPath)) == 0 {
			return maps.Clone(now)
		}
		last = now
	}
	t.Fatalf("the volume changes though nobody asks for anything")
	return nil
}

// pinned is a client of one server only, without clientlib: it keeps asking a
// server that sleeps, one append after the other under the same token.
type pinned struct {
	stub  pb.LockServiceClient
	id    string
	token uint64

	working sync.WaitGroup
	stopped chan struct{}
	mu      struct {
		sync.Mutex
		next    uint64
		answers map[uint64]*answer
	}
}

// answer is what one append was told, and when it was asked for.
type answer struct {
	request *pb.FileAppendRequest
	reply   *pb.Answer // nil: err
	err     error
}

func newPinned(t *testing.T, s *cluster.Server) *pinned {
	t.Helper()
	p := &pinned{stub: dial(t, s), stopped: make(chan struct{})}
	p.mu.answers = map[uint64]*answer{}
	return p
}

func dial(t *testing.T, s *cluster.Server) pb.LockServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Member.Client, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing is sent any more
	return pb.NewLockServiceClient(conn)
}

const (
	pinnedLock = "pinned"
	pinnedFile = "pinned.txt"
)

func (p *pinned) open(t *testing.T) {
	t.Helper()
	wait := int64(0)
	c, err := p.stub.OpenClient(t.Context(), &pb.OpenClientRequest{Nonce: *faultSeed | 1})
	if err != nil || c.Status != pb.Status_STATUS_OK {
		t.Fatalf("open a client: %v %v", c, err)
	}
	p.id = c.ClientId
	a, err := p.stub.Acquire(t.Context(), &pb.AcquireRequest{
		ClientId: p.id, RequestId: 1, Lock: pinnedLock, TtlMs: shortTTL.Milliseconds(), WaitMs: &wait,
	})
	if err != nil || a.Status != pb.Status_STATUS_OK {
		t.Fatalf("acquire: %v %v", a, err)
	}
	p.token = a.Token
	p.mu.next = 2
}

// begin appends, one at a time, until finish.
func (p *pinned) begin(ctx context.Context) {
	p.working.Go(func() {
		for {
			select {
			case <-p.stopped:
				return
			default:
			}
			p.append(ctx)
			traffic.Rest(ctx, 2*time.Millisecond)
		}
	})
}

// ask sends one append that nobody waits for yet.
func (p *pinned) ask(ctx context.Context) { p.working.Go(func() { p.append(ctx) }) }

// finish waits for all answers.
func (p *pinned) finish() {
	close(p.stopped)
	p.working.Wait()
}

func (p *pinned) append(ctx context.Context) {
	p.mu.Lock()
	id := p.mu.next
	p.mu.next++
	p.mu.Unlock()
	q := &pb.FileAppendRequest{
		ClientId: p.id, RequestId: id, Lock: pinnedLock, Token: p.token, File: pinnedFile, Data: fmt.Appendf(nil, "pinned line %d.\n", id),
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	a := &answer{request: q}
	a.reply, a.err = p.stub.FileAppend(ctx, q)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.answers[id] = a
}

// judge compares what the old primary told with what the new one knows, and with the file.
func (p *pinned) judge(t *testing.T, fresh *cluster.Server, c *cluster.Cluster) {
	t.Helper()
	stub := dial(t, fresh)
	content, err := os.ReadFile(c.File(pinnedFile))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for id, a := range p.mu.answers {
		told[a.word()]++
		truth, err := stub.Outcome(t.Context(), &pb.OutcomeRequest{ClientId: p.id, RequestId: id})
		if err != nil {
			t.Errorf("outcome of request %d: %v", id, err)
			continue
		}
		executed := truth.State == pb.RequestState_REQUEST_STATE_EXECUTED && truth.Outcome.GetStatus() == pb.Status_STATUS_OK
		if n := bytes.Count(content, a.request.Data); executed && n != 1 || !executed && n != 0 {
			t.Errorf("I5: request %d (executed: %v) stands in the file %d times", id, executed, n)
		}
		if a.reply.GetStatus() == pb.Status_STATUS_OK && (!executed || truth.Outcome.GetReceipt().GetOffset() != a.reply.GetReceipt().GetOffset()) {
			t.Errorf("I3: request %d was told %v, the truth is %v", id, a.reply, truth)
		}
		if executed {
			continue
		}
		again, err := stub.FileAppend(t.Context(), a.request)
		switch s := again.GetStatus(); {
		case err != nil:
			t.Errorf("repeat request %d: %v", id, err)
		case s != pb.Status_STATUS_INVALID_TOKEN && s != pb.Status_STATUS_LEASE_EXPIRED:
			t.Errorf("request %d, repeated under a token whose lease has ended: %v", id, again)
		}
	}
	t.Logf("%d appends were asked of the old primary alone; it said: %v", len(p.mu.answers), told)
	if told["OK"] == 0 || len(told) < 2 {
		t.Errorf("the pause did not come in the middle of appends: %v", told)
	}
}

// word is the status of an answer, wherever it stands.
func (a *answer) word() string {
	if a.err == nil {
		return wire.FromStatus(a.reply.GetStatus()).String()
	}
	if s, ok := wire.StatusOf(wire.FromGRPC(a.err)); ok {
		return s.String()
	}
	return a.err.Error()
}

// TestSameID starts a second process under each ID that is taken, on the same
// addresses and, with the guard of the ID alone to stop it, on others.
func TestSameID(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		p, epoch := b.awaitTerm(t, 0)
		for _, s := range b.c.Servers() {
			pid := s.PID()
			for want, args := range map[string][]string{
				"is this server running already": nil,
				"guard of this server ID":        {"--bind", "127.0.0.2"},
			} {
				said, running, err := s.Second(10*time.Second, args...)
				if running || err == nil || !strings.Contains(said, want) {
					t.Errorf("a second server %d %v: still running %v, %v, said:\n%s", s.Member.ID, args, running, err, said)
				}
			}
			if !s.Running() || s.PID() != pid {
				t.Errorf("server %d ended when a second one was started", s.Member.ID)
			}
		}
		if now, at := b.awaitTerm(t, 0); now != p || at != epoch {
			t.Errorf("server %d is primary in epoch %d, before it was server %d in epoch %d", now.Member.ID, at, p.Member.ID, epoch)
		}
	})
}
