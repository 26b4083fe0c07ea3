// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/why"
)

// These tests have a quota of one request a second, so what counts twice is refused. Nothing is held, since that would pass with time.

func oneASecond(t *testing.T) *doors {
	d := newDoorsThat(t, service.Options{MaxHold: -1})
	d.quota(map[string]any{"requests_per_s": int64(1)})
	return d
}

// takingOver becomes primary after some requests.
type takingOver struct {
	*scripted
	asked int
}

func (b *takingOver) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if b.asked++; b.asked < 5 {
		return locktable.Outcome{Status: cluster.StatusServerFencing}, nil
	}
	return b.scripted.Do(ctx, q)
}

// TestTakeoverCountsARequestOnce, however often the server tries it until it is primary.
func TestTakeoverCountsARequestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCredentials(t)
		d := &doors{t: t, g: g}
		d.quota(map[string]any{"requests_per_s": int64(1)})
		b := &takingOver{scripted: answering(locktable.Outcome{Status: cluster.StatusOK, Token: 7})}
		b.self = b.term
		p := serveOverPipes(t, httpapi.New(service.New(b, service.Options{Authenticator: g, MaxHold: -1}), httpapi.Options{Log: zerolog.Nop()}))
		tr := &http.Transport{DialContext: p.dial}
		defer tr.CloseIdleConnections()
		began := time.Now()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/v1/acquire", strings.NewReader(`{"lock":"l","ttl":"30s","client_id":"c1","request_id":5}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice")
		resp, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // it is not read
		if took := time.Since(began); resp.StatusCode != 200 || b.asked != 5 || took > 900*time.Millisecond {
			t.Errorf("%d after %d tries in %v", resp.StatusCode, b.asked, took)
		}
	})
}

// TestWhyCountsOnce: it reads the lock and its history.
func TestWhyCountsOnce(t *testing.T) {
	d := oneASecond(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.http.URL+"/v1/why/l", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b why.Body
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil || b.Status != "OK" || b.Message != "" || b.Missing {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestLineCountsOnce though a LOCK that waits makes two requests.
func TestLineCountsOnce(t *testing.T) {
	d := oneASecond(t)
	executed(t, d.b, acquire("holder", 1))
	say := d.lines()
	if got := say("AUTH,alice"); got != "SUCCESS" {
		t.Fatal(got)
	}
	if got := say("LOCK,l,me,1m,200ms"); got != "TIMEOUT" {
		t.Error(got)
	}
	if got := say("LOCK,l,me,1m"); got != "LIMITED" {
		t.Errorf("another line: %s", got)
	}
}

// TestForwardCountsWhereItCameFrom: the primary counts nothing of what a server passes on.
func TestForwardCountsWhereItCameFrom(t *testing.T) {
	d := oneASecond(t)
	passed := *d.g.callers["alice"]
	passed.PassedOn = true
	for range 3 {
		d.n++
		q := acquire("c", d.n)
		ctx := asCaller(t, &passed)
		if a, err := d.s.Execute(ctx, q); err != nil || cluster.Status(a.GetStatus()) == cluster.StatusLimited {
			t.Errorf("passed on: %v, %v", a, err)
		}
	}
	if a, err := d.s.Execute(asCaller(t, d.g.callers["alice"]), acquire("c", 9)); err != nil || cluster.Status(a.GetStatus()) == cluster.StatusLimited {
		t.Errorf("asked here: %v, %v", a, err)
	}
}

func asCaller(t *testing.T, c *access.Caller) context.Context {
	return serving.WithCaller(t.Context(), c)
}
