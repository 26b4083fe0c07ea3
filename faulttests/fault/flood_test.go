// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// unfinished returns the first bytes of connections that never say the rest.
func unfinished() []string {
	return []string{
		"",
		"\x16\x03\x01\x02\x00\x01\x00", // TLS
		"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"LOCK,a",       // a line
		"\x00\x00\x00", // nothing that is known
	}
}

// flood keeps connections to addresses that say the first bytes of a protocol and nothing more, so many to each address, and makes
// another one where a server ends one, until stop is called. It counts those that it made.
func flood(addresses []string, each int) (stop func() (made int)) {
	over := make(chan struct{})
	var made atomic.Int64
	var all sync.WaitGroup
	words := unfinished()
	for _, a := range addresses {
		for i := range each {
			all.Go(func() {
				again := time.NewTicker(20 * time.Millisecond)
				defer again.Stop()
				for {
					if keepOpen(a, words[i%len(words)], over) {
						made.Add(1)
					}
					select {
					case <-over:
						return
					case <-again.C:
					}
				}
			})
		}
	}
	return func() int {
		close(over)
		all.Wait()
		return int(made.Load())
	}
}

// keepOpen makes a connection, says something on it, and keeps it until the server ends it or over is closed. It reports whether it was made.
func keepOpen(address, say string, over <-chan struct{}) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, c); close(ended) }() //nolint:errcheck // until it ends
	io.WriteString(c, say)                               //nolint:errcheck // it may have ended
	select {
	case <-ended:
	case <-over:
	}
	c.Close() //nolint:errcheck // it was only to be there
	<-ended
	return true
}

// TestFlooded has many connections that never say anything whole, to every port of every server, while the primary is killed and started
// again several times. The others take over, one that starts again is heard, and nothing that a client holds is lost.
func TestFlooded(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	client, err := clientlib.New(clientlib.Options{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the end of the test
	held, err := client.Acquire(t.Context(), "held", clientlib.AcquireOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	took := func(rounds int) (all []time.Duration) {
		for range rounds {
			p := c.AwaitPrimary(cluster.Patience)
			c.AwaitReplicas(cluster.Patience)
			p.Kill()
			began := time.Now()
			l, err := client.Acquire(t.Context(), "short", clientlib.AcquireOptions{TTL: time.Minute, Wait: cluster.Patience})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, time.Since(began))
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			p.Start()
		}
		slices.Sort(all)
		return all
	}
	quiet := took(5)
	var addresses []string
	for _, s := range c.Servers() {
		addresses = append(addresses, s.Member.Client, s.Member.Peer)
	}
	stop := flood(addresses, 200)
	flooded := took(5)
	made := stop()
	t.Logf("without: %v; with %d connections to %d ports at a time, %d in all: %v", quiet, 200*len(addresses), len(addresses), made, flooded)
	if err := context.Cause(held.Context()); err != nil {
		t.Errorf("the lock that was held all the time: %v", err)
	}
}
