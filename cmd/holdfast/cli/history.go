// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const historyHelp = `Show who had a lock, from when to when, and why it ended; the newest first.

Any server answers, from its memory and from the files under history/ on the share.
Plain releases above a rate (2,000 a second) are only counted; the output says what is
left out or not known. Times are by the clocks of the primaries, for people.

  holdfast history                                   the latest grants of all locks
  holdfast history billing/job --at 03:00            who had it then
  holdfast history billing/job --since 24h           what ended in the last day
  holdfast history billing/job --token 4711          what became of this grant
  holdfast history billing/ --prefix                 all locks whose names begin with it
  holdfast history billing/job --volume /mnt/share   without any server`

func (a *app) historyCommand() *cobra.Command {
	var from source
	var prefix bool
	var token uint64
	var at, since string
	var limit int
	c := &cobra.Command{
		Use: "history [LOCK]", Short: "Show who had a lock, from when to when, and why it ended", Long: historyHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				prefix, args = true, []string{""}
			}
			q := &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: args[0]}, Token: token}
			if prefix {
				q.Target = &pb.HistoryRequest_Prefix{Prefix: args[0]}
			}
			cells := of(args[0])
			if prefix {
				cells = under(args[0])
			}
			var err error
			if q.AtUnixMs, err = readTime("--at", at, a.now()); err != nil {
				return err
			}
			if q.SinceUnixMs, err = readTime("--since", since, a.now()); err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit %d: use 1 or more", limit)
			}
			return a.withReader(c.Context(), &from, cells, func(ctx context.Context, r reader) (any, func(io.Writer), error) {
				b, err := historyAll(ctx, r, q, limit)
				return b, func(w io.Writer) { historyText(w, &b, q, a.now()) }, err
			})
		},
	}
	c.Flags().BoolVar(&prefix, "prefix", false, "LOCK is the beginning of names")
	tokenFlag(c, &token, "only the grant with this token")
	c.Flags().StringVar(&at, "at", "", "who had it at this time: 2006-01-02T15:04:05Z, '2006-01-02 15:04', 15:04 (today, or yesterday), or how long ago, as 90m")
	c.Flags().StringVar(&since, "since", "", "what ended at this time or later, likewise")
	c.Flags().IntVar(&limit, "limit", 50, "how many to show at most")
	c.Flags().StringVar(&from.volume, "volume", "", "read this volume only, and ask no server: for when none runs")
	return c
}

// readTime parses a time of day, or how long ago it was, into milliseconds since 1970; "" is 0.
func readTime(flag, text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if d, err := parseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UnixMilli(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.UnixMilli(), nil
	}
	for _, layout := range []string{timeLayout, stampLayout, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UnixMilli(), nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		t, err := time.ParseInLocation(layout, text, now.Location())
		if err != nil {
			continue
		}
		t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		if t.After(now) {
			t = t.AddDate(0, 0, -1) // a time still to come today means yesterday
		}
		return t.UnixMilli(), nil
	}
	return 0, usagef("%s %q: use 2006-01-02T15:04:05Z, '2006-01-02 15:04', 15:04, or how long ago, as 90m", flag, text)
}

// historyPage is how many grants one call requests.
const historyPage = 1000

// historyAll reads pages up to the limit. Epoch, LSN and age of the result are the first page's.
func historyAll(ctx context.Context, r reader, q *pb.HistoryRequest, limit int) (all wire.HistoryBody, err error) {
	for page := 0; ; page++ {
		q.Limit = uint32(min(limit-len(all.Grants), historyPage))
		x, err := r.History(ctx, q)
		if err != nil {
			return all, err
		}
		b := wire.HistoryBodyOf(x)
		if page == 0 {
			all = b
			cutGrants(&all, limit)
		} else {
			all.Grants = append(all.Grants, b.Grants...)
			all.NextLSN, all.NextToken, all.FromLSN = b.NextLSN, b.NextToken, b.FromLSN
			all.Skipped, all.Gaps = joinSkipped(all.Skipped, b.Skipped), append(all.Gaps, b.Gaps...)
			all.Message = cmp.Or(b.Message, all.Message)
		}
		if all.NextLSN == 0 || len(all.Grants) >= limit {
			return all, nil
		}
		q.BeforeLsn, q.BeforeToken = all.NextLSN, all.NextToken
	}
}

// cutGrants leaves the first limit grants of a first page, which has as many live ones and as many that ended.
func cutGrants(b *wire.HistoryBody, limit int) {
	if len(b.Grants) <= limit {
		return
	}
	b.Grants = b.Grants[:limit]
	last := &b.Grants[limit-1]
	b.NextLSN, b.NextToken = cmp.Or(last.LSN, b.LSN+1), last.Token // what ended after the last live one is still to come
}

// joinSkipped joins the ranges of releases that two pages only counted, b's being the older one.
func joinSkipped(a, b *wire.HistoryRange) *wire.HistoryRange {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &wire.HistoryRange{From: min(a.From, b.From), To: max(a.To, b.To), Count: a.Count + b.Count}
}

func historyText(w io.Writer, b *wire.HistoryBody, q *pb.HistoryRequest, now time.Time) {
	if len(b.Grants) == 0 {
		fmt.Fprintln(w, nobodyText(q, now))
	} else {
		table(w, func(row func(...any)) {
			row("LOCK", "TOKEN", "SINCE", "HELD", "END", "HOLDER")
			for i := range b.Grants {
				g := &b.Grants[i]
				row(g.Lock, g.Token, timeText(g.Since.Time(), now), lastedText(g, now), endText(g), pastText(g))
			}
		})
	}
	if b.NextLSN != 0 {
		fmt.Fprintln(w, "there are more: use a larger --limit")
	}
	if k := b.Skipped; k != nil {
		fmt.Fprintf(w, "not listed one by one: up to %d plain releases between LSN %d and %d, of these locks and others\n", k.Count, k.From, k.To)
	}
	for _, g := range b.Gaps {
		fmt.Fprintf(w, "not known: what ended between LSN %d and %d\n", g.From, g.To)
	}
	if b.KeptLSN != 0 && b.FromLSN <= b.KeptLSN {
		fmt.Fprintf(w, "not kept any more: what ended up to LSN %d\n", b.KeptLSN)
	}
	if b.Message != "" {
		fmt.Fprintln(w, b.Message)
	}
}

func nobodyText(q *pb.HistoryRequest, now time.Time) string {
	if q.GetAtUnixMs() == 0 {
		return "no grant is known"
	}
	return fmt.Sprintf("no holder is known at %s, by the clocks of the primaries", timeText(time.UnixMilli(q.GetAtUnixMs()), now))
}

// lastedText shows how long a grant lasted, or has lasted if it is still held.
func lastedText(g *wire.PastBody, now time.Time) string {
	until := g.Ended
	if g.LSN == 0 { // it has not ended
		until = wire.Moment(now.UnixMilli())
	}
	if g.Since == 0 || until < g.Since {
		return "-"
	}
	return spanText(time.Duration(until-g.Since) * time.Millisecond)
}

// pastText describes who had a grant.
func pastText(g *wire.PastBody) string {
	s := g.Person()
	if g.Limit > 0 {
		s += ", " + permitsText(g.Weight, g.Limit)
	} else if g.Mode == sharedWord {
		s += ", shared"
	}
	return s
}

// endText describes how a grant ended.
func endText(g *wire.PastBody) string {
	s := g.Why
	switch {
	case g.Why == "released_by_other":
		s = "released by " + wire.OneLine(g.Actor)
	case g.Why == "broken":
		s = fmt.Sprintf("broken by %s: %q", wire.OneLine(g.Actor), g.Reason)
	case g.Reason != "":
		s += " (" + g.Reason + ")"
	}
	if g.SuccessorToken != 0 {
		s += fmt.Sprintf(", then token %d", g.SuccessorToken)
	}
	return s
}
