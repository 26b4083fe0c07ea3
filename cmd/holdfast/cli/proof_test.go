// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestProofCheck verifies a proof in a file and on the standard input, with a copy of the keys and without a server.
func TestProofCheck(t *testing.T) {
	dir := t.TempDir()
	g := auth.New(cluster.ID{1}, nil)
	g.SetKeys([]volume.SigningKey{{ID: "1-00", Private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))}})
	keys, file := filepath.Join(dir, "keys.json"), filepath.Join(dir, "proof")
	now := time.Now()
	proof := func(mode string, from time.Time) string {
		text, err := g.Prove("user:alice", wire.ProofClaims{Lock: "a/b", Token: 17, Mode: mode, Epoch: 3, Client: "@9"}, from, from.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	right := proof("exclusive", now)
	for name, b := range map[string][]byte{keys: g.PublicKeys(), file: []byte(right + "\n")} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(stdin, file, lock string, more ...string) result {
		return runAt(func() time.Time { return now.Truncate(time.Second) }, stdin, "127.0.0.1:1", append([]string{"proof", "check", file, "--lock", lock, "--keys", keys}, more...)...)
	}
	want := "a/b: held by user:alice under token 17, until " + now.Add(time.Minute).Format("2006-01-02 15:04:05 -07:00") + " (in 1m0s) at least; signed by cluster " + cluster.ID{1}.String() + "\n"
	for _, r := range []result{check("", file, "a/b"), check(right, "-", "a/b", "--cluster", cluster.ID{1}.String())} {
		if r.code != 0 || r.out != want {
			t.Errorf("got %+v, want %q", r, want)
		}
	}
	if r := check("", file, "a/b", "-o", "json"); r.code != 0 || !strings.HasPrefix(r.out, fmt.Sprintf(`{"status":"OK","cluster":%q,"identity":"user:alice","lock":"a/b","token":17,"epoch":3,"client_id":"@9","issued":"2`, cluster.ID{1}.String())) {
		t.Errorf("got %+v", r)
	}
	for _, x := range []struct {
		what, want string
		r          result
	}{
		{"another lock", "the proof is of another lock", check("", file, "a")},
		{"another cluster", "no proof of a grant", check("", file, "a/b", "--cluster", cluster.ID{2}.String())},
		{"forged", "no proof of a grant", check(right[:len(right)-3]+"AAA", "-", "a/b")},
		{"nothing", "no proof of a grant", check("", "-", "a/b")},
		{"shared", "shared grant", check(proof("shared", now), "-", "a/b")},
		{"expired", "has expired at", check(proof("exclusive", now.Add(-time.Hour)), "-", "a/b")},
	} {
		if x.r.code != 3 || x.r.out != "" || !strings.Contains(x.r.errs, x.want) || !strings.Contains(x.r.errs, "gets a new proof with holdfast proof") {
			t.Errorf("%s: got %+v", x.what, x.r)
		}
	}
	if r := check(proof("exclusive", now.Add(-time.Hour)), "-", "a/b", "-o", "json"); r.code != 3 || !strings.Contains(r.out, `"status":"LEASE_EXPIRED"`) {
		t.Errorf("got %+v", r)
	}
	if r := run("", "", "proof", "check", file, "--lock", "a/b", "--keys", filepath.Join(dir, "none")); r.code != 5 {
		t.Errorf("no keys: %+v", r)
	}
	if r := run("", "", "proof", "check", filepath.Join(dir, "none"), "--lock", "a/b", "--keys", keys); r.code != 5 {
		t.Errorf("no proof: %+v", r)
	}
}

// signing is oneLock with proofs that live for 200 ms, each with its number. The second one cannot be signed.
type signing struct {
	oneLock
	asked *struct {
		sync.Mutex
		n int
	}
}

func (s signing) Prove(_ context.Context, q *pb.ProveRequest) (*pb.ProveResponse, error) {
	s.asked.Lock()
	defer s.asked.Unlock()
	if s.asked.n++; s.asked.n == 2 || q.GetLock() == "unsigned" {
		return &pb.ProveResponse{Status: pb.Status_STATUS_ERROR, Message: "there is no key"}, nil
	}
	return &pb.ProveResponse{Status: pb.Status_STATUS_OK, Proof: fmt.Sprintf("proof-%d.", s.asked.n), TtlMs: 200}, nil
}

// TestRunKeepsAProof: the command finds a proof that nobody else may read, and later another one; when it has ended there is none.
func TestRunKeepsAProof(t *testing.T) {
	l := signing{newOneLock(), new(struct {
		sync.Mutex
		n int
	})}
	addr := startService(t, l)
	dir := t.TempDir()
	file := filepath.Join(dir, "proof")
	if err := os.WriteFile(file, []byte("an old one"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_PROOF_FILE", "outer")
	script := `cat "$HOLDFAST_PROOF_FILE"; stat -c %a "$HOLDFAST_PROOF_FILE"; cd /; until grep -q 'proof-\([4-9]\|[1-9][0-9]\)' "$HOLDFAST_PROOF_FILE"; do sleep 0.02; done; stat -c %a "$HOLDFAST_PROOF_FILE"`
	r := runProgram(addr, "run", "job", "--proof-file", file, "--", "sh", "-c", script)
	if r.code != 0 || r.out != "proof-1.\n600\n600\n" || strings.Count(r.errs, "no new proof of the lock") != 1 {
		t.Errorf("got %+v", r)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("there is %v afterwards, %v", all, err)
	}
	for what, args := range map[string][]string{
		"no key":       {"run", "unsigned", "--proof-file", file, "--", "echo", "ran"},
		"no directory": {"run", "job", "--proof-file", filepath.Join(dir, "none", "proof"), "--", "echo", "ran"},
	} {
		if r := runProgram(addr, args...); r.code != 5 || r.out != "" {
			t.Errorf("%s: %+v", what, r)
		}
		if live, _ := l.now(); live != 0 {
			t.Errorf("%s: the lock is held under token %d", what, live)
		}
	}
	if r := runProgram(addr, "run", "job", "--", "sh", "-c", `echo "<$HOLDFAST_PROOF_FILE>"`); r.out != "<>\n" {
		t.Errorf("without a file: %+v", r)
	}
}
