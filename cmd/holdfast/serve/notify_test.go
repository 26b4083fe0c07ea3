// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// manager is a service manager: what it was told.
type manager struct {
	t *testing.T
	*net.UnixConn
}

func startManager(t *testing.T, watchdog string) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a listener
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	t.Setenv("WATCHDOG_PID", "")
	return &manager{t, c}
}

// told returns what is told next, "" for nothing within this time.
func (m *manager) told(within time.Duration) string {
	m.t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	b := make([]byte, 200)
	n, err := m.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// fakeNode has a status.
type fakeNode struct {
	heard atomic.Int64 // how long ago the other server was
	stuck chan struct{}
}

func (n *fakeNode) Status() serving.ClusterStatus {
	<-n.stuck
	return serving.ClusterStatus{Servers: []serving.ServerStatus{{}, {Heard: time.Duration(n.heard.Load())}}}
}

// announced tells the manager of a node until the test ends, and is over before that of the next test is there.
func announced(t *testing.T, n *fakeNode) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); announce(t.Context(), n, zerolog.Nop()) }()
	t.Cleanup(func() { <-ended })
}

// The manager hears READY when the others were heard, WATCHDOG as long as the node is not stuck, and STOPPING.
func TestServiceManagerIsTold(t *testing.T) {
	m := startManager(t, "30000")
	goes := make(chan struct{})
	n := &fakeNode{stuck: goes}
	n.heard.Store(-1)
	close(goes)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() { defer close(ended); announce(ctx, n, zerolog.New(t.Output())) }()
	if got := m.told(100 * time.Millisecond); got != "" {
		t.Errorf("told %q before the others were heard", got)
	}
	n.heard.Store(int64(time.Millisecond))
	if got := m.told(10 * time.Second); got != "READY=1" {
		t.Errorf("told %q", got)
	}
	for range 3 {
		if got := m.told(10 * time.Second); got != "WATCHDOG=1" {
			t.Errorf("told %q", got)
		}
	}
	stop()
	<-ended
	last := ""
	for got := "-"; got != ""; got = m.told(10 * time.Millisecond) {
		last = got
	}
	if last != "STOPPING=1" {
		t.Errorf("told %q at the end", last)
	}
}

// A node that is stuck feeds no watchdog.
func TestStuckNodeFeedsNoWatchdog(t *testing.T) {
	m := startManager(t, "30000")
	n := &fakeNode{stuck: make(chan struct{}, 1)}
	n.stuck <- struct{}{} // one status
	announced(t, n)
	defer close(n.stuck)
	if got := m.told(10 * time.Second); got != "READY=1" {
		t.Errorf("told %q", got)
	}
	if got := m.told(200 * time.Millisecond); got != "" {
		t.Errorf("a node that is stuck tells %q", got)
	}
}

// A server that the others do not answer is ready all the same.
func TestReadyWithoutOthers(t *testing.T) {
	m := startManager(t, "")
	n := &fakeNode{stuck: make(chan struct{})}
	n.heard.Store(-1)
	close(n.stuck)
	announced(t, n)
	if got := m.told(10 * time.Second); got != "READY=1" {
		t.Errorf("told %q", got)
	}
	if got := m.told(50 * time.Millisecond); got != "" {
		t.Errorf("without a watchdog it tells %q", got)
	}
}

// A server that waits to be added says so, and to be given time; when it is added, it has as long to start as others.
func TestServiceManagerIsToldOfTheWait(t *testing.T) {
	m := startManager(t, "")
	v := newVolume(t)
	added := make(chan error, 1)
	go func() { _, _, err := v.await(3, time.Minute); added <- err }()
	if got, want := m.told(10*time.Second), "STATUS=waits to be added: holdfast member add 3=HOST\nEXTEND_TIMEOUT_USEC=120000000"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	v.change(cluster.MemberChange{Kind: cluster.AddServer, Server: cluster.Member{ID: 3, Client: "c:1", Peer: "c:2"}})
	if got, want := m.told(10*time.Second), "STATUS=\nEXTEND_TIMEOUT_USEC=120000000"; got != want {
		t.Errorf("added, told %q, want %q", got, want)
	}
	if err := <-added; err != nil {
		t.Error(err)
	}
	if _, _, err := v.await(3, time.Minute); err != nil {
		t.Error(err)
	}
	if got := m.told(10 * time.Millisecond); got != "" {
		t.Errorf("one that is added already tells %q", got)
	}
}
