// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
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
	fsys, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	primarytest.Init(b, fsys, primarytest.Members())
	v, r := primarytest.Claim(b, fsys, volume.Options{Server: 1})
	timing := cluster.DefaultTiming()
	timing.FencingPeriod = 0
	p := primary.New(r, primary.Options{Server: 1, Timing: timing, Log: zerolog.Nop()})
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
