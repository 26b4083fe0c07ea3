// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func (a *app) whyCommand() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use:   "why LOCK",
		Short: "Explain why a lock is not available: who holds it, since when, who waits, and what to do",
		Args:  exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), &from, of(args[0]), func(ctx context.Context, r reader) (any, func(io.Writer), error) {
				b, err := why.Ask(ctx, r, args[0], from.primaryOnly())
				now := a.now()
				return b, func(w io.Writer) { whyText(w, &b, now) }, err
			})
		},
	}
	from.flags(c)
	return c
}

// ringText prints clients that wait for each other; nothing if there are none.
func ringText(w io.Writer, ring []wire.RingLinkBody) {
	if len(ring) == 0 {
		return
	}
	fmt.Fprintln(w, "  a ring of clients that wait for each other:")
	for i := range ring {
		x, next := &ring[i], &ring[(i+1)%len(ring)]
		fmt.Fprintf(w, "    %s waits for %s, held by %s under token %d\n", x.Person(), x.Lock, next.Person(), x.Token)
	}
}

func whyText(w io.Writer, b *why.Body, now time.Time) {
	l := &b.Lock
	if l.Token == 0 {
		fmt.Fprintf(w, "%s is free\n", l.Lock)
	} else {
		fmt.Fprintf(w, "%s is held by %s\n", l.Lock, holderText(l.Holder))
		fmt.Fprintf(w, "  since %s, under token %d, client %s\n", timeText(l.Since.Time(), now), l.Token, l.Holder.Client)
		if b.Silent != "" {
			fmt.Fprintf(w, "  lease of %s, renewed %s ago, %s left\n", l.TTL, b.Silent, l.Remaining)
		} else {
			fmt.Fprintf(w, "  lease of %s; what is left of it is not known here\n", l.TTL)
		}
		if l.MaxHold != "0s" {
			fmt.Fprintf(w, "  it ends after %s, however often it is renewed\n", l.MaxHold)
		}
	}
	restText(w, l, func(x *wire.WaiterBody) string { return "since " + timeText(x.Since.Time(), now) })
	if more := int(l.QueueLength) - len(l.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiting\n", more)
	}
	for _, f := range l.Files {
		fmt.Fprintf(w, "  guards file %s, %d bytes\n", f.File, f.End)
	}
	for i := range b.Endings {
		g := &b.Endings[i]
		fmt.Fprintf(w, "  before: token %d of %s, until %s: %s\n", g.Token, pastText(g), timeText(g.Ended.Time(), now), endText(g))
	}
	if b.Missing {
		fmt.Fprintf(w, "  the history may lack grants that ended: see holdfast history %s\n", l.Lock)
	}
	ringText(w, b.Ring)
	fmt.Fprintf(w, "advice: %s\n", b.Advice)
}
