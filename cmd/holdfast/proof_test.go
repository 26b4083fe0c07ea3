// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

// TestProofs: what the servers of a cluster sign for the library, for commands and over HTTP opens a guard that knows their keys,
// from the volume and from a server; what anybody makes up does not, and locks nobody out.
func TestProofs(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	g, err := fencing.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // the test is over
	c, err := clientlib.New(clientlib.Options{Endpoints: strings.Split(w.endpoints, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	lock, err := c.Acquire(t.Context(), "config/web", clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := lock.Proof(t.Context())
	if err != nil || own.Remaining <= 0 || own.Shared {
		t.Fatal(own, err)
	}
	token := fmt.Sprint(lock.Token())
	texts := []string{own.Text, strings.TrimSpace(w.do("", "proof", "config/web", "--token", token))}
	for i := range w.servers { // a replica has the primary sign
		code, body := w.post(i, "/v1/prove", `{"lock":"config/web","token":`+token+`}`)
		if code != 200 {
			t.Fatalf("server %d answers %d %v", i+1, code, body)
		}
		texts = append(texts, body["proof"].(string))
	}
	done := 0
	f := func(p fencing.Proof) error {
		if done++; p.Token != lock.Token() || p.Identity != "" || p.Epoch != uint64(lock.Epoch()) {
			t.Errorf("the proof says %+v", p)
		}
		return nil
	}
	for _, source := range []string{w.dir, filepath.Join(w.dir, "keys.json"), "http://" + w.servers[1].Client + "/v1/keys"} {
		keys, err := fencing.OpenKeys(source, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.DoProof(keys, "config/web", "9000000000000000000", f); !errors.Is(err, fencing.ErrForged) {
			t.Errorf("a token that is made up: %v", err)
		}
		if err := g.DoProof(keys, "config/db", own.Text, f); !errors.Is(err, fencing.ErrOtherLock) || g.Seen("config/db") != 0 {
			t.Errorf("the key of another lock: %v", err)
		}
		for _, text := range texts {
			if err := g.DoProof(keys, "config/web", text, f); err != nil {
				t.Errorf("by %s: %v", source, err)
			}
		}
	}
	if done != 3*len(texts) || g.Seen("config/web") != lock.Token() {
		t.Errorf("done %d times, %d was seen", done, g.Seen("config/web"))
	}
	if r := w.try(texts[0], "proof", "check", "-", "--lock", "config/web", "--keys", w.dir); r.code != 0 || !strings.Contains(r.out, "under token "+token+",") {
		t.Errorf("got %+v", r)
	}
	if r := w.try("", "proof", "config/web", "--token", "9000000000000000000"); r.code != 3 || r.out != "" {
		t.Errorf("a made-up token is proved: %+v", r)
	}
}
