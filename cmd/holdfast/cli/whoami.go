// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show for whom the servers take you",
		Long: `Show for whom the servers take you, by which credential, until when, and whether there are
access rules.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.askWho(c.Context(), &pb.WhoAmIRequest{}, func(r *pb.WhoAmIResponse) error {
				return a.print(wire.WhoAmIBodyOf(r), func(w io.Writer) { whoText(w, r) })
			})
		},
	}
}

func (a *app) canCommand() *cobra.Command {
	q := &pb.WhoAmIRequest{}
	c := &cobra.Command{
		Use:   "can VERB [LOCK]",
		Short: "Ask whether the access rules let you, or somebody, do something",
		Long: `Ask whether the access rules let you do something with a lock, and a protected file. VERB is
acquire, read, append, break or admin. If not, it says why, and exits with 5. If so, it lists the
limits that quotas set for you, and for the lock and the file.

  holdfast can append reports/daily --file reports/daily.log
  holdfast can acquire reports/daily --as service:ci --group group:robots`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if q.Verb = args[0]; len(args) > 1 {
				q.Lock = args[1]
			}
			return a.askWho(c.Context(), q, func(r *pb.WhoAmIResponse) error {
				if !r.GetAllowed() {
					return &wire.Error{Status: cluster.StatusPermissionDenied, Message: r.GetWhy()}
				}
				return a.print(wire.WhoAmIBodyOf(r), func(w io.Writer) {
					fmt.Fprintf(w, "yes, as %s\n", cmp.Or(q.As, nameOf(r)))
					limitsText(w, r)
				})
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&q.File, "file", "", "and with this protected file")
	fl.StringVar(&q.As, "as", "", "ask it of this identity, such as service:ci; for administrators")
	fl.StringArrayVar(&q.AsGroups, "group", nil, "with --as: a group of that identity, such as group:robots (repeatable)")
	return c
}

// askWho asks any server, and calls f with its answer.
func (a *app) askWho(ctx context.Context, q *pb.WhoAmIRequest, f func(*pb.WhoAmIResponse) error) error {
	return a.withCaller(ctx, func(ctx context.Context, c *remote.Caller) error {
		r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.WhoAmIResponse, error) { return s.WhoAmI(ctx, q) })
		if err != nil {
			return err
		}
		return f(r)
	})
}

// nameOf returns the identity of an answer, for people.
func nameOf(r *pb.WhoAmIResponse) string {
	switch {
	case r.GetIdentity() == "":
		return "somebody without a credential"
	case r.GetVia() == "":
		return r.GetIdentity()
	}
	return fmt.Sprintf("%s (%s)", r.GetIdentity(), r.GetVia())
}

func whoText(w io.Writer, r *pb.WhoAmIResponse) {
	fmt.Fprint(w, nameOf(r))
	if len(r.GetGroups()) > 0 {
		fmt.Fprintf(w, ", of %s", strings.Join(r.GetGroups(), ", "))
	}
	if r.GetOperator() {
		fmt.Fprint(w, ", an operator: may do everything")
	}
	fmt.Fprintln(w)
	if t := wire.Moment(r.GetExpiresUnixMs()); t != 0 {
		fmt.Fprintf(w, "the credential expires at %s\n", timeText(t.Time(), time.Now()))
	}
	if r.GetRules() == 0 {
		fmt.Fprintln(w, "the volume has no access rules: everybody may do everything")
	} else {
		fmt.Fprintf(w, "access rules: version %d\n", r.GetRules())
	}
	limitsText(w, r)
}

// limitsText lists the limits of an answer.
func limitsText(w io.Writer, r *pb.WhoAmIResponse) {
	for _, x := range r.GetLimits() {
		fmt.Fprintf(w, "at most %s = %d", x.GetName(), x.GetMost())
		if x.GetPrefix() != "" {
			fmt.Fprintf(w, " for all callers together below %q", x.GetPrefix())
		}
		fmt.Fprintln(w)
	}
}
