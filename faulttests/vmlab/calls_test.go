// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
)

// operation is what a kernel has asked of an NFS server with calls of one kind.
type operation struct{ calls, sent int64 }

// operations are those of a host, since it mounted the share.
func operations(ctx context.Context, t *testing.T, m *Machine) map[string]operation {
	t.Helper()
	out, err := m.Run(ctx, "cat /proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]operation{}
	_, per, _ := strings.Cut(out, "per-op statistics")
	for line := range strings.Lines(per) {
		f := strings.Fields(line) // WRITE: operations transmissions timeouts bytes-sent …
		if len(f) < 5 || !strings.HasSuffix(f[0], ":") {
			continue
		}
		calls, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sent, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[strings.TrimSuffix(f[0], ":")] = operation{calls, sent}
	}
	return all
}

// TestCallsOnTheWire counts what steps ask of the NFS server, as the client's kernel counts it.
func TestCallsOnTheWire(t *testing.T) {
	prepareImage(t)
	if !cluster.Inside(t, "-vmlab.image="+*made) {
		return
	}
	l := New(t, ImageIn(*made), binaryIn(*made), NFS(*options))
	ctx, cancel := context.WithTimeout(t.Context(), 2*bootLimit)
	defer cancel()
	if err := l.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if !cluster.Poll(ctx, bootLimit, func() bool { return l.Holdfast(ctx, "status", "--timeout", "3s").Run() == nil }) {
		t.Fatal("the servers are not well")
	}
	p, _, err := l.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := steps{l, t, l.Host(p), nil}
	s.settle(ctx)
	s.idle = s.count(ctx, func() { traffic.Rest(ctx, 20*time.Second) })
	s.tell("one idle second", 20, s.idle)
	replica := steps{l, t, l.Host(p%3 + 1), nil}
	replica.tell("one idle second of a replica", 20, replica.count(ctx, func() { traffic.Rest(ctx, 20*time.Second) }))
	s.clients(ctx)
	s.takeover(ctx, p)
}

// steps counts at one host.
type steps struct {
	*Lab
	t    *testing.T
	host *Machine
	idle map[string]float64 // calls in 20 idle seconds
}

// settle waits until nothing is prepared any more.
func (s *steps) settle(ctx context.Context) {
	s.t.Helper()
	before := int64(-1)
	quiet := cluster.Poll(ctx, bootLimit, func() bool {
		traffic.Rest(ctx, 5*time.Second)
		now := operations(ctx, s.t, s.host)["WRITE"].sent
		defer func() { before = now }()
		return now-before < 1<<20
	})
	if !quiet {
		s.t.Fatal("the primary writes and writes")
	}
}

// count is what a step asks for, without what the host asks for anyway.
func (s *steps) count(ctx context.Context, step func()) map[string]float64 {
	before, began := operations(ctx, s.t, s.host), time.Now()
	step()
	took, n := time.Since(began), map[string]float64{}
	for name, now := range operations(ctx, s.t, s.host) {
		if calls := float64(now.calls-before[name].calls) - s.idle[name]*took.Seconds()/20; calls > 0 {
			n[name] = calls
		}
	}
	return n
}

// tell says what one of many asked for.
func (s *steps) tell(step string, many int, n map[string]float64) {
	var all []string
	for name, calls := range n {
		if each := calls / float64(many); each >= 0.05 {
			all = append(all, fmt.Sprintf("%s %.1f", name, each))
		}
	}
	slices.Sort(all)
	s.t.Logf("| %s | %s |", step, strings.Join(all, ", "))
}

// clients counts what clients cause.
func (s *steps) clients(ctx context.Context) {
	c, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the servers stop
	var lock *clientlib.Lock
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	acquire := func() {
		lock, err = c.Acquire(ctx, "l", clientlib.AcquireOptions{TTL: time.Minute})
		must(err)
	}
	add := func() {
		_, err := lock.Append(ctx, "f", []byte("a line\n"))
		must(err)
	}
	const many = 50
	s.tell("an acquire and a release", many, s.count(ctx, func() {
		for range many {
			acquire()
			must(lock.Release(ctx))
		}
	}))
	acquire()
	add()
	appends := s.count(ctx, func() {
		for range many {
			add()
		}
	})
	s.tell("an append", many, appends)
	// The log and the file, and what goes on beside them. On a busy machine that is more for each append:
	// the views are written every second, one with a rename and one without.
	if writes := (appends["WRITE"] - 2*appends["RENAME"]) / many; writes > 3 {
		s.t.Errorf("%.1f writes for an append", writes)
	}
	must(lock.Release(ctx))
}

// takeover counts what the next primary asks for from the death of this one to its first answer.
func (s *steps) takeover(ctx context.Context, p int) {
	s.host = s.Host(p%3 + 1)
	if p != 1 {
		s.host = s.Host(1)
	}
	s.tell("a takeover, with the first acquire", 1, s.count(ctx, func() {
		if err := s.Signal(ctx, p, "KILL"); err != nil {
			s.t.Fatal(err)
		}
		if out, err := s.Holdfast(ctx, "acquire", "--ttl", "1m", "after").CombinedOutput(); err != nil {
			s.t.Fatalf("acquire: %v: %s", err, out)
		}
	}))
}
