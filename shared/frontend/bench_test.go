// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// BenchmarkPair measures acquire and release of one's own lock, with and without a wait, through
// clientlib, a session on loopback and a primary without replicas on the real filesystem under the
// temporary directory: check, fdatasync and group commit included.
func BenchmarkPair(b *testing.B) {
	for _, wait := range []time.Duration{0, time.Minute} {
		for _, callers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("wait=%v/callers=%d", wait, callers), func(b *testing.B) {
				benchPairs(b, callers, clientlib.AcquireOptions{Wait: wait})
			})
		}
	}
}

func benchPairs(b *testing.B, callers int, o clientlib.AcquireOptions) {
	c := benchClient(b)
	locks := make([]cluster.LockName, callers+1)
	for i := range locks {
		locks[i] = cluster.LockName(fmt.Sprintf("bench/%d", i))
	}
	pair := func(name cluster.LockName) {
		l, err := c.Acquire(context.Background(), name, o)
		if err == nil {
			err = l.Release(context.Background())
		}
		if err != nil {
			b.Error(err)
		}
	}
	pair("bench/warm")
	var n atomic.Int64
	b.SetParallelism((callers + 1) / 2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for name := locks[n.Add(1)-1]; pb.Next(); {
			pair(name)
		}
	})
}

// BenchmarkAppend measures appends of 100 bytes likewise, each caller to a file of its
// own under a lock that it holds.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := benchClient(b)
			held := make([]*clientlib.Lock, callers+1)
			for i := range held {
				var err error
				if held[i], err = c.Acquire(b.Context(), cluster.LockName(fmt.Sprintf("bench/%d", i)), clientlib.AcquireOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			data := make([]byte, 100)
			var n atomic.Int64
			b.SetParallelism((callers + 1) / 2)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := n.Add(1) - 1
				file := cluster.FileName(fmt.Sprintf("bench/%d.log", i))
				for pb.Next() {
					if _, err := held[i].Append(context.Background(), file, data); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func benchClient(b *testing.B) *clientlib.Client {
	b.Helper()
	fsys, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	primarytest.Init(b, fsys, primarytest.Members())
	x := primarytest.Serve(b, fsys, volume.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := fronttest.Serve(l, service.New(&backend{self: 1, members: primarytest.Members(), p: x.Primary, hub: x.Hub}, service.Options{}))
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{l.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		port.Close()
	})
	return c
}
