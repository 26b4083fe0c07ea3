// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestGarbageOnAllPorts sends what is no request to every port, and hangs up or does not.
func TestGarbageOnAllPorts(t *testing.T) {
	needFaults(t)
	random := rand.New(rand.NewPCG(*faultSeed, 7))
	noise := make([]byte, 256<<10)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	during(t, func(b *battle) {
		_, epoch := b.awaitTerm(t, 0)
		pids := processes(b.c)
		for _, s := range b.c.Servers() {
			for _, addr := range []string{s.Member.Client, s.Member.Peer} {
				for name, data := range map[string][]byte{
					"nothing": {}, "noise": noise, "one byte": {0xff}, "zeros": make([]byte, 1<<20),
					"an endless line":    append([]byte("GET /"), bytes.Repeat([]byte("a"), 4<<20)...),
					"HTTP/2 and garbage": append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noise...),
					"a huge frame":       append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
					"a huge body":        []byte("POST /v1/append?lock=a&file=b&token=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc"),
					"TLS":                []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
				} {
					if err := throw(t, addr, data); err != nil {
						t.Errorf("%s at %s: %v", name, addr, err)
					}
				}
			}
		}
		if now, at := b.awaitTerm(t, 0); at != epoch {
			t.Errorf("garbage on the ports ended the term of epoch %d: now it is %d, of server %d", epoch, at, now.Member.ID)
		}
		unharmed(t, b.c, pids)
	})
}

// throw sends data to a port. Some connections it leaves open until the test ends.
func throw(t *testing.T, addr string, data []byte) error {
	conn, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return err
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the other side may have closed it
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, _ = conn.Write(data) // the other side may hang up before it has read all
	if len(data)%2 == 0 {
		return conn.Close()
	}
	return nil
}

// TestSilentConnections: a connection that says nothing keeps no server from
// ending in good order, and soon.
func TestSilentConnections(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	for _, s := range c.Servers() {
		for _, addr := range []string{s.Member.Client, s.Member.Peer} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the other side has closed it
		}
	}
	began := time.Now()
	c.TermAll()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("three servers took %v to end", took)
	} else {
		t.Logf("three servers took %v to end", took.Round(time.Millisecond))
	}
}

func processes(c *cluster.Cluster) (pids []int) {
	for _, s := range c.Servers() {
		pids = append(pids, s.PID())
	}
	return pids
}

// muchMemory is more than a server needs for what these tests ask of it.
const muchMemory = 512 << 20

// unharmed wants the same processes, in bounded memory.
func unharmed(t *testing.T, c *cluster.Cluster, pids []int) {
	t.Helper()
	for i, s := range c.Servers() {
		if !s.Running() || s.PID() != pids[i] {
			t.Errorf("server %d ended:\n%s", s.Member.ID, s.Tail(10))
			continue
		}
		n, err := s.ResidentBytes()
		if err != nil || n > muchMemory {
			t.Errorf("server %d uses %d MiB of memory (%v)", s.Member.ID, n>>20, err)
		}
	}
}

// TestOversizedRequests asks for too much, in every way.
func TestOversizedRequests(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		p, epoch := b.awaitTerm(t, 0)
		pids := processes(b.c)
		oversizedGRPC(t, dial(t, p))
		for _, s := range b.c.Servers() {
			oversizedHTTP(t, s)
		}
		if _, at := b.awaitTerm(t, 0); at != epoch {
			t.Errorf("oversized requests ended the term of epoch %d", epoch)
		}
		unharmed(t, b.c, pids)
	})
}

func oversizedGRPC(t *testing.T, stub pb.LockServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	wait := int64(0)
	held, err := stub.Acquire(ctx, &pb.AcquireRequest{ClientId: "big", RequestId: 1, Lock: "big", TtlMs: 60_000, WaitMs: &wait})
	if err != nil || held.Status != pb.Status_STATUS_OK {
		t.Fatalf("acquire: %v %v", held, err)
	}
	for i, size := range []int{1<<20 + 1, 3 << 20, 20 << 20} {
		a, err := stub.FileAppend(ctx, &pb.FileAppendRequest{
			ClientId: "big", RequestId: uint64(2 + i), Lock: "big", Token: held.Token, File: "big.txt", Data: make([]byte, size),
		})
		if err == nil && a.Status != pb.Status_STATUS_TOO_LARGE {
			t.Errorf("an append of %d bytes: %v", size, a)
		}
	}
	a, err := stub.FileAppend(ctx, &pb.FileAppendRequest{
		ClientId: "big", RequestId: 10, Lock: "big", Token: held.Token, File: "big.txt", Data: bytes.Repeat([]byte("x"), 1<<20),
	})
	if err != nil || a.Status != pb.Status_STATUS_OK {
		t.Errorf("an append of the largest size: %v %v", a, err)
	}
	for what, q := range map[string]*pb.AcquireRequest{
		"a long name":      {Lock: strings.Repeat("a", 1<<20), TtlMs: 5000},
		"a long client ID": {Lock: "a", ClientId: strings.Repeat("c", 1<<20), RequestId: 1, TtlMs: 5000},
		"a huge TTL":       {Lock: "a", TtlMs: 1 << 62},
		"a negative TTL":   {Lock: "a", TtlMs: -1},
		"a bad name":       {Lock: "../../etc/passwd", TtlMs: 5000},
		"a long command":   {Lock: "a", TtlMs: 5000, Holder: &pb.Holder{Command: strings.Repeat("x", 1<<20)}},
	} {
		if a, err := stub.Acquire(ctx, q); err == nil && a.Status != pb.Status_STATUS_INVALID_ARGUMENT {
			t.Errorf("%s: %v", what, a.Status)
		}
	}
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x", "a//b", ".", "", strings.Repeat("n", 600), "a\x00b", "CLUSTER/../../x"} {
		a, err := stub.FileAppend(ctx, &pb.FileAppendRequest{Lock: "big", Token: held.Token, File: name, Data: []byte("x")})
		if err == nil && a.Status != pb.Status_STATUS_INVALID_ARGUMENT {
			t.Errorf("append to %.40q: %v", name, a)
		}
	}
}

func oversizedHTTP(t *testing.T, s *cluster.Server) {
	t.Helper()
	for what, q := range map[string]struct {
		path string
		size int64
	}{
		"an append of 1 GiB":       {"/v1/append?lock=big&token=1&file=big.txt", 1 << 30},
		"an append of 1 MiB and 1": {"/v1/append?lock=big&token=1&file=big.txt", 1<<20 + 1},
		"a body of 1 GiB":          {"/v1/acquire", 1 << 30},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Member.Client+q.path, io.LimitReader(zeros{}, q.size))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = q.size
		resp, err := http.DefaultClient.Do(r)
		if err == nil { // else the server hung up in the middle, which is right too
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only shown
			if resp.StatusCode < 400 {
				t.Errorf("server %d: %s: %s", s.Member.ID, what, resp.Status)
			}
			if !bytes.Contains(body, []byte("TOO_LARGE")) && !bytes.Contains(body, []byte("INVALID_ARGUMENT")) {
				t.Errorf("server %d: %s: %s %s", s.Member.ID, what, resp.Status, body)
			}
			resp.Body.Close() //nolint:errcheck // it was only read
		}
		cancel()
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
