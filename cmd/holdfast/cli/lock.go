// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// answer prints an answer of the service; in JSON it has the fields of the HTTP body.
func (a *app) answer(r *pb.Answer, text func(io.Writer)) error { return a.print(wire.BodyOf(r), text) }

func (a *app) acquireCommand() *cobra.Command {
	var l lease
	var id identity
	var withProof bool
	c := &cobra.Command{
		Use:   "acquire LOCK",
		Short: "Acquire a lock and print its token",
		Long: `Acquire a lock and print its token. The lock stays held when this command has ended,
but nothing renews it, so use it, renew it or release it within --ttl. To run a command
under a lock, use holdfast run.

  TOKEN=$(holdfast acquire billing/job --ttl 1m --wait 10s) || exit
  echo line | holdfast append billing/job billing/log --token $TOKEN
  holdfast release billing/job --token $TOKEN`,
		Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := firstError(l.check(), l.checkPermit(c.Flags()), id.check()); err != nil {
				return err
			}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				who := id
				if !id.named() {
					who = taker()
				}
				a.request = id
				r, err := a.within(ctx, c, args[0], &l, who)
				if r == nil && err == nil {
					r, err = a.acquire(ctx, c, args[0], &l, who)
				}
				if err != nil {
					return err
				}
				err = a.answerAcquire(ctx, c, r, withProof)
				if err == nil || id.named() { // a repeat prints it
					return err
				}
				if _, kept := a.release(ctx, c, args[0], r.GetToken(), a.drawn(), false); kept != nil {
					return fmt.Errorf("%w; the lock ends with its lease: %v", err, kept)
				}
				return fmt.Errorf("%w; the lock was given back", err)
			})
		},
	}
	l.flags(c.Flags(), "0")
	l.sharedFlag(c.Flags())
	l.markFlags(c.Flags())
	l.permitFlags(c.Flags())
	id.flags(c.Flags())
	c.Flags().BoolVar(&withProof, "proof", false, "print a proof, too, on a second line: see holdfast proof")
	return c
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) renewCommand() *cobra.Command {
	var token uint64
	var ttl time.Duration
	var id identity
	c := &cobra.Command{
		Use: "renew LOCK [--token N] [--ttl DURATION]", Short: "Renew a lease for its TTL, or for a longer one", Args: exactly("LOCK"),
		Long: "Renew a lease: it lasts for its TTL from now on. With --ttl, it gets that TTL first, which stays: every later\n" +
			"renewal lasts as long. A TTL that is shorter than the present one, or longer than the --max-hold, is refused.",
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("ttl") && ttl <= 0 {
				return usagef("--ttl %v: use a duration like 30s", ttl)
			}
			if err := firstError(id.check(), a.mustToken(c, args[0], &token)); err != nil {
				return err
			}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := a.renew(ctx, c, args[0], token, ttl, id)
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) {
					fmt.Fprintf(w, "%s: %v left\n", args[0], wire.Millis(r.GetTtlMs()))
					askText(w, wire.AskBodyOf(r.GetAsk()))
				})
			})
		},
	}
	tokenFlag(c, &token, tokenUse)
	c.Flags().DurationVar(&ttl, "ttl", 0, "a TTL for the lease that is not shorter than its own (default: it keeps its own)")
	id.flags(c.Flags())
	return c
}

// renew renews a lease for its TTL or, if ttl is not 0, for that one.
func (a *app) renew(ctx context.Context, c *remote.Caller, lock string, token uint64, ttl time.Duration, id identity) (*pb.Answer, error) {
	if ttl == 0 { // a repeat does no harm
		q := &pb.RenewLeaseRequest{Lock: lock, Token: token}
		return remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.RenewLease(ctx, q) })
	}
	id = a.identify(id)
	q := &pb.ExtendRequest{ClientId: id.client, RequestId: id.request, Lock: lock, Token: token, TtlMs: wire.FloorMillis(ttl)}
	return remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Extend(ctx, q) })
}

func (a *app) metadataCommand() *cobra.Command {
	var token uint64
	var id identity
	c := &cobra.Command{
		Use: "metadata LOCK [--token N] TEXT", Short: "Replace the metadata of a lock that is held", Args: exactly("LOCK", "TEXT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := firstError(id.check(), a.mustToken(c, args[0], &token)); err != nil {
				return err
			}
			id := a.identify(id)
			q := &pb.SetMetadataRequest{ClientId: id.client, RequestId: id.request, Lock: args[0], Token: token, Metadata: args[1]}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.SetMetadata(ctx, q) })
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) { fmt.Fprintf(w, "%s: says %q\n", args[0], args[1]) })
			})
		},
	}
	tokenFlag(c, &token, tokenUse)
	id.flags(c.Flags())
	return c
}

func (a *app) downgradeCommand() *cobra.Command {
	var token uint64
	var id identity
	c := &cobra.Command{
		Use: "downgrade LOCK [--token N]", Short: "Turn an exclusive lock into a shared one", Args: exactly("LOCK"),
		Long: "Turn an exclusive lock into a shared one: all clients that wait to share it get it at once.\n" +
			"The token stays valid, but can no longer append. There is no upgrade: release the lock, and acquire it again.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := firstError(id.check(), a.mustToken(c, args[0], &token)); err != nil {
				return err
			}
			id := a.identify(id)
			q := &pb.DowngradeRequest{ClientId: id.client, RequestId: id.request, Lock: args[0], Token: token}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Downgrade(ctx, q) })
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) { fmt.Fprintf(w, "%s: shared from now on\n", args[0]) })
			})
		},
	}
	tokenFlag(c, &token, tokenUse)
	id.flags(c.Flags())
	return c
}

func (a *app) releaseCommand() *cobra.Command {
	var token uint64
	var done bool
	var id identity
	c := &cobra.Command{
		Use: "release LOCK [--token N] [--done]", Short: "Let go of a lock", Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := firstError(id.check(), a.mustToken(c, args[0], &token)); err != nil {
				return err
			}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := a.release(ctx, c, args[0], token, a.identify(id), done)
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) { fmt.Fprintf(w, "%s: released\n", args[0]) })
			})
		},
	}
	tokenFlag(c, &token, tokenUse)
	c.Flags().BoolVar(&done, "done", false, "the slot for which the lock was acquired, with --once, is done")
	id.flags(c.Flags())
	return c
}

func (a *app) breakCommand() *cobra.Command {
	var token uint64
	var reason, actor string
	var grace time.Duration
	var id identity
	c := &cobra.Command{
		Use:   "break LOCK --reason TEXT",
		Short: "Take a lock from its holder",
		Long: `Take a lock from its holder. From then on the old token is dead: the servers refuse
appends under it. Nothing stops what the holder does elsewhere.

With --grace the holder is asked first: it learns who wants the lock and why, and
the lock is taken when that time is over, unless the holder released it before. The
command returns at once. A failover starts the grace again; another break replaces it.`,
		Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := id.check(); err != nil {
				return err
			}
			if grace < 0 {
				return usagef("--grace %v: use a time from 0 on", grace)
			}
			if actor == "" {
				actor = whoami()
			}
			id := a.identify(id)
			q := &pb.BreakLockRequest{ClientId: id.client, RequestId: id.request, Lock: args[0], Token: token, Actor: actor, Reason: reason, GraceMs: wire.CeilMillis(grace)}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Break(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.BreakLock(ctx, q) })
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) {
					if grace > 0 {
						fmt.Fprintf(w, "%s: its holder is asked to let go; the lock is taken from it in %v, unless it was given back by then\n", args[0], grace)
						return
					}
					fmt.Fprintf(w, "%s: broken\n", args[0])
				})
			})
		},
	}
	tokenFlag(c, &token, "break only the grant with this token")
	c.Flags().DurationVar(&grace, "grace", 0, "ask the holder first, and give it this long to release the lock")
	c.Flags().StringVar(&reason, "reason", "", "why, for the history")
	c.Flags().StringVar(&actor, "actor", "", "who, for the history (default: user@host)")
	required(c, "reason")
	id.flags(c.Flags())
	return c
}

// whoami returns user@host, for people.
func whoami() string {
	name := userName()
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return wire.Clip(name+"@"+host, cluster.MaxText)
}

func (a *app) cancelCommand() *cobra.Command {
	var lock string
	c := &cobra.Command{
		Use:   "cancel CLIENT REQUEST",
		Short: "Cancel a request: it ends now, or never executes",
		Args:  exactly("CLIENT", "REQUEST"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := requestArgs(args)
			if err != nil {
				return err
			}
			q := &pb.CancelRequest{ClientId: id.client, RequestId: id.request}
			return a.atRequest(c.Context(), lock, func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Cancel(ctx, q) })
				if r == nil || err != nil && r.GetStatus() != pb.Status_STATUS_CANCELLED {
					return err
				}
				return a.answer(r, func(w io.Writer) {
					fmt.Fprintf(w, "request %d of client %s: %v\n", id.request, id.client, wire.FromStatus(r.GetStatus()))
				})
			})
		},
	}
	requestLockFlag(c, &lock)
	return c
}

func (a *app) verifyCommand() *cobra.Command {
	var token uint64
	c := &cobra.Command{
		Use: "verify LOCK [--token N]", Short: "Check whether a token is the live one of its lock; it renews nothing",
		Long: `Check whether a token is the live one of its lock; it renews nothing. The exit code is 3
if it is not. The answer was true when the primary gave it, but the grant may have ended
since: a resource that must never obey an old holder remembers the highest token it has seen.
A resource for exclusive holders only must refuse tokens of a shared lock.`,
		Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.mustToken(c, args[0], &token); err != nil {
				return err
			}
			q := &pb.VerifyRequest{Lock: args[0], Token: token}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Verify(ctx, q) })
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) {
					shared := ""
					if r.GetLimit() > 0 {
						shared = fmt.Sprintf(", with %d of %d permits", r.GetWeight(), r.GetLimit())
					} else if r.GetMode() == pb.Mode_MODE_SHARED {
						shared = ", one of those that share the lock"
					}
					fmt.Fprintf(w, "%s: token %d is live%s, %v left\n", args[0], token, shared, wire.Millis(r.GetTtlMs()))
				})
			})
		},
	}
	tokenFlag(c, &token, "the token to verify (default: that of the holdfast run above)")
	return c
}
