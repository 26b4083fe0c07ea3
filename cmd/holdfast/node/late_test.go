// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestServerThatIsLate has the ticks of a server come on time, and then none.
func TestServerThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{opt: Options{Timing: cluster.DefaultTiming()}}
		n.elector = election.New(election.Options{
			Self: 2, Nonce: 1, Members: cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}}, Timing: n.opt.Timing,
			Transport: &primaryStub{}, Status: func() election.Status { return election.Status{} }, Log: zerolog.Nop(),
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		ended := make(chan error)
		go func() { ended <- n.elector.Run(ctx) }()
		time.Sleep(9 * time.Second)
		if n.Late() {
			t.Error("it is late while its ticks are on time")
		}
		<-ended
		if n.Late() {
			t.Error("it is late when no tick is due yet")
		}
		time.Sleep(n.opt.Timing.Suspicion)
		if !n.Late() {
			t.Error("it is not late though no tick comes")
		}
	})
}
