// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"crypto/md5" //nolint:gosec // as OpenTofu does
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// statePath is the address of the state that these tests keep.
const statePath = "/v1/terraform/net/prod"

// lockInfo is the body of a LOCK and UNLOCK under a lock ID, as OpenTofu sends it.
func lockInfo(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"ann@h1","Version":"1.12.6","Created":"2026-11-28T12:00:00.123456789Z","Path":""}`, id)
}

// stateOf is a state with this serial and this content.
func stateOf(serial int, content string) string {
	return fmt.Sprintf("{\n  \"version\": 4,\n  \"serial\": %d,\n  \"lineage\": \"l\",\n  \"x\": %q\n}\n", serial, content)
}

// backendOf answers requests about the state, over HTTP or without.
type backendOf struct {
	t  *testing.T
	do func(*http.Request) *http.Response
	// as is the password of basic authentication, "" for none.
	as string
}

// stateServer asks a server over HTTP.
func stateServer(t *testing.T, url string) *backendOf {
	return &backendOf{t: t, do: func(r *http.Request) *http.Response {
		r.URL.Scheme, r.URL.Host, _ = strings.Cut(url, "://")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}}
}

// stateHandler asks a front end without a connection.
func stateHandler(t *testing.T, b serving.Backend) *backendOf {
	h := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.Nop()})
	return &backendOf{t: t, do: func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		r.RequestURI, r.Host = r.URL.RequestURI(), "localhost"
		h.ServeHTTP(w, r)
		return w.Result()
	}}
}

// ask returns code and body of an answer.
func (x *backendOf) ask(method, path, body string) (int, string, http.Header) {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	if x.as != "" {
		r.SetBasicAuth("holdfast", x.as)
	}
	resp := x.do(r)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// wants asks, and wants this code and a body that contains this.
func (x *backendOf) wants(code int, contains, method, path, body string) string {
	x.t.Helper()
	got, said, _ := x.ask(method, path, body)
	if got != code || !strings.Contains(said, contains) {
		x.t.Errorf("%s %s %.60s: %d %s, want %d with %q", method, path, body, got, said, code, contains)
	}
	return said
}

// state wants this state to be the newest one, with its sum as OpenTofu checks it; "" for none.
func (x *backendOf) state(want string) {
	x.t.Helper()
	code, said, header := x.ask("GET", statePath, "")
	switch sum := md5.Sum([]byte(said)); { //nolint:gosec // as above
	case want == "" && code != http.StatusNotFound:
		x.t.Errorf("a state that is not there: %d %.200s", code, said)
	case want != "" && (code != http.StatusOK || said != want):
		x.t.Errorf("the state: %d %.200s, want %.200s", code, said, want)
	case want != "" && (header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) || header.Get("Content-Type") != "application/json" || header.Get("Holdfast-Lsn") == ""):
		x.t.Errorf("the headers of the state: %v", header)
	}
}

// TestTerraform is an operation of OpenTofu, asked of the primary and of a replica, and another one that comes meanwhile.
func TestTerraform(t *testing.T) {
	_, primary, replica, _ := pair(t)
	p, r := stateServer(t, primary.url), stateServer(t, replica.url)
	for i, x := range []*backendOf{p, r} {
		me, other := fmt.Sprintf("me-%d", i), fmt.Sprintf("other-%d", i)
		x.wants(200, `"token":`, "LOCK", statePath, lockInfo(me))
		said := x.wants(423, `"status":"HELD"`, "LOCK", statePath, lockInfo(other))
		var told, want map[string]any
		if json.Unmarshal([]byte(said), &told) != nil || json.Unmarshal([]byte(lockInfo(me)), &want) != nil {
			t.Fatalf("not JSON: %s", said)
		}
		for name := range want {
			if told[name] != want[name] && want[name] != "" {
				t.Errorf("who holds it: %s is %v, want %v", name, told[name], want[name])
			}
		}
		x.wants(200, `"offset":`, "POST", statePath+"?ID="+me, stateOf(10*i+1, "one"))
		x.state(stateOf(10*i+1, "one"))
		x.wants(409, "does not hold", "POST", statePath+"?ID="+other, stateOf(10*i+2, "theirs"))
		x.wants(409, "has no lock ID", "POST", statePath, stateOf(10*i+2, "nobody's"))
		x.wants(409, "does not hold", "DELETE", statePath+"?ID="+other, "")
		x.wants(409, "has no lock ID", "DELETE", statePath, "")
		x.wants(409, "does not hold", "UNLOCK", statePath, lockInfo(other))
		x.wants(400, "holdfast break terraform/net/prod", "UNLOCK", statePath, "")
		x.wants(200, `"offset":`, "POST", statePath+"?ID="+me, stateOf(10*i+2, "two"))
		x.state(stateOf(10*i+2, "two"))
		x.wants(200, `"OK"`, "UNLOCK", statePath, lockInfo(me))
		x.wants(409, "nobody does", "POST", statePath+"?ID="+me, stateOf(10*i+3, "late"))
		x.state(stateOf(10*i+2, "two"))
		x.wants(200, `"OK"`, "LOCK", statePath, lockInfo(other))
		x.wants(200, `"OK"`, "UNLOCK", statePath, lockInfo(other))
	}
}

// TestTerraformRefusesWhatIsWrong: such requests do nothing.
func TestTerraformRefusesWhatIsWrong(t *testing.T) {
	b := startPrimary(t)
	x := stateServer(t, serveHTTP(t, b).url)
	x.wants(200, "OK", "LOCK", statePath, lockInfo("me"))
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise) // never fails
	for _, q := range []struct {
		code                         int
		contains, method, path, body string
	}{
		{400, "no LockInfo", "LOCK", statePath, "x"},
		{400, "lock ID is missing", "LOCK", statePath, "{}"},
		{400, "allowed are", "LOCK", statePath + "?wait=1s", lockInfo("b")},
		{400, "lock ID is missing", "UNLOCK", statePath, "{}"},
		{400, "has no serial", "POST", statePath + "?ID=me", "{}"},
		{400, "no state", "POST", statePath + "?ID=me", ""},
		{400, "allowed are ID", "POST", statePath + "?ID=me&force=true", stateOf(1, "")},
		{413, "divide it", "POST", statePath + "?ID=me", stateOf(1, base64.StdEncoding.EncodeToString(noise))},
		{413, "longer than 8388608", "POST", statePath + "?ID=me", stateOf(1, strings.Repeat("x", 8<<20))},
		{400, "lock name", "LOCK", "/v1/terraform/a%2F", lockInfo("b")},
		{404, "", "GET", "/v1/terraform/none", ""},
		{405, "use DELETE, GET, LOCK, POST, UNLOCK", "PUT", statePath + "?ID=me", stateOf(1, "")},
	} {
		x.wants(q.code, q.contains, q.method, q.path, q.body)
	}
	x.state("")
	for _, file := range []cluster.FileName{"terraform/net/prod.tfstate", "terraform/none.tfstate"} {
		if _, bound, _, _, err := b.File(t.Context(), file); bound || err != nil {
			t.Errorf("%s: bound %v, %v", file, bound, err)
		}
	}
}

// TestTerraformRepeats: a request that comes again gets the answer of the first time, and changes nothing, whatever came between.
func TestTerraformRepeats(t *testing.T) {
	b := startPrimary(t)
	x := stateServer(t, serveHTTP(t, b).url)
	ask := func(method, path, body string) wire.Body {
		t.Helper()
		var a wire.Body
		if err := json.Unmarshal([]byte(x.wants(200, "", method, path, body)), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := ask("LOCK", statePath, lockInfo("me"))
	if again := ask("LOCK", statePath, lockInfo("me")); again.Token != first.Token || !again.Repeat {
		t.Errorf("LOCK again: %+v", again)
	}
	post := statePath + "?ID=me"
	one := ask("POST", post, stateOf(7, "one"))
	if again := ask("POST", post, stateOf(7, "one")); again.LSN != one.LSN || again.Offset != one.Offset || !again.Repeat {
		t.Errorf("POST again: %+v, was %+v", again, one)
	}
	x.wants(400, "used for another request", "POST", post, stateOf(7, "other bytes"))
	two := ask("POST", post, stateOf(9, "two"))
	x.wants(409, "STALE_REQUEST", "POST", post, stateOf(7, "one"))        // a copy that was under way for long
	x.wants(409, "STALE_REQUEST", "POST", post, stateOf(8, "never seen")) // and one of which only this copy arrived
	x.state(stateOf(9, "two"))
	ask("UNLOCK", statePath, lockInfo("me"))
	if again := ask("UNLOCK", statePath, lockInfo("me")); !again.Repeat {
		t.Errorf("UNLOCK again: %+v", again)
	}
	x.wants(410, "has ended", "LOCK", statePath, lockInfo("me")) // a copy that was under way for long
	if b.lockAt(t, "terraform/net/prod").Holders != 0 {
		t.Error("it holds the lock again")
	}
	// The answer to the last POST was lost, and another one has the lock, and has written.
	ask("LOCK", statePath, lockInfo("other"))
	ask("POST", statePath+"?ID=other", stateOf(10, "theirs"))
	if again := ask("POST", post, stateOf(9, "two")); again.LSN != two.LSN || !again.Repeat {
		t.Errorf("POST again after the lock was lost: %+v, was %+v", again, two)
	}
	x.state(stateOf(10, "theirs"))
}

// TestTerraformIsFencedByItsLockID: who has lost the lock writes nothing, whether nobody has it now or another one.
func TestTerraformIsFencedByItsLockID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPrimary(t)
		x := stateHandler(t, b)
		ttl := b.Timing().MaxTTL
		x.wants(200, "OK", "LOCK", statePath, lockInfo("me"))
		for i := range 3 { // each write renews the lease
			time.Sleep(ttl * 3 / 4)
			x.wants(200, "OK", "POST", statePath+"?ID=me", stateOf(i, "mine"))
		}
		time.Sleep(ttl + time.Minute)
		x.wants(409, "nobody does", "POST", statePath+"?ID=me", stateOf(5, "late"))
		x.wants(409, "nobody does", "UNLOCK", statePath, lockInfo("me"))
		x.wants(200, "OK", "LOCK", statePath, lockInfo("other"))
		for _, method := range []string{"POST", "DELETE"} {
			x.wants(409, "another one does", method, statePath+"?ID=me", stateOf(6, "later"))
		}
		x.wants(409, "another one does", "UNLOCK", statePath, lockInfo("me"))
		x.state(stateOf(2, "mine"))
		x.wants(200, "OK", "POST", statePath+"?ID=other", stateOf(6, "theirs"))
		x.state(stateOf(6, "theirs"))
		x.wants(200, "OK", "UNLOCK", statePath, lockInfo("other"))
	})
}

// TestTerraformVersions: earlier states stay where they are, also after a deletion.
func TestTerraformVersions(t *testing.T) {
	h := serveHTTP(t, startPrimary(t))
	x := stateServer(t, h.url)
	x.wants(200, "OK", "LOCK", statePath, lockInfo("me"))
	large := stateOf(3, strings.Repeat("resource ", 300_000)) // more than one append carries
	for i, state := range []string{stateOf(1, "one"), stateOf(2, "two"), large} {
		x.wants(200, "OK", "POST", statePath+"?ID=me", state)
		x.state(state)
		if i == 2 {
			continue
		}
		if got := x.wants(200, "", "GET", fmt.Sprintf("/v1/files/terraform/net/prod.tfstate?offset=%d&limit=%d", i*len(state), len(state)), ""); got != state {
			t.Errorf("version %d: %q", i, got)
		}
	}
	x.wants(200, "OK", "DELETE", statePath+"?ID=me", "")
	x.wants(200, `"repeat":true`, "DELETE", statePath+"?ID=me", "")
	x.state("")
	x.wants(409, "STALE_REQUEST", "POST", statePath+"?ID=me", stateOf(4, "after the deletion"))
	x.wants(200, "OK", "UNLOCK", statePath, lockInfo("me"))
	x.wants(200, "OK", "LOCK", statePath, lockInfo("me2"))
	x.wants(200, "OK", "POST", statePath+"?ID=me2", stateOf(1, "anew"))
	x.state(stateOf(1, "anew"))
	var blamed wire.BlameBody
	if code, _ := h.call("GET", "/v1/blame/terraform/net/prod.tfstate", "", &blamed); code != 200 || len(blamed.Pieces) != 5 || blamed.Pieces[1].RequestID != 3 || blamed.Pieces[1].ClientID != "tf-me/state" {
		t.Errorf("%d, versions: %+v", code, blamed.Pieces)
	}
}

// TestTerraformTellsNoStateOnlyWhereThereIsNone: who took what was moved away, or unbound, for nothing would make everything anew.
func TestTerraformTellsNoStateOnlyWhereThereIsNone(t *testing.T) {
	b := startPrimary(t)
	x := stateServer(t, serveHTTP(t, b).url)
	const file = "terraform/net/prod.tfstate"
	w := &writer{t: t, b: b}
	w.token = w.do(locktable.Request{Op: locktable.OpAcquire, TTL: time.Minute}).Token // lock l
	x.state("")
	w.append(file, stateOf(1, "one"))
	x.state(stateOf(1, "one"))
	w.rotate(file, "kept")
	x.wants(409, "since it was rotated or bound", "GET", statePath, "")
	w.append(file, stateOf(2, "two"))
	x.state(stateOf(2, "two"))
	w.op(locktable.OpUnbind, file)
	x.wants(409, "bound to no lock", "GET", statePath, "")
	if err := b.disk.Rename("files/"+file, "files/elsewhere"); err != nil {
		t.Fatal(err)
	}
	x.state("")
}

// TestTerraformHeldByOthers: a holder that is not Terraform is told in Terraform's words.
func TestTerraformHeldByOthers(t *testing.T) {
	h := serveHTTP(t, startPrimary(t))
	x := stateServer(t, h.url)
	token := h.ok("/v1/acquire", `{"lock":"terraform/net/prod","ttl":"30s","holder":{"user":"bob","host":"h2","command":"make"}}`).Token
	said := x.wants(423, `"Who":"bob@h2"`, "LOCK", statePath, lockInfo("me"))
	var told struct {
		ID, Operation string
		Created       time.Time
	}
	if err := json.Unmarshal([]byte(said), &told); err != nil || told.ID != fmt.Sprintf("holdfast-token-%d", token) || told.Operation != "make" || told.Created.IsZero() {
		t.Errorf("%v: %+v", err, told)
	}
	x.wants(409, "another one does", "UNLOCK", statePath, lockInfo(told.ID))
}

// TestTerraformCallers: a credential is the password of basic authentication, on these paths only, and a lock ID is of no use to another identity.
func TestTerraformCallers(t *testing.T) {
	d := newDoors(t)
	as := func(who string) *backendOf {
		x := stateServer(t, d.http.URL)
		x.as = who
		return x
	}
	const path = "/v1/terraform/l"
	alice, bob := as("alice"), as("bob")
	as("").wants(401, "UNAUTHENTICATED", "LOCK", path, lockInfo("me"))
	as("fired").wants(401, "UNAUTHENTICATED", "LOCK", path, lockInfo("me"))
	as("wrong").wants(401, "UNAUTHENTICATED", "LOCK", path, lockInfo("me"))
	bob.wants(403, "PERMISSION_DENIED", "LOCK", path, lockInfo("me"))
	alice.wants(200, "OK", "LOCK", path, lockInfo("me"))
	d.told.take()
	as("root").wants(423, `"ID":"me"`, "LOCK", path, lockInfo("theirs"))
	if told := d.told.take(); len(told) != 0 {
		t.Errorf("the audit has %+v", told)
	}
	as("root").wants(403, "PERMISSION_DENIED", "POST", path+"?ID=me", stateOf(1, "root's"))
	as("root").wants(403, "PERMISSION_DENIED", "UNLOCK", path, lockInfo("me"))
	as("late").wants(401, "expired", "POST", path+"?ID=me", stateOf(1, "late"))
	alice.wants(200, "OK", "POST", path+"?ID=me", stateOf(1, "mine"))
	bob.wants(403, "PERMISSION_DENIED", "GET", path, "")
	alice.wants(200, "mine", "GET", path, "")
	as("late").wants(200, "OK", "UNLOCK", path, lockInfo("me")) // what is held may be released
	alice.wants(401, "UNAUTHENTICATED", "GET", "/v1/locks/l", "")
}
