// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// witness is a service that notes which token a request came under.
type witness struct {
	fake
	seen chan string
}

func (w witness) note(op, lock string, token uint64) (*pb.Answer, error) {
	w.seen <- fmt.Sprintf("%s %d", op, token)
	return ok(lock, token), nil
}

func (w witness) Acquire(_ context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	return w.note("acquire", q.GetLock(), 17)
}

func (w witness) RenewLease(_ context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	return w.note("renew", q.GetLock(), q.GetToken())
}

func (w witness) SetMetadata(_ context.Context, q *pb.SetMetadataRequest) (*pb.Answer, error) {
	return w.note("metadata", q.GetLock(), q.GetToken())
}

func (w witness) Downgrade(_ context.Context, q *pb.DowngradeRequest) (*pb.Answer, error) {
	return w.note("downgrade", q.GetLock(), q.GetToken())
}

func (w witness) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	return w.note("release", q.GetLock(), q.GetToken())
}

func (w witness) Verify(_ context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	return w.note("verify", q.GetLock(), q.GetToken())
}

func (w witness) FileAppend(_ context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	return w.note("append", q.GetLock(), q.GetToken())
}

func (w witness) SealFile(_ context.Context, q *pb.SealFileRequest) (*pb.Answer, error) {
	return w.note("seal", q.GetLock(), q.GetToken())
}

// TestTheTokenOfTheRunAbove is used for its lock, at its servers, and where no other is named.
func TestTheTokenOfTheRunAbove(t *testing.T) {
	w := witness{seen: make(chan string, 9)}
	addr := startService(t, w)
	const within = "acquire 17, %s 17, release 17"
	for _, c := range []struct {
		args         string
		inRun, alone string // what the service sees inside of the run, and outside
	}{
		{"renew job", "renew 23", ""},
		{"metadata job text", "metadata 23", ""},
		{"downgrade job", "downgrade 23", ""},
		{"release job", "release 23", ""},
		{"verify job", "verify 23", ""},
		{"append job log", "append 23", fmt.Sprintf(within, "append")},
		{"file seal log --lock job", "seal 23", fmt.Sprintf(within, "seal")},
		{"renew job --token 5", "renew 5", "renew 5"},
		{"append job log --token 5", "append 5", "append 5"},
		{"append job log --token 0", fmt.Sprintf(within, "append"), fmt.Sprintf(within, "append")},
		{"renew other --token 5", "renew 5", "renew 5"},
		{"renew other", "", ""},
		{"append other log", fmt.Sprintf(within, "append"), fmt.Sprintf(within, "append")},
	} {
		for name, env := range map[string]map[string]string{
			"in a run":           {"HOLDFAST_LOCK": "job", "HOLDFAST_TOKEN": "23", "HOLDFAST_TOKEN_ENDPOINTS": "h1:7601," + addr},
			"alone":              {},
			"at other servers":   {"HOLDFAST_LOCK": "job", "HOLDFAST_TOKEN": "23", "HOLDFAST_TOKEN_ENDPOINTS": "h1:7601"},
			"in a run of before": {"HOLDFAST_LOCK": "job", "HOLDFAST_TOKEN": "23"},
		} {
			var out, errs bytes.Buffer
			env["HOLDFAST_ENDPOINTS"] = addr
			code := cli.Main(strings.Fields(c.args), cli.Env{
				Stdin: strings.NewReader("data"), Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] },
			})
			want := c.alone
			if name == "in a run" {
				want = c.inRun
			}
			var seen []string
			for len(w.seen) > 0 {
				seen = append(seen, <-w.seen)
			}
			if got := strings.Join(seen, ", "); got != want {
				t.Errorf("%s, %s: the service saw %q, want %q\n%s%s", c.args, name, got, want, out.String(), errs.String())
			}
			if wrong := want == ""; wrong != (code == 2) || wrong && !strings.Contains(errs.String(), "name the token with --token") {
				t.Errorf("%s, %s: code %d, %s", c.args, name, code, errs.String())
			}
		}
	}
}

// TestATokenThatIsNone is a mistake, and no reason to wait for the lock.
func TestATokenThatIsNone(t *testing.T) {
	w := witness{seen: make(chan string, 9)}
	addr := startService(t, w)
	for _, token := range []string{"", "0", "x", "-1"} {
		env := map[string]string{"HOLDFAST_LOCK": "job", "HOLDFAST_TOKEN": token, "HOLDFAST_TOKEN_ENDPOINTS": addr, "HOLDFAST_ENDPOINTS": addr}
		var out, errs bytes.Buffer
		code := cli.Main([]string{"append", "job", "log"}, cli.Env{
			Stdin: strings.NewReader("data"), Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] },
		})
		if code != 2 || !strings.Contains(errs.String(), "is no token of lock job") || len(w.seen) > 0 {
			t.Errorf("HOLDFAST_TOKEN=%q: code %d, %s", token, code, errs.String())
		}
	}
}
