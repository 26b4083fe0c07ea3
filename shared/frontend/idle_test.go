// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

// stream reads an answer over HTTP/2 until it has a line that begins so.
func (p *pipes) stream(t *testing.T, path string) (until func(prefix string)) {
	tr := &http.Transport{DialContext: p.dial, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(q)
	if err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func(prefix string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), prefix) {
				return
			}
		}
		t.Errorf("the stream has ended before %q: %v", prefix, lines.Err())
	}
}

// A stream that has nothing to tell for long stays open, also over HTTP/2, which ends one
// whose deadline for writing passes.
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
