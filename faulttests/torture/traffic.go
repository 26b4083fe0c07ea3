// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// speakers append text under long leases, hasty ones under leases so short
	// that they lose them; lockers make the history for porcupine.
	speakers, hasty, lockers = 3, 2, 6
	// lockNames is how many locks the history has, so that each part of it stays
	// small enough for porcupine.
	lockNames = 24
	longTTL   = time.Minute
	hastyTTL  = 2 * time.Second
	// lockerPace is how long a locker rests after each lock.
	lockerPace = 25 * time.Millisecond
	textPace   = 10 * time.Millisecond
	// callLimit bounds one call. A call that a fault outlasts stays without an answer.
	callLimit = 2 * time.Minute
	// linger bounds what is left of an acquire without an answer: a wait, and a lease that each
	// term counts from its beginning, until a keep-alive of its client shows that it is not known.
	linger = 2*(longTTL+healing) + callLimit
)

// Traffic runs the clients of a round, and records their answers.
type Traffic struct {
	Ledger  *check.Ledger
	Lockers *traffic.Lockers

	t       testing.TB
	c       *cluster.Cluster
	rand    *rand.Rand
	working sync.WaitGroup
	stop    chan struct{}
}

// NewTraffic returns the traffic for a cluster; random decides what the clients do.
func NewTraffic(t testing.TB, c *cluster.Cluster, random *rand.Rand) *Traffic {
	return &Traffic{
		Ledger: &check.Ledger{}, t: t, c: c, rand: random, stop: make(chan struct{}),
		Lockers: &traffic.Lockers{
			History: check.NewHistory(), Locks: lockNames, TTL: longTTL, Brief: hastyTTL, Pace: lockerPace, Breaks: true, Limit: callLimit,
		},
	}
}

// Start lets the clients work until End. They append the lines. They append the lines.
func (x *Traffic) Start(ctx context.Context, lines [][]byte) {
	for i := range speakers + hasty {
		w := &traffic.Worker{
			Client: x.client(holderName(i)), Holder: holderName(i), Speaker: check.NewSpeaker(lines, i, speakers+hasty), Places: filesOf(i), Ledger: x.Ledger,
			Rand: x.fork(), TTL: longTTL, Pace: textPace, Limit: callLimit, Storage: true, Sharing: true,
		}
		if i >= speakers {
			w.TTL, w.Lossy = hastyTTL, true
		}
		x.working.Go(func() { w.Run(ctx, x.over) })
	}
	for i := range lockers {
		w := &traffic.Locker{All: x.Lockers, Client: x.client(holderName(speakers + hasty + i)), Number: i, Rand: x.fork()}
		x.working.Go(func() { w.Run(ctx, x.over) })
	}
}

// End stops the clients and waits until each has its last answer.
func (x *Traffic) End() {
	close(x.stop)
	x.working.Wait()
}

// Calls returns how many calls were answered so far.
func (x *Traffic) Calls() int {
	appends, grants, _, _ := x.Ledger.Count()
	return appends + grants + x.Lockers.Answered()
}

func (x *Traffic) over() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

func (x *Traffic) fork() *rand.Rand { return rand.New(rand.NewPCG(x.rand.Uint64(), x.rand.Uint64())) }

// client searches for a primary for as long as the longest fault and its healing may last.
func (x *Traffic) client(holder string) *clientlib.Client {
	client, err := clientlib.New(clientlib.Options{Endpoints: x.c.Endpoints(), Budget: callLimit, Holder: clientlib.Holder{Command: holder}})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
	return client
}

// holderName is what a client calls itself, so that the log tells whose grant it is.
func holderName(client int) string { return fmt.Sprintf("client-%d", client) }

// permits is the limit of the lock of which the clients take permits.
const permits = 3

// filesOf a client are a file of its own and one that all share; and permits.
func filesOf(client int) []traffic.Place {
	return []traffic.Place{
		{Lock: hf.LockName(fmt.Sprintf("own/%d", client)), File: hf.FileName(fmt.Sprintf("own/%d.txt", client))},
		{Lock: "all", File: "deep/er/all.txt"},
		{Lock: "permits", Limit: permits},
	}
}
