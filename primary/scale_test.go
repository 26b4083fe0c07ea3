// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// crowd is a loop with clients, opened or anonymous, that take locks of
// names with about 20 bytes, and know what they took.
type crowd struct {
	tb     testing.TB
	loop   *primary.Loop
	ids    []cluster.ClientID
	next   []cluster.RequestID
	tokens []cluster.Token
}

// newLoop is the core loop of a term that has only been claimed.
func newLoop(tb testing.TB) *primary.Loop {
	h := volumetest.New(1).Host(1, volumetest.ProfileLocal())
	primarytest.Init(tb, h, primarytest.Members())
	v, r := primarytest.Claim(tb, h, volume.Options{Server: 1, FirstSegment: 32 << 10, Segment: 64 << 10})
	tb.Cleanup(func() { v.Close() }) //nolint:errcheck // nothing was written
	return primary.NewLoop(r)
}

func newCrowd(tb testing.TB, clients int, opened bool) *crowd {
	c := &crowd{tb: tb, loop: newLoop(tb), next: make([]cluster.RequestID, clients)}
	for i := range clients {
		id := cluster.ClientID(fmt.Sprintf("~%d", i))
		if opened {
			id = c.loop.Do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: uint64(i + 1)}).Client
		}
		c.ids = append(c.ids, id)
	}
	return c
}

func (c *crowd) do(i int, q locktable.Request) locktable.Outcome {
	i %= len(c.ids)
	c.next[i]++
	q.Client, q.ID, q.LowWater = c.ids[i], c.next[i], c.next[i]
	out := c.loop.Do(&q)
	if out.Status != cluster.StatusOK {
		c.tb.Fatalf("%v %s: %v %s", q.Op, q.Lock, out.Status, out.Message)
	}
	return out
}

func lockName(i int) cluster.LockName {
	return cluster.LockName(fmt.Sprintf("tenant-%03d/job-%07d", i%1000, i))
}

func (c *crowd) acquire(n int) {
	for i := range n {
		q := locktable.Request{Op: locktable.OpAcquire, Lock: lockName(i), TTL: 30 * time.Second}
		c.tokens = append(c.tokens, c.do(i, q).Token)
	}
}

func (c *crowd) release() {
	for i, token := range c.tokens {
		c.do(i, locktable.Request{Op: locktable.OpRelease, Lock: lockName(i), Token: token})
	}
	c.tokens = nil
}

// heap is what is in use after a collection, in bytes.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}

func TestNothingGrowsForEver(t *testing.T) {
	const n = 50_000
	c := newCrowd(t, n, true)
	c.loop.Adopt() // a loop of the same age as the others
	opened := heap()
	for range 2 {
		c.acquire(n)
		c.release()
	}
	if leases, clients, waiters := c.loop.Counted(); leases != 0 || clients != n || waiters != 0 {
		t.Errorf("%d leases, %d clients and %d places are counted, of %d clients", leases, clients, waiters, n)
	}
	// Each client has the receipt of its last request.
	if grew := heap() - opened; grew > 200*n {
		t.Errorf("%d names came and went: %.0f bytes more for each", 2*n, grew/n)
	}
	c.loop.At(48 * time.Hour)
	c.next, c.ids = nil, nil
	if left := heap() - opened; left > -200*n {
		t.Errorf("%d clients were forgotten: %.0f bytes less for each", n, -left/n)
	}
	if leases, clients, _ := c.loop.Counted(); leases != 0 || clients != 0 || c.loop.Table().ClientCount() != 0 {
		t.Errorf("%d leases and %d clients are left", leases, clients)
	}
	runtime.KeepAlive(c)
}

func TestClientsInNoRecordLeaveNothingBehind(t *testing.T) {
	l := newLoop(t)
	for i := range 5000 {
		l.Hear(cluster.ClientID(fmt.Sprintf("c%d", i)))
	}
	if _, clients, _ := l.Counted(); clients != 0 || l.Table().ClientCount() != 0 {
		t.Errorf("%d clients are counted", clients)
	}
}

func TestLeasesExpireOnTimeAndAllOfThem(t *testing.T) {
	const n = 20_000
	c := newCrowd(t, 10, true)
	c.acquire(n)
	c.loop.At(20 * time.Second)
	c.loop.Hear(c.ids[3])
	c.loop.At(30*time.Second - time.Millisecond)
	if leases, _, _ := c.loop.Counted(); leases != n {
		t.Errorf("%d of %d leases live just before their deadline", leases, n)
	}
	rounds := c.loop.At(30*time.Second + 16*time.Millisecond)
	if leases, _, _ := c.loop.Counted(); leases != n/10 || rounds < n/1024 {
		t.Errorf("after %d rounds %d leases live, want those of the client that was heard: %d", rounds, leases, n/10)
	}
	c.loop.At(50*time.Second + 16*time.Millisecond)
	if leases, _, _ := c.loop.Counted(); leases != 0 || c.loop.Table().LockCount() != 0 {
		t.Errorf("%d leases and %d locks are left", leases, c.loop.Table().LockCount())
	}
}

// A place ends on time, however many leases end together with it.
func TestPlacesEndOnTimeInAMassExpiry(t *testing.T) {
	const n = 20_000
	c := newCrowd(t, 10, true)
	c.loop.Do(&locktable.Request{Op: locktable.OpAcquire, Client: "holder", ID: 1, Lock: "l", TTL: time.Hour})
	c.loop.Do(&locktable.Request{Op: locktable.OpAcquire, Client: "waiter", ID: 1, Lock: "l", TTL: time.Minute, Wait: 30 * time.Second})
	c.acquire(n)
	c.loop.Round(31 * time.Second)
	if _, _, waiters := c.loop.Counted(); waiters != 0 {
		t.Error("a place outlives its deadline while leases expire")
	}
	if leases, _, _ := c.loop.Counted(); leases < n/2 {
		t.Errorf("%d leases are left after one round", leases)
	}
}

func TestAdoptedLeasesCountAfresh(t *testing.T) {
	const n = 20_000
	c := newCrowd(t, 10, true)
	c.acquire(n)
	c.loop.Adopt()
	if leases, clients, _ := c.loop.Counted(); leases != n || clients != 10 {
		t.Errorf("%d leases and %d clients are counted, want %d and 10", leases, clients, n)
	}
	c.loop.At(30 * time.Second)
	if leases, _, _ := c.loop.Counted(); leases != 0 {
		t.Errorf("%d adopted leases outlive their TTL", leases)
	}
}

// A long queue is counted in steps, and goes on where it was, whoever leaves it meanwhile.
func TestAdoptedQueueIsCountedInSteps(t *testing.T) {
	const n = 10_000
	l := newLoop(t)
	ask := func(id cluster.RequestID) {
		l.Do(&locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: id, Lock: "l", TTL: time.Minute, Wait: time.Hour})
	}
	for id := range cluster.RequestID(n + 1) {
		ask(id + 1)
	}
	left := cluster.RequestID(0)
	l.Adopt(func() {
		if place := l.AdoptedTo(); place > 0 && left == 0 {
			left = place
			l.Do(&locktable.Request{Op: locktable.OpCancel, Client: "c", ID: n + 10, Target: left})
			ask(n + 11)
		}
	})
	if left == 0 || left > 5000 {
		t.Errorf("the first step went up to %d", left)
	}
	l.At(time.Second)
	if leases, clients, waiters := l.Counted(); leases != 1 || clients != 1 || waiters < n || waiters > n+1 {
		t.Errorf("%d leases, %d clients and %d waiters are counted", leases, clients, waiters)
	}
}

// A silent client is remembered for the whole retention, 24 h, however long the term
// lasts and whatever it waited for before.
func TestClientsAreRememberedLongEnough(t *testing.T) {
	const late = time.Minute // that a client may be looked at
	l := newLoop(t)
	asks := func(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, ttl time.Duration) *locktable.Request {
		return &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: id, Lock: lock, TTL: ttl, Wait: locktable.WaitForever}
	}
	l.Do(asks("holder", 1, "l", 26*time.Hour))
	waiting := asks("waiter", 1, "l", time.Minute)
	l.Wait(waiting)
	l.At(25 * time.Hour)
	opened := l.Do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 1}).Client
	for _, at := range []time.Duration{26*time.Hour + time.Second, 28 * time.Hour, 49*time.Hour - time.Second} {
		l.At(at)
		if l.Table().Presence(opened) == nil {
			t.Fatalf("at %v the client that was opened at 25 h is forgotten", at)
		}
	}
	l.At(49*time.Hour + late)
	if l.Table().Presence(opened) != nil {
		t.Error("a silent client is not forgotten")
	}
	l.At(50*time.Hour - time.Second)
	if out := l.Do(waiting); out.Status != cluster.StatusLeaseExpired {
		t.Errorf("repeat of what was granted at 26 h: %v", out.Status)
	}
	l.At(75 * time.Hour)
	if l.Table().ClientCount() != 0 {
		t.Error("a client is left")
	}
}

// BenchmarkHolder prints what one more held lock costs the primary, table, lease
// and timer together, before what the garbage collector needs on top.
func BenchmarkHolder(b *testing.B) {
	for _, test := range []struct {
		name           string
		locks, clients int
		opened         bool
	}{
		{"clients=1000", 1_000_000, 1000, true},
		{"clients=1000000", 1_000_000, 1_000_000, true},
		{"anonymous=1000000", 1_000_000, 1_000_000, false},
	} {
		b.Run(test.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				c := newCrowd(b, test.clients, test.opened)
				c.acquire(test.locks)
				c.tokens, c.next = nil, nil
				if test.clients == test.locks {
					c.ids = nil
				}
				b.ReportMetric((heap()-before)/float64(test.locks), "B/lock")
				runtime.KeepAlive(c)
			}
		})
	}
}

// BenchmarkExpire prints the time that a lease takes which ends together with a
// million others, BenchmarkAdopt what it takes to begin to count one.
func BenchmarkExpire(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		c := newCrowd(b, 1000, true)
		c.acquire(n)
		began := time.Now()
		rounds := c.loop.At(time.Minute)
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/n, "ns/lease")
		b.ReportMetric(float64(time.Since(began).Microseconds())/float64(rounds), "µs/round")
	}
}

func BenchmarkAdopt(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		c := newCrowd(b, 1000, true)
		c.acquire(n)
		took := c.loop.Adopt()
		b.ReportMetric(float64(took.Nanoseconds())/n, "ns/lease")
	}
}
