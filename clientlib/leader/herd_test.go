// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
)

// counter counts the messages that a server sends, by connection.
type counter struct {
	mu    sync.Mutex
	conns int
	sent  map[int]int
}

type connKey struct{}

func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
	return context.WithValue(ctx, connKey{}, c.conns)
}

func (c *counter) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent[ctx.Value(connKey{}).(int)]++
	}
}

func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                     {}

// since is what was sent to whom since the last time it was asked.
func (c *counter) since() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.sent)
	clear(c.sent)
	return all
}

// TestNoHerd lets a thousand candidates in a hundred processes campaign. When the
// leader goes, one of them is woken, and the service sends something to these two only:
// that the lock is released, the grant, and what opens the session of the new leader.
func TestNoHerd(t *testing.T) {
	const processes, candidates, changes = 100, 1000, 20
	synctest.Test(t, func(t *testing.T) {
		count := &counter{sent: map[int]int{}}
		w := newWorld(grpc.StatsHandler(count))
		defer w.end()
		lead := make(chan *leader.Leadership, candidates)
		var all []*leader.Election
		for range processes {
			all = append(all, w.process(clientlib.Options{}).election(leader.Options{TTL: 10 * time.Minute}))
		}
		for i := range candidates {
			e := all[i%processes]
			go func() {
				if l, err := e.Campaign(context.Background(), ""); err == nil {
					lead <- l
				}
			}()
		}
		now := <-lead
		time.Sleep(time.Second) // until all stand in line
		if info, err := w.clients[0].c.Get(t.Context(), "svc"); err != nil || info.QueueLength != candidates-1 {
			t.Fatalf("%d wait, %v", info.QueueLength, err)
		}
		for range changes {
			if err := now.Proclaim(context.Background(), "here"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			count.since()
			if err := now.Resign(context.Background()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			sent, total := count.since(), 0
			for _, n := range sent {
				total += n
			}
			if len(sent) > 2 || total > 8 || len(lead) != 1 {
				t.Fatalf("messages by connection %v, %d candidates were woken", sent, len(lead))
			}
			next := <-lead
			if next.Token() <= now.Token() {
				t.Fatalf("token %d comes after %d", next.Token(), now.Token())
			}
			now = next
		}
	})
}
