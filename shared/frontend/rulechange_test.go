// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Rules that change while watches begin find each of them whole. (The race detector tells.)
func TestRulesChangeWhileWatchesBegin(t *testing.T) {
	g := newCredentials(t)
	s := service.New(startPrimary(t), service.Options{Authenticator: g})
	ctx := serving.WithCaller(t.Context(), g.callers["alice"])
	var all sync.WaitGroup
	over := make(chan struct{})
	changes := make(chan struct{})
	go func() {
		defer close(changes)
		for {
			select {
			case <-over:
				return
			default:
				s.EndForbidden()
			}
		}
	}()
	for range 4 {
		all.Go(func() {
			for range 100 {
				stop := errors.New("enough")
				err := s.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "l"}}, nil, func(*pb.WatchResponse) error { return stop })
				if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(over)
	<-changes
}
