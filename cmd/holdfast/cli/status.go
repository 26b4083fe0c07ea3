// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the servers, which one is primary, and what needs attention", Args: cobra.NoArgs,
		Long: `Show the servers, which one is primary, and what needs attention.

Exit codes, for monitors: 0 healthy; 1 degraded: the cluster serves, but a server, the
volume's space or a replica needs attention; 2 no server is primary. In JSON health has the
same, and reasons has why.`,
		RunE: func(c *cobra.Command, _ []string) error {
			err := a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				r, err := readStatus(ctx, c)
				if err != nil {
					return err
				}
				if !r.GetGateway() { // through which the others cannot be asked
					askEach(ctx, c, r)
				}
				b := wire.StatusBodyOf(r)
				h := healthOf(&b)
				a.code = h.code
				return a.print(struct {
					wire.StatusBody
					health
				}{b, h}, func(w io.Writer) { statusText(w, &b); healthText(w, &h) })
			})
			if err != nil && exitCode(err) == exitUnavailable {
				return &conflictError{err: err, code: downCode}
			}
			return err
		},
	}
}

func readStatus(ctx context.Context, c *remote.Caller) (*pb.StatusResponse, error) {
	return remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
		return s.Status(ctx, &pb.StatusRequest{})
	})
}

// askEachTime bounds how long one server may take to answer.
const askEachTime = time.Second

// askEach asks every server for its own status: the server that answered r does not know the
// others' process IDs and volumes. The role that a server gives itself replaces the one in r.
func askEach(ctx context.Context, c *remote.Caller, r *pb.StatusResponse) {
	type told struct {
		i int
		s *pb.Server
	}
	answers := make(chan told)
	asked := 0
	for i, s := range r.GetServers() {
		if s.GetId() == r.GetServerId() {
			continue
		}
		asked++
		go func() { answers <- told{i, askOne(ctx, c, s.GetClient(), s.GetId(), r.GetClusterId())} }()
	}
	for range asked {
		if a := <-answers; a.s != nil {
			seen := r.Servers[a.i]
			a.s.Reachable, a.s.HeardAgoMs, a.s.Conflict = seen.GetReachable(), seen.GetHeardAgoMs(), seen.GetConflict() || a.s.GetConflict()
			a.s.Unwaited, a.s.Joining, a.s.Joins = seen.GetUnwaited(), seen.GetJoining(), seen.GetJoins()
			a.s.FeatureLevel = cmp.Or(a.s.GetFeatureLevel(), seen.GetFeatureLevel())
			r.Servers[a.i] = a.s
		}
	}
}

// askOne returns the status that a server of this cluster gives of itself, nil if none answers
// at addr.
func askOne(ctx context.Context, asks *remote.Caller, addr string, id uint32, cluster string) *pb.Server {
	c, err := asks.Other(addr)
	if err != nil {
		return nil
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	ctx, cancel := context.WithTimeout(ctx, askEachTime)
	defer cancel()
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
		return s.Status(ctx, &pb.StatusRequest{Local: true})
	})
	if err != nil || r.GetClusterId() != cluster {
		return nil
	}
	for _, s := range r.GetServers() {
		if s.GetId() == id {
			return s
		}
	}
	return nil
}

func statusText(w io.Writer, b *wire.StatusBody) {
	primary := "no primary"
	if b.Primary != nil {
		primary = fmt.Sprintf("server %d is primary", b.Primary.ID)
	}
	way := ""
	if b.Gateway {
		way = ", through a gateway"
	}
	fmt.Fprintf(w, "cluster %s, epoch %d: %s (according to server %d%s)\n", b.ClusterID, b.Epoch, primary, b.ServerID, way)
	table(w, func(row func(...any)) {
		row("ID", "ROLE", "EPOCH", "LSN", "PID", "CLIENTS", "VOLUME", "HEARD", "VERSION", "NOTE")
		for _, s := range b.Servers {
			heard := cmp.Or(s.HeardAgo, "never")
			if s.ID == b.ServerID {
				heard = "-"
			}
			row(s.ID, s.Role, s.Epoch, s.LSN, pidText(s.PID), clientsAt(&s), cmp.Or(s.Volume.Filesystem, "-"), heard, cmp.Or(s.Version, "-"), serverNote(&s))
		}
	})
	if t := b.Table; t != nil {
		fmt.Fprintf(w, "%s, %d held, %d waiting, %s, %d quarantined, %s%s\n",
			counted(t.Locks, "lock"), t.Held, t.Waiting, counted(t.Files, "file"), t.Quarantined, counted(t.Clients, "client"), unheardText(t.Unheard))
	}
	for _, ring := range b.Rings {
		ringText(w, ring)
	}
	for _, text := range []string{cellText(b.Cell), levelText(b), upgradeable(b)} {
		if text != "" {
			fmt.Fprintln(w, text)
		}
	}
	if b.Message != "" {
		fmt.Fprintln(w, b.Message)
	}
}

// cellText tells which cell of a site this is, "" for none.
func cellText(c *wire.CellBody) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("cell %d of site %s: locks and files of other cells are refused with WRONG_CELL", c.Cell, c.SiteID)
}

// clientsAt returns where a server listens for clients: at two addresses, if its CLUSTER is from when HTTP had its own.
func clientsAt(s *wire.ServerBody) string {
	if s.OldHTTP == "" {
		return s.Client
	}
	return s.Client + "," + s.OldHTTP
}

// levelText names the servers that know fewer records than others, "" if all know the same.
func levelText(b *wire.StatusBody) string {
	lowest, highest := uint32(math.MaxUint32), uint32(0)
	for _, s := range b.Servers {
		if s.FeatureLevel > 0 {
			lowest, highest = min(lowest, s.FeatureLevel), max(highest, s.FeatureLevel)
		}
	}
	if lowest >= highest {
		return ""
	}
	var levels []string
	for _, s := range b.Servers {
		if s.FeatureLevel > 0 {
			levels = append(levels, fmt.Sprintf("server %d has %d", s.ID, s.FeatureLevel))
		}
	}
	return fmt.Sprintf("feature levels differ: %s; what is new at level %d waits until all servers are upgraded", strings.Join(levels, ", "), highest)
}

// upgradeable says that all servers know a higher level than the cluster has, "" if they do not.
func upgradeable(b *wire.StatusBody) string {
	if b.NextLevel == 0 {
		return ""
	}
	for _, s := range b.Servers {
		if s.FeatureLevel < b.NextLevel {
			return ""
		}
	}
	return fmt.Sprintf("the cluster has feature level %d, and all servers know %d: holdfast upgrade --finish raises it, when no server has to go back to an older version any more", b.FeatureLevel, b.NextLevel)
}

// counted formats a number of things, in singular or plural.
func counted(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// unheardText counts the holders that were not heard since a failover, "" if there are none.
func unheardText(n uint64) string {
	if n == 0 {
		return ""
	}
	return ", " + counted(n, "lease") + " not heard in this term"
}

func pidText(pid int64) string {
	if pid == 0 {
		return "-"
	}
	return strconv.FormatInt(pid, 10)
}

func serverNote(s *wire.ServerBody) string {
	note := careNote(s)
	if s.Joining {
		joins := "joins"
		if s.Joins != "" {
			joins += ": " + s.Joins
		}
		note = strings.TrimSuffix(joins+"; "+note, "; ")
	}
	if len(s.Restart) > 0 {
		note = strings.TrimPrefix(note+"; needs a restart for "+strings.Join(s.Restart, ", "), "; ")
	}
	if k := s.Volume.Canary; k.StaleReads > 0 {
		note = strings.TrimPrefix(fmt.Sprintf("%s; plain reads were up to %s old", note, k.MaxLag), "; ")
	}
	return note
}

// majorityText explains that too few servers live for a primary, "" if enough live.
func majorityText(b *wire.StatusBody) string {
	live, all := 0, 0
	for _, s := range b.Servers {
		if s.Joining {
			continue
		}
		if all++; s.Reachable {
			live++
		}
	}
	need := all/2 + 1
	if live >= need || all == 2 { // there the volume has a vote, and the server's note tells of it
		return ""
	}
	return fmt.Sprintf("no majority: %d of %d servers live, and a primary needs %d: start the others", live, all, need)
}

func (a *app) handoverCommand() *cobra.Command {
	var to uint32
	c := &cobra.Command{
		Use:   "handover [--to ID]",
		Short: "Move the primary role to another server, on purpose and quickly",
		Long: `Move the primary role to another server, on purpose and quickly.

It returns when the other server serves and the former primary could take over again, so
that status, or another handover, may follow at once.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q := &pb.HandoverRequest{To: to, Reason: "holdfast handover by " + whoami()}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				before, err := readStatus(ctx, c)
				if err != nil {
					return err
				}
				r, err := remote.Once(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Handover(ctx, q) })
				if err != nil {
					return err
				}
				from, to := before.GetPrimary().GetId(), r.GetPrimary().GetId()
				if !awaitStatus(ctx, c, serveWait, func(r *pb.StatusResponse) bool { return serves(r, to) }) {
					fmt.Fprintf(a.Stderr, "holdfast: server %d does not serve yet: see holdfast status\n", to)
				} else if from != 0 && from != to && !awaitStatus(ctx, c, serveWait, func(r *pb.StatusResponse) bool { return couldTakeOver(r, from) }) {
					fmt.Fprintf(a.Stderr, "holdfast: server %d could not take over again yet: see holdfast status\n", from)
				}
				return a.answer(r, func(w io.Writer) { fmt.Fprintln(w, cmp.Or(r.GetMessage(), "handed over")) })
			})
		},
	}
	c.Flags().Uint32Var(&to, "to", 0, "the server (default: the able one with the lowest ID; in a cell of a site, the first one in its order)")
	return c
}

// serveWait is how long handover waits for the successor to serve, and then for the former primary to be able again.
const serveWait = 5 * time.Second

// awaitStatus waits until the cluster's status is as wanted, and reports whether it was in time.
func awaitStatus(ctx context.Context, c *remote.Caller, limit time.Duration, wanted func(*pb.StatusResponse) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		r, err := readStatus(ctx, c)
		if err == nil && wanted(r) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
}

// serves reports whether the status shows this server as the primary that serves.
func serves(r *pb.StatusResponse, id uint32) bool {
	return r.GetPrimary().GetId() == id && hasServer(r, id, func(s *pb.Server) bool { return s.GetRole() == pb.Role_ROLE_PRIMARY })
}

// couldTakeOver reports whether the status shows this server as one that could be the next primary.
func couldTakeOver(r *pb.StatusResponse, id uint32) bool {
	return hasServer(r, id, func(s *pb.Server) bool { return s.GetRole() == pb.Role_ROLE_REPLICA && s.GetAble() })
}

func hasServer(r *pb.StatusResponse, id uint32, is func(*pb.Server) bool) bool {
	return slices.ContainsFunc(r.GetServers(), func(s *pb.Server) bool { return s.GetId() == id && is(s) })
}
