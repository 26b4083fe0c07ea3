// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// newDisk is an initialised volume.
func newDisk(t *testing.T) *volumetest.Disk {
	t.Helper()
	d := volumetest.New(1)
	primarytest.Init(t, d.Host(9, volumetest.ProfileLocal()), primarytest.Members())
	return d
}

// term is a primary that runs in the bubble.
type term struct {
	t    *testing.T
	host *volumetest.Host
	vol  *volume.Volume
	p    *primary.Primary
	log  *logged
	stop context.CancelCauseFunc
	done chan error
}

// logged keeps the lines of a log and passes them on.
type logged struct {
	to    io.Writer
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer, for one line.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return l.to.Write(b)
}

// having lists the lines that hold a text.
func (l *logged) having(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(s string) bool { return !strings.Contains(s, text) })
}

// small is a volume whose log rotates soon.
func small() volume.Options { return volume.Options{FirstSegment: 32 << 10, Segment: 64 << 10} }

// claim begins a term of a small server on a local filesystem.
func claim(t *testing.T, d *volumetest.Disk, id cluster.ServerID, opt primary.Options) *term {
	t.Helper()
	if opt.MaxBatch == 0 {
		opt.MaxBatch = 8 << 10
	}
	return claimOn(t, d.Host(int(id), volumetest.ProfileLocal()), id, small(), opt)
}

// claimOn begins a term on this host.
func claimOn(t *testing.T, h *volumetest.Host, id cluster.ServerID, sizes volume.Options, opt primary.Options) *term {
	t.Helper()
	sizes.Server = id
	v, r := primarytest.Claim(t, h, sizes)
	opt.Server = id
	if opt.Timing == (cluster.Timing{}) {
		opt.Timing = cluster.DefaultTiming()
	}
	log := &logged{to: t.Output()}
	opt.Log = zerolog.New(log).Level(zerolog.InfoLevel)
	ctx, stop := context.WithCancelCause(context.Background())
	x := &term{t: t, host: h, vol: v, p: primary.New(r, opt), log: log, stop: stop, done: make(chan error, 1)}
	go func() { x.done <- x.p.Run(ctx) }()
	return x
}

// serve begins a term and waits until it serves.
func serve(t *testing.T, d *volumetest.Disk, id cluster.ServerID, opt primary.Options) *term {
	t.Helper()
	return claim(t, d, id, opt).serving()
}

// serveLarge begins a term with segments and batches of the usual size.
func serveLarge(t *testing.T, h *volumetest.Host, id cluster.ServerID, opt primary.Options) *term {
	t.Helper()
	return claimOn(t, h, id, volume.Options{}, opt).serving()
}

func (x *term) serving() *term {
	x.t.Helper()
	for x.p.State() == primary.StateFencing {
		time.Sleep(10 * time.Millisecond)
	}
	if x.p.State() != primary.StateServing {
		x.t.Fatalf("the takeover failed: %v", x.end())
	}
	// Time passes once everybody waits: what begins with serving, and looks at the
	// fence, has begun before the test does anything to it.
	time.Sleep(time.Millisecond)
	return x
}

// kill ends the process as kill -9 does.
func (x *term) kill() {
	x.host.Kill()
	x.end() //nolint:errcheck // it was killed
}

// end stops the term and returns why it ended.
func (x *term) end() error {
	x.stop(errors.New("the test is over"))
	err := <-x.done
	if cerr := x.vol.Close(); cerr != nil {
		x.t.Logf("close: %v", cerr)
	}
	return err
}

func (x *term) do(q *locktable.Request) locktable.Outcome {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := x.p.Do(ctx, q)
	if err != nil {
		x.t.Fatalf("%v: %v", q.Op, err)
	}
	return out
}

func (x *term) ok(q *locktable.Request) locktable.Outcome {
	x.t.Helper()
	out := x.do(q)
	if out.Status != cluster.StatusOK {
		x.t.Fatalf("%v by %s/%d: %v %s", q.Op, q.Client, q.ID, out.Status, out.Message)
	}
	return out
}

func acquire(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, wait time.Duration) *locktable.Request {
	return &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: id, Lock: lock, TTL: 30 * time.Second, Wait: wait}
}

func release(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token) *locktable.Request {
	return &locktable.Request{Op: locktable.OpRelease, Client: client, ID: id, Lock: lock, Token: token}
}

func appendTo(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token, file cluster.FileName, text string) *locktable.Request {
	return &locktable.Request{
		Op: locktable.OpAppend, Client: client, ID: id, Lock: lock, Token: token, File: file,
		Data: []byte(text), CRC: crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)),
	}
}

func TestTermFollowsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		got := x.ok(acquire("c1", 1, "billing/job", 0))
		x.ok(appendTo("c1", 2, "billing/job", got.Token, "logs/a.txt", "one\n"))
		receipt := x.ok(appendTo("c1", 3, "billing/job", got.Token, "logs/a.txt", "two\n"))
		if receipt.Offset != 4 || receipt.Length != 4 {
			t.Errorf("second receipt: offset %d, length %d", receipt.Offset, receipt.Length)
		}
		if out := x.do(acquire("c2", 1, "billing/job", 0)); out.Status != cluster.StatusHeld {
			t.Errorf("try of a held lock: %v", out.Status)
		}
		x.host.Kill()
		t.Logf("first term ended: %v", x.end())

		y := serve(t, d, 2, primary.Options{})
		again := y.ok(appendTo("c1", 3, "billing/job", got.Token, "logs/a.txt", "two\n"))
		if !again.Repeat || again.Offset != receipt.Offset || again.LSN != receipt.LSN {
			t.Errorf("repeat after the failover: %+v, want %+v", again, receipt)
		}
		y.ok(appendTo("c1", 4, "billing/job", got.Token, "logs/a.txt", "three\n"))
		y.ok(release("c1", 5, "billing/job", got.Token))
		next := y.ok(acquire("c2", 2, "billing/job", 0))
		if next.Token <= got.Token {
			t.Errorf("tokens fell: %d after %d", next.Token, got.Token)
		}
		if file := string(d.Files("files/")["files/logs/a.txt"]); file != "one\ntwo\nthree\n" {
			t.Errorf("file holds %q", file)
		}
		if err := y.end(); !errors.Is(err, volume.ErrDeposed) {
			t.Errorf("end: %v", err)
		}
	})
}

func TestQueueIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		first := x.ok(acquire("c0", 1, "l", 0))
		order := make(chan cluster.ClientID, 3)
		var released sync.WaitGroup
		for _, id := range []cluster.ClientID{"c1", "c2", "c3"} {
			released.Go(func() {
				out := x.ok(acquire(id, 1, "l", locktable.WaitForever))
				order <- id
				x.ok(release(id, 2, "l", out.Token))
			})
			synctest.Wait()
		}
		x.ok(release("c0", 2, "l", first.Token))
		released.Wait()
		var got []string
		for range 3 {
			got = append(got, string(<-order))
		}
		if s := strings.Join(got, " "); s != "c1 c2 c3" {
			t.Errorf("order: %s", s)
		}
	})
}

func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		first := x.ok(acquire("c0", 1, "l", 0))
		start := time.Now()
		out := x.ok(acquire("c1", 1, "l", locktable.WaitForever))
		if waited := time.Since(start); waited < 30*time.Second || waited > 30*time.Second+2*time.Second {
			t.Errorf("the lease ended after %v", waited)
		}
		if out := x.do(release("c0", 2, "l", first.Token)); out.Status != cluster.StatusInvalidToken {
			t.Errorf("release after expiry: %v", out.Status)
		}
		if out := x.do(acquire("c0", 1, "l", 0)); out.Status != cluster.StatusLeaseExpired {
			t.Errorf("repeat of an expired acquire: %v", out.Status)
		}
		for range 4 { // kept alive for longer than the TTL
			time.Sleep(20 * time.Second)
			if _, _, out, err := x.p.KeepAlive(t.Context(), "c1", serving.Belief{Held: 1}); err != nil || out.Status != cluster.StatusOK {
				t.Fatalf("keep alive: %v %v", out.Status, err)
			}
		}
		if _, live := x.remaining("l", out.Token); !live {
			t.Error("a lease that was kept alive has ended")
		}
	})
}

func (x *term) remaining(lock cluster.LockName, token cluster.Token) (left time.Duration, live bool) {
	x.t.Helper()
	out, err := x.p.Read(x.t.Context(), func(v serving.View) {
		_, live = v.Table.Live(lock, token)
		left = v.Remaining(lock, token)
	})
	if err != nil || out.Status != cluster.StatusOK {
		x.t.Fatalf("read: %v %v", out.Status, err)
	}
	return left, live
}
