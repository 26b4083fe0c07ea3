// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func (a *app) listCommand() *cobra.Command {
	var from source
	var long bool
	c := &cobra.Command{
		Use: "ls [PREFIX]", Short: "List the locks that are held, waited for or have files", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := &pb.ListLocksRequest{PrimaryOnly: from.primaryOnly()}
			if len(args) > 0 {
				q.Prefix = args[0]
			}
			if from.volume == "" {
				all, r, err := a.listEverywhere(c.Context(), q)
				if err != nil {
					return err
				}
				defer a.noteAge(r)
				return a.print(all, func(w io.Writer) { listText(w, all.Locks, long, a.now()) })
			}
			return a.withReader(c.Context(), &from, under(""), func(ctx context.Context, r reader) (any, func(io.Writer), error) {
				all, err := listAll(ctx, r, q)
				return all, func(w io.Writer) { listText(w, all.Locks, long, a.now()) }, err
			})
		},
	}
	c.Flags().BoolVarP(&long, "long", "l", false, "since when each is held, too, the client's ID, and its metadata")
	from.flags(c)
	return c
}

// listAll reads all pages. Epoch, LSN and age of the result are the last page's.
func listAll(ctx context.Context, from reader, q *pb.ListLocksRequest) (wire.LocksBody, error) {
	all := wire.LocksBody{Locks: []wire.LockBody{}}
	for {
		r, err := from.ListLocks(ctx, q)
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

func listText(w io.Writer, locks []wire.LockBody, long bool, now time.Time) {
	table(w, func(row func(...any)) {
		head := []any{"LOCK", "TOKEN", "HOLDER", "REMAINING", "WAITING", "FILES"}
		if long {
			head = append(head, "SINCE", "CLIENT", "METADATA")
		}
		row(head...)
		for i := range locks {
			l := &locks[i]
			left, since, client := cmp.Or(l.Remaining, "-"), timeText(l.Since.Time(), now), "-"
			if l.Token == 0 {
				left, since = "-", "-"
			}
			if l.Holder != nil {
				client = string(l.Holder.Client)
			}
			cells := []any{l.Lock, tokenText(l.Token), holderText(l.Holder), left, l.QueueLength, l.FileCount}
			if long {
				cells = append(cells, since, client, wire.OneLine(l.Metadata))
			}
			row(cells...)
		}
	})
}

func tokenText(token uint64) string {
	if token == 0 {
		return "-"
	}
	return strconv.FormatUint(token, 10)
}

// sharedWord is the mode, in JSON, of a lock that is held, or waited for, in shared mode.
const sharedWord = "shared"

func holderText(h *wire.Holder) string {
	if h == nil {
		return "-"
	}
	s := h.Person()
	switch {
	case h.Limit > 0:
		if h.Holders > 1 {
			s += fmt.Sprintf(" and %d more", h.Holders-1)
		}
		if h.Holders > 1 && h.PermitsTaken == 0 { // a watch does not always tell
			return s + fmt.Sprintf(", of %d permits", h.Limit)
		}
		return s + ", " + permitsText(cmp.Or(h.PermitsTaken, h.Weight), h.Limit)
	case h.Holders > 1:
		s += fmt.Sprintf(" and %d more, shared", h.Holders-1)
	case h.Mode == sharedWord:
		s += ", shared"
	}
	return s
}

// permitsText says how many permits of a limit are taken, or asked for.
func permitsText(weight, limit uint32) string {
	return fmt.Sprintf("%d of %d permits", weight, limit)
}

// ownPermits says how many permits one of several holders has, with a comma behind; "" for a lock without a limit.
func ownPermits(h *wire.Holder) string {
	if h.Limit == 0 {
		return ""
	}
	return counted(uint64(h.Weight), "permit") + ", "
}

func (a *app) showCommand() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use: "show LOCK", Short: "Show who holds a lock, who waits for it and which files it guards", Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			q := &pb.GetLockRequest{Lock: args[0], PrimaryOnly: from.primaryOnly()}
			return a.withReader(c.Context(), &from, of(args[0]), func(ctx context.Context, r reader) (any, func(io.Writer), error) {
				x, err := r.GetLock(ctx, q)
				if err != nil {
					return nil, nil, err
				}
				b := wire.LockBodyOf(x)
				return b, func(w io.Writer) { showText(w, &b, a.now()) }, nil
			})
		},
	}
	from.flags(c)
	return c
}

// restText prints what a lock has beside its first holder: sharers, waiters, files. since formats
// how long a waiter has waited.
func restText(w io.Writer, l *wire.LockBody, since func(*wire.WaiterBody) string) {
	if l.Metadata != "" {
		fmt.Fprintf(w, "  says %q\n", l.Metadata)
	}
	askText(w, l.Ask)
	sharersText(w, l)
	for i := range l.Waiters {
		x := &l.Waiters[i]
		shared := ""
		if x.Limit > 0 {
			shared = ", for " + permitsText(x.Weight, x.Limit)
		} else if x.Mode == sharedWord {
			shared = ", to share it"
		}
		fmt.Fprintf(w, "  waiting %d: %s, %s%s\n", i+1, x.Person(), since(x), shared)
	}
}

func showText(w io.Writer, l *wire.LockBody, now time.Time) {
	if l.Token == 0 {
		fmt.Fprintf(w, "%s: free\n", l.Lock)
	} else {
		fmt.Fprintf(w, "%s: held by %s\n  token %d, %sTTL %s, %s left%s\n",
			l.Lock, holderText(l.Holder), l.Token, ownPermits(l.Holder), l.TTL, cmp.Or(l.Remaining, "unknown time"), heardText(l.Heard, l.Remaining))
	}
	if l.Since != 0 {
		fmt.Fprintf(w, "  since %s, client %s\n", timeText(l.Since.Time(), now), l.Holder.Client)
	}
	restText(w, l, func(x *wire.WaiterBody) string { return "wait " + x.Wait })
	if more := int(l.QueueLength) - len(l.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiting\n", more)
	}
	if l.LastToken != 0 {
		fmt.Fprintf(w, "  remembers: granted last under token %d\n", l.LastToken)
	}
	if l.Done != "" {
		fmt.Fprintf(w, "  remembers: done up to slot %s, under token %d\n", l.Done, l.DoneToken)
	}
	for _, f := range l.Files {
		fmt.Fprintf(w, "  file %s: generation %d, %d bytes, last LSN %d", f.File, f.Generation, f.End, f.LastLSN)
		if f.Quarantined {
			fmt.Fprintf(w, ", QUARANTINED: %s", f.Reason)
		}
		fmt.Fprintln(w)
	}
}

// heardText is a note about a holder that was not heard since the failover, "" if it was or if
// that is not known: only a primary knows.
func heardText(heard bool, remaining string) string {
	if heard || remaining == "" {
		return ""
	}
	return ", not heard since the failover"
}

// sharersText lists the holders after the one that is shown as the lock's own.
func sharersText(w io.Writer, l *wire.LockBody) {
	for i := range l.SharedWith {
		x := &l.SharedWith[i]
		fmt.Fprintf(w, "  with %s\n    token %d, %sTTL %s, %s left%s\n",
			x.Person(), x.Token, ownPermits(&x.Holder), x.TTL, cmp.Or(x.Remaining, "unknown time"), heardText(x.Heard, x.Remaining))
		if x.Metadata != "" {
			fmt.Fprintf(w, "    says %q\n", x.Metadata)
		}
		askText(w, x.Ask)
	}
	if more := int(l.Holders) - len(l.SharedWith) - 1; more > 0 {
		fmt.Fprintf(w, "  with %d more\n", more)
	}
}

// askText prints who asks a holder to release the lock; nothing if a is nil.
func askText(w io.Writer, a *wire.AskBody) {
	if a != nil {
		fmt.Fprintf(w, "  asked to let go by %s: %q; the lock is taken from it in %s\n", wire.OneLine(a.Actor), a.Reason, cmp.Or(a.Remaining, "an unknown time"))
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
	var lock string
	c := &cobra.Command{
		Use:   "outcome CLIENT REQUEST",
		Short: "Print the result of a request; it changes nothing",
		Args:  exactly("CLIENT", "REQUEST"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := requestArgs(args)
			if err != nil {
				return err
			}
			q := &pb.OutcomeRequest{ClientId: id.client, RequestId: id.request}
			return a.atRequest(c.Context(), lock, func(ctx context.Context, c *remote.Caller) error {
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
	requestLockFlag(c, &lock)
	return c
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
		if o.Place != nil {
			fmt.Fprintf(w, ", %s: %d bytes at offset %d", o.File, o.Length, o.Offset)
		}
		if o.LSN != 0 {
			fmt.Fprintf(w, ", LSN %d", o.LSN)
		}
	}
	fmt.Fprintln(w)
}
