// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

// paused is the way to servers of which one takes requests and answers none.
type paused struct{ host string }

func (p paused) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == p.host {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("the file\n")), Request: r}, nil
}

// A read that is passed on to a paused primary is answered by the next one, or refused in time.
func TestAPausedPrimaryHoldsNoRead(t *testing.T) {
	for _, x := range []struct {
		elect bool
		code  int
		body  string
	}{{true, 200, "the file\n"}, {false, 503, "SECONDARY_MODE"}} {
		synctest.Test(t, func(t *testing.T) {
			b := &backend{self: 2, members: primarytest.Members(), term: 1, epoch: 1}
			first, _ := b.members.Find(1)
			p := serveOverPipes(t, httpapi.New(service.New(b, service.Options{}), httpapi.Options{Transport: paused{first.Client}}))
			tr := &http.Transport{DialContext: p.dial}
			defer tr.CloseIdleConnections()
			if x.elect {
				time.AfterFunc(5*time.Second, func() { b.elect(3, 2) })
			}
			resp, err := (&http.Client{Transport: tr}).Get("http://h/v1/files/f")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != x.code || !strings.Contains(string(body), x.body) {
				t.Errorf("%d %s, %v; want %d %s", resp.StatusCode, body, err, x.code, x.body)
			}
		})
	}
}

// unable is the way to a primary that says after a while that it cannot.
type unable struct{}

func (unable) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(5 * time.Second):
	case <-r.Context().Done():
	}
	return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

// TestAReadThatCannotBeAnsweredEnds though each attempt takes its time.
func TestAReadThatCannotBeAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{self: 2, members: primarytest.Members(), term: 1, epoch: 1}
		p := serveOverPipes(t, httpapi.New(service.New(b, service.Options{}), httpapi.Options{Transport: unable{}}))
		tr := &http.Transport{DialContext: p.dial}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("http://h/v1/files/f")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 503 {
			t.Errorf("got %d", resp.StatusCode)
		}
	})
}

// broken is the way to a primary that dies in the middle of an answer of no told length.
type broken struct{}

func (broken) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader("half of "), iotest.ErrReader(errors.New("connection reset")))
	return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(body), Request: r}, nil
}

// Nobody takes the part for the whole.
func TestWhatBreaksOffIsBrokenOff(t *testing.T) {
	h := serveHTTPWith(t, follower("127.0.0.1:1"), httpapi.Options{Transport: broken{}})
	resp, err := http.Get(h.url + "/v1/files/f?follow=true")
	if err != nil {
		return // as good
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q came as the whole", body)
	}
}
