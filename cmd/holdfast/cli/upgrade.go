// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// upgradeFlags are the flags of `holdfast upgrade`.
type upgradeFlags struct {
	check, finish bool
	wait          time.Duration
}

func (a *app) upgradeCommand() *cobra.Command {
	f := &upgradeFlags{}
	c := &cobra.Command{
		Use:   "upgrade --check | --finish",
		Short: "Tell how far an upgrade of the servers is, and finish it",
		Args: func(c *cobra.Command, args []string) error {
			if f.check == f.finish {
				return usagef("upgrade: give --check, which changes nothing, or --finish")
			}
			return cobra.NoArgs(c, args)
		},
		Long: `Tell how far an upgrade of the servers is, and finish it.

Servers of two adjacent versions work together, in any order. What the older one could not
read is not written before the upgrade is finished, so until then every server may be
taken back to the older version.

--check shows which version each server runs, the feature level that each knows, and that of
the cluster; what --finish would change, and what it waits for. It changes nothing. The exit
code is 1 while something is waited for.

--finish raises the feature level of the cluster to the one that all servers know. Older
binaries refuse the cluster from then on: there is no way back. The primary does it when every
server has said for 10 s that it knows the level; --finish waits for that as long as --wait
says. To repeat it is harmless. It needs the rights of an administrator.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				if f.finish {
					return a.finishUpgrade(ctx, c, f.wait)
				}
				return a.checkUpgrade(ctx, c)
			})
		},
	}
	c.Flags().BoolVar(&f.check, "check", false, "show how far the upgrade is; change nothing")
	c.Flags().BoolVar(&f.finish, "finish", false, "raise the feature level of the cluster; older binaries refuse it from then on")
	c.Flags().DurationVar(&f.wait, "wait", 15*time.Second, "how long --finish waits for the servers")
	return c
}

// upgradeBody is what --check tells, in JSON.
type upgradeBody struct {
	Status    string          `json:"status"`
	ClusterID string          `json:"cluster_id"`
	Level     uint32          `json:"feature_level"`
	Next      uint32          `json:"next_level"` // what --finish would raise it to; 0 = nothing is to be finished
	WaitsFor  []string        `json:"upgrade_waits_for"`
	Changes   []string        `json:"changes"` // what --finish would change
	Servers   []upgradeServer `json:"servers"`
}

type upgradeServer struct {
	ID      uint32 `json:"id"`
	Role    string `json:"role"`
	Version string `json:"version"`       // "" = it does not answer
	Level   uint32 `json:"feature_level"` // 0 = not known
}

func (a *app) checkUpgrade(ctx context.Context, c *remote.Caller) error {
	r, err := primaryStatus(ctx, c)
	if err != nil {
		return err
	}
	askEach(ctx, c, r)
	b := upgradeBodyOf(r)
	if len(b.WaitsFor) > 0 {
		a.code = exitFindings
	}
	return a.print(b, func(w io.Writer) { upgradeText(w, &b) })
}

// finishUpgrade waits until the primary waits for nothing more, and asks it to raise the level.
func (a *app) finishUpgrade(ctx context.Context, c *remote.Caller, wait time.Duration) error {
	r, err := primaryStatus(ctx, c)
	if err != nil {
		return err
	}
	t := time.NewTicker(min(max(wait, 1), time.Second))
	defer t.Stop()
	for end := time.Now().Add(wait); len(r.GetUpgradeWaitsFor()) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		if r, err = primaryStatus(ctx, c); err != nil {
			return err
		}
	}
	// It is sent in any case: the primary decides, and is told to whom the upgrade is refused.
	q := &pb.UpgradeRequest{Level: max(r.GetNextLevel(), r.GetFeatureLevel())}
	x, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Upgrade(ctx, q) })
	if err != nil {
		return err
	}
	return a.answer(x, func(w io.Writer) { fmt.Fprintln(w, x.GetMessage()) })
}

// primaryStatus returns the status that the primary gives: it alone knows what an upgrade waits for.
func primaryStatus(ctx context.Context, c *remote.Caller) (*pb.StatusResponse, error) {
	status := func(c *remote.Caller) (*pb.StatusResponse, error) {
		return remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
			return s.Status(ctx, &pb.StatusRequest{})
		})
	}
	r, err := status(c)
	if err == nil && r.GetRole() != pb.Role_ROLE_PRIMARY {
		if r.GetPrimary() == nil || r.GetGateway() { // which will find it
			return nil, errors.New("no server is primary now: see holdfast status, and try again")
		}
		var other *remote.Caller
		if other, err = c.Other(r.GetPrimary().GetClient()); err != nil {
			return nil, err
		}
		defer other.Close() //nolint:errcheck // nothing is in flight
		r, err = status(other)
	}
	switch {
	case err != nil:
		return nil, err
	case r.GetRole() != pb.Role_ROLE_PRIMARY:
		return nil, fmt.Errorf("server %d was said to be primary and is not now: see holdfast status, and try again", r.GetServerId())
	case r.GetFeatureLevel() == 0:
		return nil, errors.New("the primary tells no feature level of the cluster: it runs an older version, or you may not read (see holdfast whoami). Upgrade all servers first")
	}
	return r, nil
}

// mostChanges is more than the levels between two versions that work together.
const mostChanges = 8

func upgradeBodyOf(r *pb.StatusResponse) upgradeBody {
	s := wire.StatusBodyOf(r)
	b := upgradeBody{
		Status: s.Status, ClusterID: s.ClusterID, Level: s.FeatureLevel, Next: s.NextLevel, WaitsFor: s.UpgradeWaitsFor,
		Changes: []string{}, Servers: []upgradeServer{},
	}
	for level := b.Level; level < b.Next && len(b.Changes) < mostChanges; { // over plain text any process can tell a high one
		level++
		b.Changes = append(b.Changes, levelMeans(level))
	}
	for _, x := range s.Servers {
		b.Servers = append(b.Servers, upgradeServer{x.ID, x.Role, x.Version, x.FeatureLevel})
	}
	return b
}

// levelMeans tells what a cluster has from a feature level on.
func levelMeans(level uint32) string {
	switch level {
	case 4:
		return "level 4: the log holds the feature level; older binaries refuse the cluster. Nothing else changes"
	case 5:
		return "level 5: the log can hold a list of servers; older binaries refuse the cluster. Nothing else changes"
	case 6:
		return "level 6: locks can remember their last token, and what is done once; older binaries refuse the cluster. Nothing else changes"
	case 7:
		return "level 7: locks can have a limit of permits; older binaries refuse the cluster. Nothing else changes"
	case 8:
		return "level 8: volumes that are made can be cells of a site; older binaries refuse the cluster. Nothing else changes"
	}
	return fmt.Sprintf("level %d: see the changes of the version that has it; this holdfast does not know it", level)
}

func upgradeText(w io.Writer, b *upgradeBody) {
	fmt.Fprintf(w, "cluster %s has feature level %d\n", b.ClusterID, b.Level)
	table(w, func(row func(...any)) {
		row("ID", "ROLE", "VERSION", "KNOWS LEVEL")
		for _, s := range b.Servers {
			level := "-"
			if s.Level > 0 {
				level = fmt.Sprint(s.Level)
			}
			row(s.ID, s.Role, cmp.Or(s.Version, "-"), level)
		}
	})
	if b.Next == 0 {
		fmt.Fprintln(w, "nothing is to be finished: no server knows a higher level")
		return
	}
	fmt.Fprintf(w, "holdfast upgrade --finish raises it to %d, and there is no way back then:\n", b.Next)
	for _, s := range b.Changes {
		fmt.Fprintf(w, "  %s\n", s)
	}
	if len(b.WaitsFor) == 0 {
		fmt.Fprintln(w, "all servers are ready for it")
		return
	}
	fmt.Fprintln(w, "it waits for:")
	for _, s := range b.WaitsFor {
		fmt.Fprintf(w, "  %s\n", s)
	}
}
