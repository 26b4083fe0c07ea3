// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// A holder that is cut off does not count on a lock for longer than its max hold lasts:
// then the service grants it to another. Nor does one whose first answers were lost.
func TestMaxHoldEndsAlsoForWhoIsCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		lost             int32 // answers
		maxHold, healthy time.Duration
	}{
		"behind lost answers": {3, ttl, 0},
		"behind keep-alives":  {0, 2 * ttl, 2*ttl - ttl/8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lose atomic.Int32
				lose.Store(test.lost)
				w := newWorld(losingAcquires(&lose)...)
				defer w.end()
				a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
				l, err := a.c.Acquire(t.Context(), "l", clientlib.AcquireOptions{TTL: ttl, MaxHold: test.maxHold})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.healthy)
				a.net.Cut()
				other, err := b.c.Acquire(t.Context(), "l", clientlib.AcquireOptions{TTL: ttl, Wait: clientlib.Forever})
				if err != nil {
					t.Fatal(err)
				}
				if l.Context().Err() == nil {
					t.Errorf("two holders: token %d is granted to another while the holder of token %d counts on it for %v more", other.Token(), l.Token(), time.Until(l.Expires()))
				}
			})
		})
	}
}

// losingAcquires are a server whose first answers to Acquire are lost, and which has no sessions.
func losingAcquires(lose *atomic.Int32) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if strings.HasSuffix(info.FullMethod, "/Acquire") && lose.Add(-1) >= 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return resp, err
		}),
		grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return status.Error(codes.Unimplemented, "no sessions here")
		}),
	}
}
