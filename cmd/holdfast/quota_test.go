// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// secured is a world with access rules.
type secured struct {
	*world
	t *testing.T
}

// as asks a server over HTTP with a key, and returns the code, and the status of the answer.
func (w *secured) as(key string, server int, path, body string) (int, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.servers[server].Client+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	var b struct{ Status, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil {
		w.t.Error(err)
	}
	return resp.StatusCode, b.Status + ": " + b.Message
}

// quotas publishes the rules in force with these quotas instead of those that they have.
func (w *secured) quotas(text string) {
	w.t.Helper()
	const mark = "# quotas of the test\n"
	rules, _, _ := strings.Cut(w.do("", "access", "show", "--volume", w.dir), mark)
	w.do(rules+mark+text, "access", "set", "-", "--volume", w.dir)
}

// TestKeyIsUsedAtOnce: at every server, over HTTP, which a replica passes on to the primary.
func TestKeyIsUsedAtOnce(t *testing.T) {
	w := &secured{startDev(t, "--secure"), t}
	w.primary(0)
	for i := range 9 {
		key := strings.TrimSpace(w.do("", "key", "create", fmt.Sprint("k", i), "--volume", w.dir))
		if code, said := w.as(key, i%3, "/v1/acquire", fmt.Sprintf(`{"lock":"l%d","ttl":"1m"}`, i)); code != 200 {
			t.Errorf("key %d at server %d: %d %s", i, i%3+1, code, said)
		}
	}
}

// TestOneFloodsAndOthersAreServed: an identity that asks a hundred times as fast as it may gets its rate, and no more. Quotas change while
// servers run.
func TestOneFloodsAndOthersAreServed(t *testing.T) {
	w := &secured{startDev(t, "--secure"), t}
	primary, _ := w.primary(0)
	at := int(primary) - 1
	flood := strings.TrimSpace(w.do("", "key", "create", "flood", "--volume", w.dir))
	quiet := strings.TrimSpace(w.do("", "key", "create", "quiet", "--volume", w.dir))
	w.quotas("[[quota]]\nwho = [\"service:flood\"]\nlimits = { requests_per_s = 10, locks = 10000 }\n")
	await(t, "the quota to be in force", func() bool {
		var limited atomic.Bool
		var all sync.WaitGroup
		for i := range 30 { // what waits for a second is refused
			all.Go(func() {
				if code, _ := w.as(flood, at, "/v1/acquire", fmt.Sprintf(`{"lock":"x%d","ttl":"1m"}`, i)); code == 429 {
					limited.Store(true)
				}
			})
		}
		all.Wait()
		return limited.Load()
	})
	var served, refused, other atomic.Int64
	var slowest time.Duration
	var all sync.WaitGroup
	began := time.Now()
	for range 40 { // more than may wait for their turn
		all.Go(func() {
			for time.Since(began) < 3*time.Second {
				switch code, said := w.as(flood, at, "/v1/acquire", `{"lock":"flooded","ttl":"1s"}`); code {
				case 200, 423:
					served.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("%d %s", code, said)
				}
			}
		})
	}
	all.Go(func() {
		for time.Since(began) < 3*time.Second {
			asked := time.Now()
			if code, said := w.as(quiet, at, "/v1/acquire", fmt.Sprintf(`{"lock":"quiet/%d","ttl":"1m"}`, other.Add(1))); code != 200 {
				t.Errorf("another identity: %d %s", code, said)
			}
			slowest = max(slowest, time.Since(asked))
		}
	})
	all.Wait()
	t.Logf("in 3 s %d of the flood were served and %d refused; %d of another one, the slowest in %v", served.Load(), refused.Load(), other.Load(), slowest)
	// The burst of one second, what three seconds bring, and some for a slow machine.
	if n := served.Load(); n < 10 || n > 60 || refused.Load() < 10*n {
		t.Errorf("%d were served, and %d refused", n, refused.Load())
	}
	if other.Load() < 20 || slowest > 2*time.Second {
		t.Errorf("another identity got %d answers, the slowest in %v", other.Load(), slowest)
	}
	w.quotas("")
	await(t, "the quota to be lifted", func() bool {
		began := time.Now()
		for i := range 30 {
			if code, _ := w.as(flood, at, "/v1/acquire", fmt.Sprintf(`{"lock":"y%d","ttl":"1s"}`, i)); code == 429 {
				return false
			}
		}
		return time.Since(began) < time.Second // or they were held back
	})
}

// TestCommandsTellTheQuota: who may have what, what is refused, and with which exit code. A command that is only too fast waits.
func TestCommandsTellTheQuota(t *testing.T) {
	w := &secured{startDev(t, "--secure"), t}
	w.primary(0)
	key := strings.TrimSpace(w.do("", "key", "create", "ci", "--volume", w.dir))
	w.endpoints = strings.TrimSpace(w.do("", "join", "--volume", w.dir))
	w.quotas("[[quota]]\nwho = [\"service:ci\"]\nlimits = { locks = 2, requests_per_s = 3 }\n[[quota]]\nprefix = \"astro/\"\nlimits = { file_bytes = \"1KB\" }\n")
	t.Setenv("HOLDFAST_KEY", key)
	await(t, "the quota to be in force", func() bool { return strings.Contains(w.do("", "whoami"), "at most locks = 2") })
	if out := w.do("", "can", "append", "astro/x", "--file", "astro/x"); !strings.Contains(out, `at most file_bytes = 1000 for all callers together below "astro/"`) {
		t.Error(out)
	}
	w.do("", "acquire", "a")
	w.do("", "acquire", "b")
	if r := w.try("", "acquire", "c"); r.code != 5 || !strings.Contains(r.errs, "service:ci holds 2 locks") || !strings.Contains(r.errs, "holdfast whoami") {
		t.Errorf("%+v", r)
	}
	if r := w.try("", "acquire", "c", "-o", "json"); r.code != 5 || !strings.Contains(r.out+r.errs, `"LIMITED"`) {
		t.Errorf("%+v", r)
	}
	for range 8 {
		w.do("", "show", "a")
	}
}
