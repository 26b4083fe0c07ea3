// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// besieged is a cluster whose rules give services a name space each, with two of them.
type besieged struct {
	*cluster.Cluster
	t        *testing.T
	url      string // of the primary
	join     string
	ci, evil string // keys
}

func besiege(t *testing.T) *besieged {
	b := &besieged{Cluster: cluster.Start(t, options()), t: t}
	b.AwaitReplicas(cluster.Patience)
	b.run("access", "set", "--policy", "strict")
	b.ci, b.evil = b.run("key", "create", "ci"), b.run("key", "create", "evil")
	b.join = b.run("join")
	b.url = "http://" + b.AwaitPrimary(cluster.Patience).Member.Client
	for _, s := range b.Servers() { // each of them has seen both keys
		cluster.Await(t, cluster.Patience, "the rules to be in force", func() bool {
			code, _ := b.ask("http://"+s.Member.Client, b.evil, "GET", "/v1/whoami", "")
			open, _ := b.ask("http://"+s.Member.Client, "", "GET", "/v1/locks", "")
			return code == http.StatusOK && open == http.StatusUnauthorized
		})
	}
	return b
}

// run executes a command on the volume and returns the first line that it prints.
func (b *besieged) run(args ...string) string {
	b.t.Helper()
	out, err := b.Run(append(args, "--volume", b.Dir())...)
	if err != nil {
		b.t.Fatalf("holdfast %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(strings.SplitN(out, "\n", 2)[0])
}

// ask asks a server over HTTP with a credential, and returns the code and the body of the answer.
func (b *besieged) ask(url, credential, method, path, body string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestForgedCredentials shows servers credentials that they must not take, and wants each refused with a word that says
// why, at every server, and no credential in a log.
func TestForgedCredentials(t *testing.T) {
	needFaults(t)
	b := besiege(t)
	other := filepath.Join(t.TempDir(), "other")
	if out, err := b.Run("init", "--volume", other, "--server", "1=127.0.0.1:1", "--server", "2=127.0.0.1:4", "--server", "3=127.0.0.1:7"); err != nil {
		t.Fatal(out, err)
	}
	foreign, err := auth.OperatorTicket(other, "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own, err := auth.OperatorTicket(b.Dir(), "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(strings.TrimPrefix(own.Text, "hft_"), ".")
	encode := func(v any) string {
		j, _ := json.Marshal(v) // cannot fail
		return base64.RawURLEncoding.EncodeToString(j)
	}
	asOperator := encode(map[string]any{"iss": own.Cluster.String(), "sub": "user:root", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "op": true})
	flip := func(s string) string {
		last := byte('A')
		if s[len(s)-2] == last {
			last = 'B'
		}
		return s[:len(s)-2] + string(last) + s[len(s)-1:]
	}
	for name, x := range map[string]struct{ credential, word string }{
		"another cluster's ticket":  {foreign.Text, "not signed by this cluster"},
		"alg none":                  {"hft_" + encode(map[string]any{"alg": "none", "typ": "holdfast-ticket"}) + "." + asOperator + ".", "not signed by this cluster"},
		"no signature":              {"hft_" + part[0] + "." + part[1] + ".", "not signed by this cluster"},
		"claims of its own":         {"hft_" + part[0] + "." + asOperator + "." + part[2], "not signed by this cluster"},
		"a signature with a flip":   {flip(own.Text), "not signed by this cluster"},
		"a key with a flip":         {flip(b.ci), "not in the rules"},
		"a key that nobody created": {"hfk_" + strings.Repeat("a", 43), "not in the rules"},
		"a word":                    {"password", "neither a key"},
	} {
		for _, s := range b.Servers() {
			for _, path := range []string{"GET /v1/whoami", "GET /v1/locks", "POST /v1/acquire", "POST /v1/handover"} {
				method, path, _ := strings.Cut(path, " ")
				code, said := b.ask("http://"+s.Member.Client, x.credential, method, path, `{"lock":"service/ci/a","ttl":"30s","to":2}`)
				if code != http.StatusUnauthorized || !strings.Contains(said, x.word) {
					t.Errorf("%s at server %d: %s: %d %s", name, s.Member.ID, path, code, said)
				}
			}
			if l := s.Log(); strings.Contains(l, x.credential) || strings.Contains(l, b.ci) || strings.Contains(l, own.Text) {
				t.Errorf("the log of server %d contains a credential", s.Member.ID)
			}
		}
	}
	// A client that is to find another authority than its join string says.
	theirs, err := b.Run("join", "--volume", other)
	if err != nil {
		t.Fatal(theirs, err)
	}
	_, pin, _ := strings.Cut(strings.TrimSpace(theirs), "pin=")
	hosts, _, _ := strings.Cut(b.join, "pin=")
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{hosts + "pin=" + strings.Fields(pin)[0]}, Budget: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the end of the test
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "pin") {
		t.Errorf("with the pin of another cluster: %v", err)
	}
}

// TestStolenTokens has one service try everything with the token of another one, and with tokens that it made up. The
// other one keeps its lock, and its file has what it appended.
func TestStolenTokens(t *testing.T) {
	needFaults(t)
	b := besiege(t)
	lock := `"lock":"service/ci/a"`
	code, said := b.ask(b.url, b.ci, "POST", "/v1/acquire", `{`+lock+`,"ttl":"1m","client_id":"ci","request_id":1}`)
	var a struct {
		Token uint64 `json:"token"`
	}
	if err := json.Unmarshal([]byte(said), &a); err != nil || code != http.StatusOK {
		t.Fatal(code, said, err)
	}
	if code, said := b.ask(b.url, b.ci, "POST", fmt.Sprintf("/v1/append?lock=service/ci/a&file=service/ci/a&token=%d&client_id=ci&request_id=2", a.Token), "mine\n"); code != http.StatusOK {
		t.Fatal(code, said)
	}
	ids := func(n, i int) string { return fmt.Sprintf(`,"client_id":"evil","request_id":%d`, 10*n+i) }
	n := 0
	for _, s := range b.Servers() { // replicas pass on whose request it is
		url := "http://" + s.Member.Client
		for _, token := range []uint64{a.Token, a.Token + 1, 9000000000000000000} {
			n++
			for path, more := range map[string]string{
				"renew": "", "release": ids(n, 1), "extend": ids(n, 2) + `,"ttl":"1h"`, "downgrade": ids(n, 3),
				"break": ids(n, 4) + `,"reason":"r","actor":"a"`, "metadata": ids(n, 5) + `,"metadata":"m"`,
				"bind": ids(n, 6) + `,"file":"service/evil/f"`, "seal": ids(n, 7) + `,"file":"service/ci/a"`,
			} {
				code, said := b.ask(url, b.evil, "POST", "/v1/"+path, fmt.Sprintf(`{%s,"token":%d%s}`, lock, token, more))
				if !strings.Contains(said, "PERMISSION_DENIED") && !strings.Contains(said, "INVALID_TOKEN") {
					t.Errorf("%s with token %d at server %d: %d %s", path, token, s.Member.ID, code, said)
				}
			}
			if code, said := b.ask(url, b.evil, "POST", fmt.Sprintf("/v1/append?lock=service/ci/a&file=service/ci/a&token=%d", token), "theirs\n"); code == http.StatusOK {
				t.Errorf("an append with token %d at server %d: %s", token, s.Member.ID, said)
			}
		}
		for path, more := range map[string]string{"cancel": `,"request_id":1`, "outcome": `,"request_id":1`, "keepalive": `,"held":0`} {
			// the other one's client ID
			if code, said := b.ask(url, b.evil, "POST", "/v1/"+path, `{"client_id":"ci"`+more+`}`); code != http.StatusForbidden {
				t.Errorf("%s of another one's client at server %d: %d %s", path, s.Member.ID, code, said)
			}
		}
	}
	if code, said := b.ask(b.url, b.ci, "POST", "/v1/verify", fmt.Sprintf(`{%s,"token":%d}`, lock, a.Token)); code != http.StatusOK {
		t.Errorf("the holder: %d %s", code, said)
	}
	if code, said := b.ask(b.url, b.ci, "GET", "/v1/files/service/ci/a", ""); code != http.StatusOK || said != "mine\n" {
		t.Errorf("the file: %d %q", code, said)
	}
	cluster.Await(t, cluster.Patience, "blame to say whose it is", func() bool {
		_, said := b.ask(b.url, b.ci, "GET", "/v1/blame/service/ci/a", "")
		return strings.Contains(said, `"identity":"service:ci"`)
	})
}

// TestRevokedUnderWay revokes a key while its owner holds a lock, waits for one, watches and follows a file: each of
// them ends, and another one gets the locks when their leases have run out.
func TestRevokedUnderWay(t *testing.T) {
	needFaults(t)
	b := besiege(t)
	operator, err := auth.OperatorTicket(b.Dir(), "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, ci, waiting := serviceWith(t, b.Dir(), operator.Text), serviceWith(t, b.join, b.ci), serviceWith(t, b.join, b.ci)
	const ttl = 3 * time.Second
	held, err := ci.Acquire(t.Context(), "service/ci/held", clientlib.AcquireOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Append(t.Context(), "service/ci/log", []byte("x\n")); err != nil {
		t.Fatal(err)
	}
	taken, err := root.Acquire(t.Context(), "service/ci/taken", clientlib.AcquireOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	over := underWay(t, ci, waiting, ttl)
	cluster.Await(t, cluster.Patience, "the wait", func() bool {
		l, err := root.Get(t.Context(), "service/ci/taken")
		return err == nil && l.QueueLength == 1
	})
	b.run("key", "revoke", "ci")
	for what, ended := range over {
		if err := <-ended; !errors.Is(err, clientlib.ErrUnauthenticated) {
			t.Errorf("the %s ends with %v", what, err)
		}
	}
	<-held.Context().Done()
	if err := context.Cause(held.Context()); err == nil {
		t.Error("the lock is lost without a reason")
	}
	if err := taken.Release(t.Context()); err != nil {
		t.Error(err)
	}
	// Its place in the queue ends like its lease: when it was not heard for as long as that.
	for _, lock := range []clientlib.LockName{"service/ci/held", "service/ci/taken"} {
		again, err := root.Acquire(t.Context(), lock, clientlib.AcquireOptions{TTL: time.Minute, Wait: cluster.Patience})
		if err != nil {
			t.Fatalf("%s after the revoked key: %v", lock, err)
		}
		if err := again.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// underWay begins a watch and a follow of one client, and a wait of another one, and returns how each of them ends. The
// watch and the follow have begun.
func underWay(t *testing.T, c, waiting *clientlib.Client, ttl time.Duration) map[string]chan error {
	over := map[string]chan error{"wait": make(chan error, 1), "watch": make(chan error, 1), "follow": make(chan error, 1)}
	watching, following := make(chan struct{}, 100), make(chan struct{}, 100)
	go func() {
		_, err := waiting.Acquire(t.Context(), "service/ci/taken", clientlib.AcquireOptions{TTL: ttl, Wait: clientlib.Forever})
		over["wait"] <- err
	}()
	go func() {
		for _, err := range c.Watch(t.Context(), clientlib.WatchOptions{Prefix: "service/ci/"}) {
			if err != nil {
				over["watch"] <- err
				return
			}
			watching <- struct{}{}
		}
	}()
	go func() {
		f := c.Follow(t.Context(), "service/ci/log", clientlib.FollowOptions{})
		defer f.Close() //nolint:errcheck // it has ended
		buf := make([]byte, 100)
		for {
			if _, err := f.Read(buf); err != nil {
				over["follow"] <- err
				return
			}
			following <- struct{}{}
		}
	}()
	<-watching
	<-following
	return over
}
