// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func staleFlag(c *cobra.Command, stale *bool) {
	c.Flags().BoolVar(stale, "stale", false, "take any server's answer, which may be old (the age field says how old)")
}

func (a *app) listCommand() *cobra.Command {
	var stale bool
	c := &cobra.Command{
		Use: "ls [PREFIX]", Short: "List the locks that are held, waited for or have files", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := &pb.ListLocksRequest{PrimaryOnly: !stale}
			if len(args) > 0 {
				q.Prefix = args[0]
			}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				all, err := listAll(ctx, c, q)
				if err != nil {
					return err
				}
				return a.print(all, func(w io.Writer) { listText(w, all.Locks) })
			})
		},
	}
	staleFlag(c, &stale)
	return c
}

// listAll follows the pages. Epoch, LSN and age are the last one's.
func listAll(ctx context.Context, c *remote.Caller, q *pb.ListLocksRequest) (wire.LocksBody, error) {
	all := wire.LocksBody{Locks: []wire.LockBody{}}
	for {
		r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListLocksResponse, error) {
			return s.ListLocks(ctx, q)
		})
		if err != nil {
			return all, err
		}
		page := wire.LocksBodyOf(r)
		page.Locks = append(all.Locks, page.Locks...)
		all = page
		if all.Next == "" {
			return all, nil
		}
		q.After = all.Next
	}
}

func listText(w io.Writer, locks []wire.LockBody) {
	table(w, func(row func(...any)) {
		row("LOCK", "TOKEN", "HOLDER", "REMAINING", "WAITING", "FILES")
		for i := range locks {
			l := &locks[i]
			left := cmp.Or(l.Remaining, "-")
			if l.Token == 0 {
				left = "-"
			}
			row(l.Lock, tokenText(l.Token), holderText(l.Holder), left, l.QueueLength, l.FileCount)
		}
	})
}

func tokenText(token uint64) string {
	if token == 0 {
		return "-"
	}
	return strconv.FormatUint(token, 10)
}

func holderText(h *wire.Holder) string {
	if h == nil {
		return "-"
	}
	return person(string(h.Client), h.Host, h.PID, h.Command)
}

func person(client, host string, pid int64, command string) string {
	s := client
	if command != "" {
		s += " " + command
	}
	if host != "" {
		s += fmt.Sprintf(" (pid %d on %s)", pid, host)
	}
	return s
}

func (a *app) showCommand() *cobra.Command {
	var stale bool
	c := &cobra.Command{
		Use: "show LOCK", Short: "Show who holds a lock, who waits for it and which files it guards", Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			q := &pb.GetLockRequest{Lock: args[0], PrimaryOnly: !stale}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
					return s.GetLock(ctx, q)
				})
				if err != nil {
					return err
				}
				b := wire.LockBodyOf(r)
				return a.print(b, func(w io.Writer) { showText(w, &b) })
			})
		},
	}
	staleFlag(c, &stale)
	return c
}

func showText(w io.Writer, l *wire.LockBody) {
	if l.Token == 0 {
		fmt.Fprintf(w, "%s: free\n", l.Lock)
	} else {
		heard := ""
		if !l.Heard {
			heard = ", not heard since the failover"
		}
		fmt.Fprintf(w, "%s: held by %s\n  token %d, TTL %s, %s left%s\n", l.Lock, holderText(l.Holder), l.Token, l.TTL, cmp.Or(l.Remaining, "unknown time"), heard)
	}
	for i, x := range l.Waiters {
		fmt.Fprintf(w, "  waiting %d: %s, wait %s\n", i+1, person(x.ClientID, x.Host, x.PID, x.Command), x.Wait)
	}
	if more := int(l.QueueLength) - len(l.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiting\n", more)
	}
	for _, f := range l.Files {
		fmt.Fprintf(w, "  file %s: generation %d, %d bytes, last LSN %d", f.File, f.Generation, f.End, f.LastLSN)
		if f.Quarantined {
			fmt.Fprintf(w, ", QUARANTINED: %s", f.Reason)
		}
		fmt.Fprintln(w)
	}
}

func requestArgs(args []string) (identity, error) {
	n, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil || n == 0 {
		return identity{}, usagef("request %q: want the number of a request, from 1", args[1])
	}
	return identity{client: args[0], request: n}, nil
}

func (a *app) outcomeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "outcome CLIENT REQUEST",
		Short: "Say what became of a request; it changes nothing",
		Args:  exactly("CLIENT", "REQUEST"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := requestArgs(args)
			if err != nil {
				return err
			}
			q := &pb.OutcomeRequest{ClientId: id.client, RequestId: id.request}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.OutcomeResponse, error) {
					return s.Outcome(ctx, q)
				})
				if err != nil {
					return err
				}
				b := wire.OutcomeBodyOf(r)
				return a.print(b, func(w io.Writer) { outcomeText(w, &b) })
			})
		},
	}
}

func outcomeText(w io.Writer, b *wire.OutcomeBody) {
	fmt.Fprint(w, b.State)
	if o := b.Outcome; o != nil {
		if o.Status != "" {
			fmt.Fprintf(w, ": %s", o.Status)
		}
		if o.Lock != "" {
			fmt.Fprintf(w, ", lock %s", o.Lock)
		}
		if o.Token != 0 {
			fmt.Fprintf(w, ", token %d", o.Token)
		}
		if o.File != "" {
			fmt.Fprintf(w, ", %s: %d bytes at offset %d", o.File, o.Length, o.Offset)
		}
		if o.LSN != 0 {
			fmt.Fprintf(w, ", LSN %d", o.LSN)
		}
	}
	fmt.Fprintln(w)
}
