// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func (a *app) proofCommand() *cobra.Command {
	var token uint64
	c := &cobra.Command{
		Use:   "proof LOCK [--token N]",
		Short: "Print a signed statement that a lock is held, for resources outside Holdfast",
		Long: `Print a proof: a statement, signed with the key of the volume, that a lock is held under a token.
A resource outside Holdfast that verifies it need not believe tokens that anybody can make up.
It counts as long as the lease would without a further renewal. Whoever has it can use the
resource in the holder's place, for that time.

  curl -X PUT localhost:8090/config/web -H "Holdfast-Proof: $(holdfast proof config/web)" -d x

Resources verify it with the package clientlib/fencing, with any library for JSON Web Tokens
and the keys of GET /v1/keys, or with holdfast proof check. None of that asks a server.`,
		Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.mustToken(c, args[0], &token); err != nil {
				return err
			}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := prove(ctx, c, args[0], token)
				if err != nil {
					return err
				}
				return a.print(wire.ProofBodyOf(r), func(w io.Writer) { fmt.Fprintln(w, r.GetProof()) })
			})
		},
	}
	tokenFlag(c, &token, tokenUse)
	c.AddCommand(a.proofCheckCommand())
	return c
}

func prove(ctx context.Context, c *remote.Caller, lock string, token uint64) (*pb.ProveResponse, error) {
	q := &pb.ProveRequest{Lock: lock, Token: token}
	return remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ProveResponse, error) { return s.Prove(ctx, q) })
}

func (a *app) proofCheckCommand() *cobra.Command {
	var lock, keys, id string
	c := &cobra.Command{
		Use:   "check FILE --lock LOCK --keys FILE",
		Short: "Verify a proof, without a server",
		Long: `Verify the proof in a file, or on the standard input if FILE is -, and print what it says. The
exit code is 3 if it does not prove that the lock was held exclusively. No server is asked:
--keys is a copy of keys.json of the volume, the volume itself, or a URL such as
https://h1:7601/v1/keys.

A proof says what was true when it was signed. The lock may have passed on since: a resource
that must never obey an old holder remembers the highest token it has seen.`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.proofIn(args[0])
			if err != nil {
				return err
			}
			known, err := fencing.OpenKeys(keys, id)
			if err != nil {
				return err
			}
			p, err := known.Verify(lock, text)
			if err != nil {
				return &proofError{err}
			}
			b := proofResult{
				Status: cluster.StatusOK.String(), Cluster: p.Cluster, Identity: p.Identity, Lock: p.Lock, Token: uint64(p.Token), Epoch: p.Epoch,
				ClientID: p.Client, Issued: p.Issued.UTC(), Expires: p.Expires.UTC(),
			}
			return a.print(b, func(w io.Writer) {
				fmt.Fprintf(w, "%s: held by %s under token %d, until %s at least; signed by cluster %s\n", p.Lock, wire.Person{Client: p.Client, Identity: p.Identity}, p.Token, timeText(b.Expires, a.now()), p.Cluster)
			})
		},
	}
	c.Flags().StringVar(&lock, "lock", "", "the lock that the proof has to be of")
	c.Flags().StringVar(&keys, "keys", "", "the keys of the cluster: a copy of keys.json, the directory of the volume, or a URL")
	c.Flags().StringVar(&id, "cluster", "", "the ID that the cluster has to have (default: any that signs with these keys)")
	required(c, "lock", "keys")
	return c
}

// proofIn returns the proof in a file, - for the standard input.
func (a *app) proofIn(name string) (string, error) {
	from := a.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, 2*wire.MaxProof))
	return strings.TrimSpace(string(b)), err
}

// proofResult is what a proof says.
type proofResult struct {
	Status   string    `json:"status"`
	Cluster  string    `json:"cluster"`
	Identity string    `json:"identity"` // "" for nobody in particular
	Lock     string    `json:"lock"`
	Token    uint64    `json:"token"`
	Epoch    uint64    `json:"epoch"`
	ClientID string    `json:"client_id"`
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
}

// proofError reports that a proof does not prove what it should.
type proofError struct{ err error }

func (e *proofError) Error() string { return e.err.Error() }

// Unwrap returns the errors with the exit code of a token that is not the live one, too.
func (e *proofError) Unwrap() []error {
	if errors.Is(e.err, fencing.ErrExpired) {
		return []error{e.err, wire.ErrLeaseExpired}
	}
	return []error{e.err, wire.ErrInvalidToken}
}

// acquired is the answer to an acquire with its proof.
type acquired struct {
	wire.Body
	Proof string `json:"proof"`
}

// answerAcquire prints the answer to an acquire, and a proof of it if that is wanted.
func (a *app) answerAcquire(ctx context.Context, c *remote.Caller, r *pb.Answer, withProof bool) error {
	if !withProof {
		return a.answer(r, func(w io.Writer) { fmt.Fprintln(w, r.GetToken()) })
	}
	p, err := prove(ctx, c, r.GetLock(), r.GetToken())
	if err != nil {
		return err
	}
	return a.print(acquired{wire.BodyOf(r), p.GetProof()}, func(w io.Writer) { fmt.Fprintf(w, "%d\n%s\n", r.GetToken(), p.GetProof()) })
}

const (
	// proofRetry is the longest pause after a proof that could not be got. The lock decides how long that goes on.
	proofRetry = time.Second
	// proofLeast is the shortest pause between two proofs.
	proofLeast = 100 * time.Millisecond
)

// proofFile keeps a fresh proof of a lock in a file, for as long as the lock is held.
type proofFile struct {
	lock *clientlib.Lock
	path string
	say  func(string)
}

// write replaces the file by a new proof, and returns when to do so again.
func (f *proofFile) write(ctx context.Context) (again time.Duration, err error) {
	p, err := f.lock.Proof(ctx)
	if err != nil {
		return 0, err
	}
	if err := writePrivate(f.path, p.Text+"\n"); err != nil {
		return 0, fmt.Errorf("write the proof: %w", err)
	}
	return max(p.Remaining/2, proofLeast), nil
}

// keep writes the file again and again, at half of the life of each proof, until ctx or the lock ends.
func (f *proofFile) keep(ctx context.Context, again time.Duration) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.lock.Context(), stop)()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
		next, err := f.write(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			f.say(fmt.Sprintf("no new proof of the lock: %v: trying again", err))
		}
		if failed = err != nil; failed {
			next = min(proofRetry, max(again, proofLeast))
		}
		again = next
	}
}

// begin writes the first proof. Until end is called, the file has a fresh one; then it is removed.
func (f *proofFile) begin(ctx context.Context) (end func(), err error) {
	again, err := f.write(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.keep(ctx, again)
		_ = os.Remove(f.path) // it is of no use any more, and ends soon
	}()
	return func() { stop(); <-ended }, nil
}
