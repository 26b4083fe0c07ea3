// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// prover notes what it was given to sign.
type prover struct {
	mu       sync.Mutex
	identity []string
	claims   []wire.ProofClaims
	lives    []time.Duration
	err      error
}

func (p *prover) Prove(identity string, c wire.ProofClaims, issued, expires time.Time) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity, p.claims, p.lives = append(p.identity, identity), append(p.claims, c), append(p.lives, expires.Sub(issued))
	return fmt.Sprintf("%s proves %d", identity, c.Token), p.err
}

func (*prover) PublicKeys() []byte { return []byte(`{"keys":["some"]}`) }

func (p *prover) signed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.claims)
}

// proves asks for a proof as somebody, "" for nobody.
func proves(t *testing.T, c client, who, lock string, token uint64) (*pb.ProveResponse, cluster.Status) {
	t.Helper()
	r, err := c.Prove(credentialOf(t, who), &pb.ProveRequest{Lock: lock, Token: token})
	return r, statusOf(r.GetStatus(), err)
}

func credentialOf(t *testing.T, who string) context.Context {
	if who == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+who)
}

func acquired(t *testing.T, c client, who string, q *pb.AcquireRequest) *pb.Answer {
	t.Helper()
	q.RequestId, q.TtlMs = 1, 60_000
	a, err := c.Acquire(credentialOf(t, who), q)
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(a, err)
	}
	return a
}

// TestProofIsOfTheOwnGrant: only the identity that a grant belongs to gets a proof of it, also with a ticket that has expired;
// and it says what the table says.
func TestProofIsOfTheOwnGrant(t *testing.T) {
	p, g := &prover{}, newCredentials(t)
	c := dialService(t, service.New(startPrimary(t), service.Options{Authenticator: g, Prover: p}))
	a := acquired(t, c, "alice", &pb.AcquireRequest{ClientId: "hers", Lock: "l"})
	for who, want := range map[string]cluster.Status{
		"bob": cluster.StatusPermissionDenied, "root": cluster.StatusPermissionDenied, "": cluster.StatusUnauthenticated, "fired": cluster.StatusUnauthenticated,
	} {
		if r, got := proves(t, c, who, "l", a.GetToken()); got != want || r.GetProof() != "" || p.signed() != 0 {
			t.Errorf("%q: %v, %v, %d signed", who, got, r, p.signed())
		}
	}
	for _, who := range []string{"alice", "late"} {
		r, got := proves(t, c, who, "l", a.GetToken())
		if got != cluster.StatusOK || r.GetProof() != fmt.Sprintf("user:alice proves %d", a.GetToken()) || r.GetToken() != a.GetToken() || r.GetLsn() == 0 || r.GetEpoch() == 0 {
			t.Errorf("%s: %v, %v", who, got, r)
		}
		if ttl := wire.Millis(r.GetTtlMs()); ttl <= 0 || ttl > time.Minute || p.lives[0] > time.Minute || p.lives[0] < ttl {
			t.Errorf("%v left, and signed for %v", ttl, p.lives[0])
		}
	}
	want := wire.ProofClaims{Lock: "l", Token: a.GetToken(), Mode: "exclusive", Epoch: a.GetEpoch(), Client: "hers"}
	if p.claims[0] != want {
		t.Errorf("signed is %+v, want %+v", p.claims[0], want)
	}
	for token, lock := range map[uint64]string{a.GetToken() + 1: "l", a.GetToken(): "other", 9000000000000000000: "l"} {
		if r, got := proves(t, c, "alice", lock, token); got != cluster.StatusInvalidToken {
			t.Errorf("token %d of %s: %v", token, lock, r)
		}
	}
	for lock, token := range map[string]uint64{"l": 0, "/l": 5} {
		if r, got := proves(t, c, "alice", lock, token); got != cluster.StatusInvalidArgument {
			t.Errorf("token %d of %s: %v", token, lock, r)
		}
	}
	if p.signed() != 2 {
		t.Errorf("%d proofs were signed", p.signed())
	}
}

// A grant without an identity is proved to everybody who knows its token, as it is renewed, and the proof names nobody.
func TestProofOfNobodysGrant(t *testing.T) {
	p := &prover{}
	c := dialService(t, service.New(startPrimary(t), service.Options{Prover: p}))
	a := acquired(t, c, "", &pb.AcquireRequest{ClientId: "c", Lock: "l"})
	if r, got := proves(t, c, "", "l", a.GetToken()); got != cluster.StatusOK || p.identity[0] != "" {
		t.Error(r, got)
	}
	if d, err := c.Downgrade(t.Context(), &pb.DowngradeRequest{ClientId: "c", RequestId: 2, Lock: "l", Token: a.GetToken()}); err != nil || d.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(d, err)
	}
	if r, _ := proves(t, c, "", "l", a.GetToken()); r.GetMode() != pb.Mode_MODE_SHARED || p.claims[1].Mode != "shared" {
		t.Errorf("a shared grant: %v, signed %v", r, p.claims)
	}
	p.err = errors.New("no key: type this")
	if r, got := proves(t, c, "", "l", a.GetToken()); got != cluster.StatusError || r.GetMessage() != "no key: type this" || r.GetProof() != "" {
		t.Errorf("no key: %v", r)
	}
	if r, err := c.Release(t.Context(), &pb.ReleaseRequest{ClientId: "c", RequestId: 3, Lock: "l", Token: a.GetToken()}); err != nil || r.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(r, err)
	}
	if r, got := proves(t, c, "", "l", a.GetToken()); got != cluster.StatusInvalidToken {
		t.Errorf("after the release: %v", r)
	}
	none := dialService(t, service.New(startPrimary(t), service.Options{}))
	a = acquired(t, none, "", &pb.AcquireRequest{ClientId: "c", Lock: "l"})
	if r, got := proves(t, none, "", "l", a.GetToken()); got != cluster.StatusError || r.GetMessage() == "" {
		t.Errorf("a server that signs nothing: %v", r)
	}
}

// succeeded is a backend whose check, after it has read the table, shows that a later term has begun.
type succeeded struct{ *backend }

func (b succeeded) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	r, err := b.backend.Read(ctx, f)
	r.Status = cluster.StatusSecondaryMode
	return r, err
}

// TestProofWaitsForTheCheck: what the table says is signed only when a check that began afterwards has shown the term to be alive.
func TestProofWaitsForTheCheck(t *testing.T) {
	p, b := &prover{}, startPrimary(t)
	a := acquired(t, dialService(t, service.New(b, service.Options{})), "", &pb.AcquireRequest{ClientId: "c", Lock: "l"})
	c := dialService(t, service.New(succeeded{b}, service.Options{Prover: p}))
	if r, got := proves(t, c, "", "l", a.GetToken()); got != cluster.StatusSecondaryMode || p.signed() != 0 {
		t.Errorf("%v, %v, %d signed", got, r, p.signed())
	}
}

// overdue is a backend whose leases are all over, and not ended yet.
type overdue struct{ *backend }

func (b overdue) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	return b.backend.Read(ctx, func(v serving.View) {
		v.Remaining = func(cluster.LockName, cluster.Token) time.Duration { return 0 }
		f(v)
	})
}

func TestNoProofOfALeaseThatIsOver(t *testing.T) {
	p, b := &prover{}, startPrimary(t)
	c := dialService(t, service.New(overdue{b}, service.Options{Prover: p}))
	a := acquired(t, c, "", &pb.AcquireRequest{ClientId: "c", Lock: "l"})
	if r, got := proves(t, c, "", "l", a.GetToken()); got != cluster.StatusLeaseExpired || p.signed() != 0 {
		t.Errorf("%v, %v", got, r)
	}
}

// Over HTTP, a replica has the primary prove; the keys it has itself, for everybody.
func TestProveOverHTTP(t *testing.T) {
	g, p := newCredentials(t), &prover{}
	front := func(b serving.Backend, p service.Prover) *site {
		return serveFront(t, httpapi.New(service.New(b, service.Options{Authenticator: g, Prover: p}), httpapi.Options{Log: zerolog.Nop()}))
	}
	b, own := startPrimary(t), &prover{}
	primary := front(b, p)
	replica := front(follower(primary.addr), own)
	a := acquired(t, dialService(t, service.New(b, service.Options{Authenticator: g})), "alice", &pb.AcquireRequest{ClientId: "hers", Lock: "l"})
	for who, want := range map[string]int{"alice": 200, "bob": 403, "": 401} {
		code, body := request(t, replica, "POST", "/v1/prove", who, fmt.Sprintf(`{"lock":"l","token":%d}`, a.GetToken()))
		if code != want || strings.Contains(body, fmt.Sprintf(`"proof":"user:alice proves %d"`, a.GetToken())) != (want == 200) {
			t.Errorf("%q: %d %s", who, code, body)
		}
	}
	if p.signed() != 1 || own.signed() != 0 {
		t.Errorf("the primary signed %d, the replica %d", p.signed(), own.signed())
	}
	for _, s := range []*site{primary, replica} {
		for _, who := range []string{"", "alice"} {
			if code, body := request(t, s, "GET", "/v1/keys", who, ""); code != 200 || body != `{"keys":["some"]}` {
				t.Errorf("the keys for %q: %d %s", who, code, body)
			}
		}
	}
	if code, body := request(t, front(follower(primary.addr), nil), "GET", "/v1/keys", "", ""); code != 200 || body != `{"keys":[]}`+"\n" {
		t.Errorf("the keys of a server without: %d %s", code, body)
	}
}

func request(t *testing.T, s *site, method, path, who, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
