// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// slowFeed is a feed of events that takes long to begin: the replica is locked meanwhile.
type slowFeed struct {
	replica.Feed
	begins, goOn chan struct{}
}

// Begin implements replica.Feed.
func (f *slowFeed) Begin(wal.Position, cluster.Epoch) {
	close(f.begins)
	<-f.goOn
}

// TestPingsAreAnsweredWhileAPushIsApplied has a replica apply a push for long. It answers pings and
// asks meanwhile, for otherwise the others would take it for dead.
func TestPingsAreAnsweredWhileAPushIsApplied(t *testing.T) {
	n, _, _ := follows(t, func(*volumetest.Disk) {})
	f := &slowFeed{Feed: pushed{n.hub.Feed(true)}, begins: make(chan struct{}), goOn: make(chan struct{})}
	n.replica.SetFeed(f)
	n.replica.TakeBack(&volume.WarmState{Table: locktable.New()}, false)
	applied := make(chan error, 1)
	go func() {
		_, err := n.replica.Push(push.Push{Epoch: 5})
		applied <- err
	}()
	<-f.begins
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		n.HandlePing(election.Ping{From: 1, Nonce: 7, Seq: 1})
		n.HandlePreVote(t.Context(), election.Ask{From: 1, Nonce: 7})
	}()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Error("a ping waits until a push is applied")
	}
	close(f.goOn)
	<-answered
	if err := <-applied; err != nil {
		t.Errorf("the push: %v", err)
	}
}
