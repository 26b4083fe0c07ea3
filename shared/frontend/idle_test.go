// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

// stream reads an answer until it has a line that begins so.
func (p *pipes) stream(t *testing.T, path string) (until func(prefix string)) {
	tr := &http.Transport{DialContext: p.dial}
	t.Cleanup(tr.CloseIdleConnections)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := make(chan string, 1000)
	go func() { // who reads late is cut
		defer close(lines)
		for all := bufio.NewScanner(resp.Body); all.Scan(); {
			lines <- all.Text()
		}
	}()
	return func(prefix string) {
		t.Helper()
		for line := range lines {
			if strings.HasPrefix(line, prefix) {
				return
			}
		}
		t.Errorf("the stream has ended before %q", prefix)
	}
}

// A stream that has nothing to tell for long stays open: the deadline for what was written last is over then.
func TestWatchThatIsIdleStaysOpen(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *fedReplica, _ *service.Service, p *pipes) {
		until := p.stream(t, "/v1/watch?after=0&bookmark=1h")
		time.Sleep(10*httpapi.SSEWait + time.Second)
		r.grants("a")
		until("event: grant")
	})
}

func TestFollowThatIsIdleStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPrimary(t)
		w := newWriter(t, b)
		w.append("f", "one\n")
		at := serveOverPipes(t, httpapi.New(service.New(b, service.Options{}), httpapi.Options{}))
		elsewhere := &backend{self: 2, members: b.members, term: 1, epoch: 1}
		passing := serveOverPipes(t, httpapi.New(service.New(elsewhere, service.Options{}), httpapi.Options{Transport: &http.Transport{DialContext: at.dial}}))
		for i, p := range []*pipes{at, passing} {
			until := p.stream(t, "/v1/files/f?follow=true&offset=0")
			until("one")
			time.Sleep(31 * time.Second) // longer than a piece may take
			line := fmt.Sprint("line ", i)
			w.append("f", line+"\n")
			until(line)
		}
	})
}

// Who begins a request and does not end it is cut.
func TestHeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveOverPipes(t, httpapi.New(service.New(startPrimary(t), service.Options{}), httpapi.Options{}))
		c, err := p.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // a pipe
		if _, err := io.WriteString(c, "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := io.Copy(io.Discard, c); err != nil || time.Since(begun) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
