// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/auditdir"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

type auditResult struct {
	Status string        `json:"status"`
	Events []audit.Event `json:"events"`
	// More is true if there are older events that match.
	More bool `json:"more"`
	// Damaged counts lines that could not be read.
	Damaged int `json:"damaged_lines"`
	// Unread says which files could not be read, "" if all could.
	Unread string `json:"unread"`
}

func (a *app) auditCommand() *cobra.Command {
	q, since := audit.Query{}, ""
	c := a.onVolume("audit --volume DIR", "Show what was refused to whom, and what operators did", `Show the audit of a volume, the oldest events first: what callers were refused, logins, breaks,
handovers, and commands of operators that changed access rules, keys or what the servers demand.
Times are of the clocks of servers. Who held which lock is in holdfast history.

This reads the volume itself. Type it as the user that the servers run as.`, func(ctx context.Context, dir string, f *osfs.FS) error {
		from, err := readTime("--since", since, time.Now())
		if err != nil {
			return err
		}
		if from != 0 {
			q.Since = time.UnixMilli(from)
		}
		if q.Limit < 1 {
			return usagef("--limit %d: use 1 or more", q.Limit)
		}
		if _, err := volume.ReadCluster(f); err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		r, err := auditdir.Search(ctx, f, q)
		if err != nil && len(r.Events) == 0 {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		out := auditResult{cluster.StatusOK.String(), append([]audit.Event{}, r.Events...), r.More, r.Damaged, ""}
		if err != nil {
			out.Unread = err.Error()
		}
		return a.print(out, func(w io.Writer) { auditText(w, &out) })
	})
	c.Flags().StringVar(&since, "since", "", "what happened at this time or later: 2006-01-02T15:04:05Z, '2006-01-02 15:04', 15:04 (today, or yesterday), or how long ago, as 24h")
	c.Flags().StringVar(&q.Who, "who", "", "only what this identity did, such as user:alice; or an address, for who has shown no identity")
	c.Flags().BoolVar(&q.Denied, "denied", false, "only what was refused, and credentials and logins that failed")
	c.Flags().IntVar(&q.Limit, "limit", 1000, "how many to show at most: the newest")
	return c
}

func auditText(w io.Writer, r *auditResult) {
	if len(r.Events) == 0 {
		fmt.Fprintln(w, "nothing is told of that")
	}
	if r.More {
		fmt.Fprintln(w, "there are older ones: use a larger --limit, or --since")
	}
	for i := range r.Events {
		e := &r.Events[i]
		by := fmt.Sprintf("server %d", e.Server)
		if e.Server == auditdir.Commands {
			by = "command"
		}
		fmt.Fprintf(w, "%s  %s  %s  %s\n", stampText(e.Time, time.Now()), by, e.Kind, wire.OneLine(auditedText(e)))
		for _, line := range e.Diff {
			fmt.Fprintf(w, "    %s\n", wire.OneLine(line))
		}
	}
	if r.Damaged > 0 {
		fmt.Fprintf(w, "%d lines are damaged, and left out\n", r.Damaged)
	}
	if r.Unread != "" {
		fmt.Fprintf(w, "NOT ALL COULD BE READ: %s\n", r.Unread)
	}
}

// auditedText tells what is in an event besides its time, kind and server.
func auditedText(e *audit.Event) string {
	var words []string
	add := func(name string, value any, there bool) {
		if there {
			words = append(words, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add("who", cmp.Or(e.Identity, "nobody"), e.Kind != audit.KindStart && e.Kind != audit.KindRules && e.Kind != audit.KindLost)
	add("via", e.Via, e.Via != "")
	add("actor", e.Actor, e.Actor != "")
	add("from", e.From, e.From != "")
	add("host", e.Host, e.Host != "")
	add("verb", e.Verb, e.Verb != "")
	add("lock", e.Lock, e.Lock != "")
	add("file", e.File, e.File != "")
	add("token", e.Token, e.Token != 0)
	add("to", e.To, e.To != 0)
	add("grace", time.Duration(e.GraceMs)*time.Millisecond, e.GraceMs != 0)
	add("count", e.Count, e.Count != 0)
	add("program", e.Program, e.Program != "")
	add("command", fmt.Sprintf("%q", e.Command), e.Command != "")
	add("access_version", e.Version, e.Version != 0)
	add("reason", fmt.Sprintf("%q", e.Reason), e.Reason != "")
	add("status", e.Status, e.Status != "")
	if e.Message != "" {
		words = append(words, e.Message)
	}
	return strings.Join(words, " ")
}

// audited has a command that changes a volume tell the audit what it did, who typed it, and how the access rules changed.
func (a *app) audited(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		dir, _ := c.Flags().GetString("volume") // it has the flag
		f, err := osfs.Open(dir)
		if err != nil {
			return err
		}
		before, old := newestText(f)
		err = run(c, args)
		if _, mistyped := errors.AsType[*usageError](err); mistyped {
			return errors.Join(err, f.Close())
		}
		e := audit.Event{Kind: audit.KindCommand, Identity: "user:" + auth.UserName(), Via: "volume", Actor: a.Getenv("SUDO_USER"), Command: commandLine(c, args), Status: cluster.StatusOK.String()}
		e.Host, _ = os.Hostname() // it is for people
		if _, untold := errors.AsType[*untoldError](err); err != nil && !untold {
			e.Status, e.Message = cluster.StatusError.String(), err.Error()
		}
		if after, text := newestText(f); after != before {
			e.Version, e.Diff = after, rules.Diff(old, text)
		}
		if auditErr := writeAudit(f, e); auditErr != nil && e.Message == "" {
			fmt.Fprintf(a.Stderr, "this is not in the audit: %v\n", auditErr)
		}
		return errors.Join(err, f.Close())
	}
	return c
}

// newestText returns the newest version of the access rules, as far as it can be read.
func newestText(f *osfs.FS) (n uint64, text []byte) {
	n, err := newestVersion(f)
	if err == nil && n > 0 {
		text, _ = volume.ReadRules(f, n) // one that cannot be read was no rule to anybody
	}
	return n, text
}

// commandLine returns a command as it was typed, without the volume. Its arguments and flags are no secrets.
func commandLine(c *cobra.Command, args []string) string {
	words := append(strings.Fields(c.CommandPath())[1:], args...)
	every := c.InheritedFlags() // those of all commands
	c.Flags().Visit(func(x *pflag.Flag) {
		if x.Name != "volume" && every.Lookup(x.Name) == nil {
			words = append(words, "--"+x.Name+"="+x.Value.String())
		}
	})
	return strings.Join(words, " ")
}

// writeAudit writes one event, in a file of its own.
func writeAudit(f *osfs.FS, e audit.Event) error {
	if _, err := volume.ReadCluster(f); err != nil {
		return err // it is no volume, and gets no directory
	}
	e.Time, e.Server = time.Now(), auditdir.Commands
	w := auditdir.NewWriter(f, auditdir.Commands)
	err := w.Begin(auditdir.Day(e.Time), math.MaxInt64)
	if err == nil {
		err = w.Append(e.AppendLine(nil))
	}
	return errors.Join(err, w.Close())
}
