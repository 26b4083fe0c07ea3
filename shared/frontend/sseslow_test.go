// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

// pipes is a network without buffers: what nobody reads is not written. Its
// deadlines are in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.done); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// inVirtualTime serves a replica over pipes, in a bubble.
func inVirtualTime(t *testing.T, f func(t *testing.T, r *fedReplica, served *service.Service, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		r := newFedReplica(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		go func() { r.hub.Run(ctx); ended <- struct{}{} }() //nolint:errcheck // it is stopped
		go func() {
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				r.feed.Alive()
			}
			ended <- struct{}{}
		}()
		served := service.New(r, service.Options{})
		f(t, r, served, serveOverPipes(t, httpapi.New(served, httpapi.Options{})))
		stop()
		<-ended
		<-ended
	})
}

// serveOverPipes serves a front end until the end of the test.
func serveOverPipes(t *testing.T, front *httpapi.Handler) *pipes {
	s, p := front.Server(), &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	t.Cleanup(func() {
		s.Close()
		<-served // closed
	})
	return p
}

// ask sends a watch over a connection of its own and reads nothing.
func (p *pipes) ask(t *testing.T, query string) net.Conn {
	t.Helper()
	c, err := p.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET /v1/watch?%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query); err != nil {
		t.Fatal(err)
	}
	return c
}

// over is a client over these pipes.
func (p *pipes) over(x *eventSource) *eventSource {
	x.client.Transport = &http.Transport{DialContext: p.dial}
	return x
}

// Whoever reads nothing is cut when a write takes too long, and holds up nobody until then.
func TestClientThatNeverReadsIsCut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *fedReplica, served *service.Service, p *pipes) {
		r.grants("a")
		const deaf = 20
		var conns []net.Conn
		for i := range deaf {
			conns = append(conns, p.ask(t, []string{"after=0", "prefix=a"}[i%2]))
		}
		x := p.over(newEventSource(t, "http://h/v1/watch?after=0"))
		defer x.close()
		if got := x.words(1); got != " grant:a" {
			t.Errorf("told%s", got)
		}
		synctest.Wait()
		if n := served.Watchers(); n != deaf+1 {
			t.Errorf("%d watches", n)
		}
		began := time.Now()
		for i := range 8 {
			r.grants(fmt.Sprint("more/", i))
			x.words(1)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the others held it up for %v", took)
		}
		time.Sleep(httpapi.SSEWait + time.Millisecond)
		synctest.Wait()
		if n := served.Watchers(); n != 1 {
			t.Errorf("%d watches after %v", n, httpapi.SSEWait)
		}
		for _, c := range conns {
			c.SetReadDeadline(time.Now()) //nolint:errcheck // a pipe has deadlines
			if b, err := io.ReadAll(c); err != nil || len(b) > httpapi.SSEPiece {
				t.Errorf("the cut connection has %d bytes, %v", len(b), err)
			}
			c.Close()
		}
	})
}

// Whoever reads too slowly for what happens is told so, and may come back.
func TestClientThatReadsSlowlyIsToldTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *fedReplica, served *service.Service, p *pipes) {
		r.grants("first")
		c := p.ask(t, "after=0")
		defer c.Close()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		x := p.over(newEventSource(t, "http://h/v1/watch"))
		defer x.close()
		x.lines, x.cut = lines(resp.Body), func() {}
		x.words(1) // what follows comes while nobody reads
		const rounds, each = 10, 1000
		for i := range rounds {
			var names []string
			for j := range each {
				names = append(names, fmt.Sprintf("%d/%d", i, j))
			}
			r.grants(names...)
			r.hub.Flush()
			synctest.Wait()
		}
		last, n := uint64(1), 1
		for {
			m, b := x.event()
			if b.Kind == "grant" {
				if n++; b.LSN != uint64(n) {
					t.Fatalf("LSN %d is event %d", b.LSN, n)
				}
				last = b.LSN
				continue
			}
			if b.Kind != "end" || b.Status != "CANCELLED" || b.LSN != last || m.id != fmt.Sprint(last) || !strings.Contains(b.Message, "behind") {
				t.Errorf("after %d events: %s", n, m.data)
			}
			break
		}
		if x.opened > 0 || n < 2 || n > rounds*each {
			t.Errorf("the slow one got %d of %d events", n, rounds*each+1)
		}
		x.words(rounds*each + 1 - n)
	})
}

func TestHeartbeatsAndBookmarks(t *testing.T) {
	for _, x := range []struct {
		query string
		until time.Duration
		want  string
	}{
		{"", 31 * time.Second, "[0s: retry 10s: : alive 10s: id: 1 20s: : alive 20s: id: 2 30s: : alive 30s: id: 2]"},
		{"&bookmark=4s", 17 * time.Second, "[0s: retry 4s: event: bookmark 4s: id: 0 8s: event: bookmark 8s: id: 1 12s: event: bookmark 12s: id: 1 16s: event: bookmark 16s: id: 2]"},
		{"&bookmark=25s", 26 * time.Second, "[0s: retry 8.334s: : alive 8.334s: id: 1 16.668s: : alive 16.668s: id: 2 25.002s: event: bookmark 25.002s: id: 2]"},
	} {
		inVirtualTime(t, func(t *testing.T, r *fedReplica, served *service.Service, p *pipes) {
			began := time.Now()
			c := p.ask(t, "lock=l&after=0"+x.query)
			defer c.Close()
			var got []string
			done := make(chan struct{})
			go func() {
				defer close(done)
				for lines := bufio.NewScanner(c); lines.Scan(); {
					line := lines.Text()
					if n := strings.Index(line, "retry: "); n >= 0 {
						line = "retry"
					}
					for _, keep := range []string{"retry", ": alive", "id: ", "event: "} {
						if strings.HasPrefix(line, keep) {
							got = append(got, fmt.Sprintf("%v: %s", time.Since(began), line))
						}
					}
				}
			}()
			time.Sleep(5 * time.Second)
			r.grants("other")
			time.Sleep(10 * time.Second)
			r.grants("another")
			time.Sleep(x.until - time.Since(began))
			c.Close()
			<-done
			if fmt.Sprint(got) != x.want {
				t.Errorf("%s: got %v, want %v", x.query, got, x.want)
			}
		})
	}
}

// The end of a server ends its streams: it does not wait for them.
func TestStreamsEndWithTheHub(t *testing.T) {
	r := newFedReplica(t)
	ctx, stop := context.WithCancelCause(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.hub.Run(ctx) }()
	x := newEventSource(t, serveHTTP(t, r).url+"/v1/watch?after=0")
	r.grants("a")
	x.words(1)
	stop(errors.New("enough"))
	<-ran
	if _, e := x.event(); e.Kind != "end" || e.Status != "SECONDARY_MODE" || !strings.Contains(e.Message, "stops") {
		t.Errorf("told %+v", e)
	}
}
