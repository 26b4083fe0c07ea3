// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// takeoverFlags are the flags of `holdfast takeover`.
type takeoverFlags struct {
	yes    bool
	server uint32
	reason string
	wait   time.Duration
}

func (a *app) takeoverCommand() *cobra.Command {
	f := &takeoverFlags{}
	c := &cobra.Command{
		Use:   "takeover --yes [--server ID]",
		Short: "Have the last server standing be primary without a majority, once",
		Long: `Have the last server standing be primary without a majority, once.

Of three servers a primary needs two, of five three. Where the others never come back, or not
soon enough, this permits one server to be primary all the same. Nothing is lost by it: what
is stored on the volume decides as ever who may answer.

The server refuses while it hears a primary or a majority, and while it sees on the volume
that another server goes on as primary. The permission is for one term: a server that is
started again needs another one. When enough of the others are back, none is needed.

Of two servers, the other one takes over by itself. This command needs the rights of an
administrator, and the audit tells of it.`,
		Args: func(c *cobra.Command, args []string) error {
			if !f.yes {
				return usagef("takeover: make sure that the other servers are gone for good, or cannot come back soon, and give --yes")
			}
			return cobra.NoArgs(c, args)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error { return a.takeOver(ctx, c, f) })
		},
	}
	c.Flags().BoolVar(&f.yes, "yes", false, "the other servers are gone for good")
	c.Flags().Uint32Var(&f.server, "server", 0, "the server that is to take over (default: the first that answers)")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit")
	c.Flags().DurationVar(&f.wait, "wait", 20*time.Second, "how long to wait until the server serves")
	return c
}

// takeOver asks one server only: another one must not take over as well because an answer was lost.
func (a *app) takeOver(ctx context.Context, c *remote.Caller, f *takeoverFlags) error {
	r, err := readStatus(ctx, c)
	if err != nil {
		return err
	}
	id, addr := f.server, ""
	if id == 0 {
		id = r.GetServerId()
	}
	for _, s := range r.GetServers() {
		if s.GetId() == id {
			addr = s.GetClient()
		}
	}
	if addr == "" {
		return usagef("takeover: there is no server %d: see holdfast status", id)
	}
	one, err := c.Other(addr)
	if err != nil {
		return err
	}
	defer one.Close() //nolint:errcheck // nothing is in flight
	q := &pb.TakeoverRequest{Server: id, Reason: strings.TrimPrefix(f.reason+", holdfast takeover by "+whoami(), ", ")}
	x, err := remote.Once(ctx, one, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Takeover(ctx, q) })
	if err != nil {
		return err
	}
	if !awaitStatus(ctx, one, f.wait, func(r *pb.StatusResponse) bool { return serves(r, id) }) {
		return fmt.Errorf("server %d was permitted to take over, and does not serve after %v: holdfast status tells why", id, f.wait)
	}
	if !serves(r, id) { // else it was primary before, and says so
		x.Message = fmt.Sprintf("server %d is primary, without a majority", id)
	}
	return a.answer(x, func(w io.Writer) { fmt.Fprintln(w, x.GetMessage()) })
}
