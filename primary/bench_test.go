// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// BenchmarkPair measures acquire and release of one's own lock on the real
// filesystem under the temporary directory, without a network: check,
// fdatasync and group commit included.
func BenchmarkPair(b *testing.B) {
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			p := benchPrimary(b)
			var n atomic.Int64
			b.SetParallelism((callers + 1) / 2)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				id := cluster.ClientID(fmt.Sprintf("c%d", n.Add(1)))
				lock := cluster.LockName("bench/" + string(id))
				for i := cluster.RequestID(1); pb.Next(); i += 2 {
					got := mustDo(b, p, &locktable.Request{Op: locktable.OpAcquire, Client: id, ID: i, LowWater: i, Lock: lock, TTL: time.Minute})
					mustDo(b, p, &locktable.Request{Op: locktable.OpRelease, Client: id, ID: i + 1, LowWater: i + 1, Lock: lock, Token: got.Token})
				}
			})
		})
	}
}

func mustDo(b *testing.B, p *primary.Primary, q *locktable.Request) locktable.Outcome {
	out, err := p.Do(context.Background(), q)
	if err != nil || out.Status != cluster.StatusOK {
		b.Errorf("%v: %v %v %s", q.Op, err, out.Status, out.Message)
	}
	return out
}

func benchPrimary(b *testing.B) *primary.Primary {
	b.Helper()
	return benchPrimaryAt(b, b.TempDir(), 0)
}

func benchPrimaryAt(b *testing.B, dir string, viewInterval time.Duration) *primary.Primary {
	b.Helper()
	return benchPrimaryOf(b, dir, primary.Options{ViewInterval: viewInterval})
}

func benchPrimaryOf(b *testing.B, dir string, opt primary.Options) *primary.Primary {
	b.Helper()
	fsys, err := osfs.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	primarytest.Init(b, fsys, primarytest.Members())
	v, r := primarytest.Claim(b, fsys, volume.Options{Server: 1})
	timing := cluster.DefaultTiming()
	timing.FencingPeriod = 0
	opt.Server, opt.Timing, opt.Log = 1, timing, zerolog.Nop()
	p := primary.New(r, opt)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-p.Serving()
	b.Cleanup(func() {
		stop()
		<-done
		if err := v.Close(); err != nil {
			b.Error(err)
		}
	})
	return p
}

// BenchmarkViews measures how far the views are behind while locks are acquired and released
// beside tables of several sizes, and what writing them costs: the processor time with
// them and, for comparison, without.
func BenchmarkViews(b *testing.B) {
	for _, locks := range []int{100, 10_000, 100_000} {
		for name, interval := range map[string]time.Duration{"views": 0, "none": 1000 * time.Hour} {
			b.Run(fmt.Sprintf("locks=%d/%s", locks, name), func(b *testing.B) {
				dir := b.TempDir()
				p := benchPrimaryAt(b, dir, interval)
				for i := range locks {
					id := cluster.RequestID(i + 1)
					q := &serving.AsyncRequest{To: nobody{}, Abandoned: new(atomic.Bool), Request: locktable.Request{
						Op: locktable.OpAcquire, Client: "held", ID: id, LowWater: id, Lock: cluster.LockName(fmt.Sprint("held/", i)), TTL: 10 * time.Minute,
					}}
					p.Submit([]*serving.AsyncRequest{q})
				}
				mustDo(b, p, &locktable.Request{Op: locktable.OpAcquire, Client: "last", ID: 1, Lock: "last", TTL: 10 * time.Minute})
				b.ResetTimer()
				for range b.N {
					lagOfViews(b, p, dir, max(10*time.Second, time.Duration(locks)*time.Second/2000))
				}
			})
		}
	}
}

// lagOfViews acquires and releases a lock every few milliseconds, and looks how old the view is.
func lagOfViews(b *testing.B, p *primary.Primary, dir string, during time.Duration) {
	type commit struct {
		lsn cluster.LSN
		at  time.Time
	}
	var all []commit
	var worst time.Duration
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before) //nolint:errcheck // it cannot fail
	began, shown, writes := time.Now(), cluster.LSN(0), 0
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for i := p.LSN(); time.Since(began) < during; i += 2 {
		<-t.C
		id := cluster.RequestID(2 * i)
		got := mustDo(b, p, &locktable.Request{Op: locktable.OpAcquire, Client: "busy", ID: id, LowWater: id, Lock: "busy", TTL: time.Minute})
		mustDo(b, p, &locktable.Request{Op: locktable.OpRelease, Client: "busy", ID: id + 1, LowWater: id + 1, Lock: "busy", Token: got.Token})
		all = append(all, commit{p.LSN(), time.Now()})
		f, err := os.Open(filepath.Join(dir, "lock_state.json"))
		if err != nil {
			continue
		}
		var head struct{ LSN cluster.LSN }
		line, _ := bufio.NewReader(f).ReadBytes('\n')                    //nolint:errcheck // then it is no head
		json.Unmarshal(append(bytes.TrimRight(line, ",\n"), '}'), &head) //nolint:errcheck // likewise
		f.Close()                                                        //nolint:errcheck // it was read
		if head.LSN != shown {
			shown = head.LSN
			writes++
		}
		for len(all) > 0 && all[0].lsn <= shown {
			all = all[1:]
		}
		if len(all) > 0 {
			worst = max(worst, time.Since(all[0].at))
		}
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after) //nolint:errcheck // it cannot fail
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(worst.Seconds(), "s-behind")
	b.ReportMetric(100*cpu.Seconds()/time.Since(began).Seconds(), "%cpu")
	b.ReportMetric(float64(writes)/time.Since(began).Seconds(), "writes/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBatch measures the core loop's batches as sessions bring them: each operation of the benchmark is 256 acquires
// and as many releases, in two messages. The volume is in memory where /dev/shm is, so that the loop is the larger part.
func BenchmarkBatch(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-bench-")
	if err != nil {
		dir = b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is in memory
	p := benchPrimaryAt(b, dir, 1000*time.Hour)
	const n = 256
	sink := &counting{done: make(chan struct{}, 1)}
	for id := cluster.RequestID(1); b.Loop(); id += 2 {
		sink.submit(p, n, locktable.OpAcquire, id)
		sink.submit(p, n, locktable.OpRelease, id+1)
	}
}

// counting is one session that waits until all of a message is answered.
type counting struct {
	tokens [1024]cluster.Token
	left   atomic.Int64
	done   chan struct{}
}

func (s *counting) submit(p *primary.Primary, n int, op locktable.Op, id cluster.RequestID) {
	s.left.Store(int64(n))
	orders := make([]*serving.AsyncRequest, n)
	gone := new(atomic.Bool)
	for i := range orders {
		client := cluster.ClientID("c" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
		orders[i] = &serving.AsyncRequest{To: s, Abandoned: gone, Correlation: uint64(i), Request: locktable.Request{
			Op: op, Client: client, ID: id, LowWater: id, Lock: cluster.LockName(client), TTL: time.Minute, Token: s.tokens[i],
		}}
		if op == locktable.OpAcquire {
			orders[i].Request.Token = 0
		}
	}
	p.Submit(orders)
	<-s.done
}

func (s *counting) Answer(o *serving.AsyncRequest, out locktable.Outcome) {
	s.tokens[o.Correlation] = out.Token
	if s.left.Add(-1) == 0 {
		s.done <- struct{}{}
	}
}

func (s *counting) Flush() {}
