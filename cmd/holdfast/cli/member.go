// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// memberFlags are the flags of `holdfast member …`.
type memberFlags struct {
	id        identity
	ifVersion uint64
	force     bool
	volume    string
	wait      time.Duration
}

func (a *app) memberCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "member", Short: "Show the servers of the cluster; add, move, replace and remove them", Args: unknownCommand,
		Long: `Show the servers of the cluster; add, move, replace and remove them, while the others run.

The list of servers is a record in the log, so a change needs a primary, and the rights of an
administrator. A server that is added joins: it counts for nothing until it has the state and
could be primary; then it becomes a member by itself. A removed ID is never used again, so a new
server gets an ID above all that there ever were.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.memberListCommand(), a.memberAddCommand(), a.memberSetCommand(), a.memberReplaceCommand(), a.memberRemoveCommand())
	return c
}

// changeFlags adds the flags of commands that make one change.
func (f *memberFlags) changeFlags(c *cobra.Command) *cobra.Command {
	f.id.flags(c.Flags())
	c.Flags().Uint64Var(&f.ifVersion, "if-version", 0, "change this version of the list only, as member ls shows it")
	return c
}

// memberBody is one server of membersBody.
type memberBody struct {
	ID     uint32 `json:"id"`
	State  string `json:"state"` // member or joining
	Role   string `json:"role"`
	Client string `json:"client"`
	Peer   string `json:"peer"`
	Joins  string `json:"joins,omitempty"` // why it is no member yet
}

type membersBody struct {
	Status    string       `json:"status"`
	ClusterID string       `json:"cluster_id"`
	Version   uint64       `json:"members_version"`
	HighestID uint32       `json:"highest_server_id"`
	Servers   []memberBody `json:"servers"`
}

func (a *app) memberListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "Show the list of servers and its version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				r, err := primaryStatus(ctx, c)
				if err != nil {
					if r, err = readStatus(ctx, c); err != nil {
						return err
					}
				}
				b := membersBody{Status: cluster.StatusOK.String(), ClusterID: r.GetClusterId(), Version: r.GetMembersVersion(), HighestID: r.GetHighestServerId(), Servers: []memberBody{}}
				for _, s := range r.GetServers() {
					m := memberBody{ID: s.GetId(), State: "member", Role: wire.RoleWord(s.GetRole()), Client: s.GetClient(), Peer: s.GetPeer(), Joins: s.GetJoins()}
					if s.GetJoining() {
						m.State = "joining"
					}
					b.Servers = append(b.Servers, m)
				}
				return a.print(b, func(w io.Writer) {
					fmt.Fprintf(w, "version %d of the list of servers; IDs up to %d were used\n", b.Version, b.HighestID)
					table(w, func(row func(...any)) {
						row("ID", "STATE", "ROLE", "CLIENTS", "SERVERS", "NOTE")
						for _, m := range b.Servers {
							row(m.ID, m.State, m.Role, m.Client, cmp.Or(m.Peer, "-"), m.Joins)
						}
					})
				})
			})
		},
	}
}

// addresses parses ID=HOST, as for init.
func addresses(arg string) (cluster.Member, error) {
	all, err := parseServers([]string{arg})
	if err != nil {
		return cluster.Member{}, usagef("%q: use ID=HOST, ID=HOST:PORT or ID=CLIENT,PEER", arg)
	}
	return all[0], nil
}

func (a *app) memberAddCommand() *cobra.Command {
	f := &memberFlags{}
	return f.changeFlags(&cobra.Command{
		Use: "add ID=HOST[:PORT]", Short: "Add a server, which joins and becomes a member by itself", Args: exactly("ID=HOST"),
		Long: `Add a server, which joins and becomes a member by itself. Start it before or after:
holdfast server --id ID --volume DIR, with DIR as on the other hosts. ID is a new one, above all that
there ever were: holdfast member ls shows them. HOST is as for holdfast init --server.

Until it is a member it counts for nothing, so an address with a mistake in it does no harm: correct it with
holdfast member set. holdfast member ls and holdfast status show what it waits for.`,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := addresses(args[0])
			if err != nil {
				return err
			}
			return a.changeMember(c.Context(), f, "add", m, fmt.Sprintf("server %d joins; start it with: holdfast server --id %d --volume DIR", m.ID, m.ID))
		},
	})
}

func (a *app) memberSetCommand() *cobra.Command {
	f := &memberFlags{}
	return f.changeFlags(&cobra.Command{
		Use: "set ID=HOST[:PORT]", Short: "Give a server other addresses", Args: exactly("ID=HOST"),
		Long: `Give a server other addresses. The other servers go by them within a second; the server itself listens there when it
is started again. Clients that know another server find it, those that were told its old address only do not.`,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := addresses(args[0])
			if err != nil {
				return err
			}
			return a.changeMember(c.Context(), f, "set", m, fmt.Sprintf("server %d has the addresses %s for clients and %s for servers; it listens there when it is started again", m.ID, m.Client, m.Peer))
		},
	})
}

func (a *app) memberRemoveCommand() *cobra.Command {
	f := &memberFlags{}
	c := f.changeFlags(&cobra.Command{
		Use: "remove ID", Short: "Remove a server, and its ID for good", Args: exactly("ID"),
		Long: `Remove a server, and its ID for good. If it runs it ends by itself, with exit code 78, and so it does
when it comes back later. The primary is not removed: hand over first.

The primary refuses where those that answer would be no majority of the others; --force removes it
all the same, and then nobody may be primary until enough of the others answer.

With --volume DIR it is done on this host, without any server: for the case that too many are gone for good, so that
nobody can be primary. Nothing may run that could object: it looks at the volume for some seconds for a primary, and
takes the place of one of the members that stay, whose server on this host has to be stopped.`,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil || id == 0 {
				return usagef("%q is no ID of a server", args[0])
			}
			m := cluster.Member{ID: cluster.ServerID(id)}
			if f.volume != "" {
				return a.removeOffline(c.Context(), f.volume, cluster.MemberChange{Kind: cluster.RemoveServer, Server: m, IfVersion: f.ifVersion})
			}
			return a.changeMember(c.Context(), f, "remove", m, fmt.Sprintf("server %d is removed, for good", id))
		},
	})
	c.Flags().BoolVar(&f.force, "force", false, "also where those that answer are no majority of the others")
	c.Flags().StringVar(&f.volume, "volume", "", "the volume's directory: remove it without any server")
	asked, onVolume := c.RunE, a.audited(c).RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.volume == "" {
			return asked(c, args) // the servers tell the audit
		}
		return onVolume(c, args)
	}
	return c
}

// changeMember asks the primary for a change.
func (a *app) changeMember(ctx context.Context, f *memberFlags, change string, m cluster.Member, done string) error {
	if err := f.id.check(); err != nil {
		return err
	}
	return a.withCaller(ctx, func(ctx context.Context, c *remote.Caller) error {
		r, err := a.askChange(ctx, c, f, change, m)
		if err != nil {
			return err
		}
		r.Message = fmt.Sprintf("%s (version %d of the list)", done, r.GetMembersVersion())
		return a.answer(r, func(w io.Writer) { fmt.Fprintln(w, r.GetMessage()) })
	})
}

func (a *app) askChange(ctx context.Context, c *remote.Caller, f *memberFlags, change string, m cluster.Member) (*pb.Answer, error) {
	id := a.identify(f.id)
	q := &pb.ChangeMembersRequest{
		ClientId: id.client, RequestId: id.request, Change: change, Server: uint32(m.ID), Client: m.Client, Peer: m.Peer, IfVersion: f.ifVersion, Force: f.force,
	}
	return remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.ChangeMembers(ctx, q) })
}

func (a *app) memberReplaceCommand() *cobra.Command {
	f := &memberFlags{}
	c := &cobra.Command{
		Use: "replace ID=HOST[:PORT]", Short: "Put a new server in the place of another one", Args: exactly("ID=HOST"),
		Long: `Put a new server in the place of another one: add it under a new ID, wait until it is a member, hand over
if the old one is primary, and remove the old one. HOST is that of the new server. Start it when this
command tells its ID, or have it started by then. After an error, or an end of the wait, type it again: it goes on.`,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := addresses(args[0])
			if err != nil {
				return err
			}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error { return a.replace(ctx, c, f, m) })
		},
	}
	c.Flags().DurationVar(&f.wait, "wait", 10*time.Minute, "how long to wait until the new server is a member")
	return c
}

// replace puts a server with the addresses of m in the place of that with its ID.
func (a *app) replace(ctx context.Context, c *remote.Caller, f *memberFlags, m cluster.Member) error {
	old, r, err := uint32(m.ID), (*pb.StatusResponse)(nil), error(nil)
	if r, err = primaryStatus(ctx, c); err != nil {
		return err
	}
	next := serverAt(r, m.Client)
	listed := hasServer(r, old, func(*pb.Server) bool { return true })
	switch {
	case next == old:
		return usagef("member replace: server %d is at %s already: the new one needs an address of its own", old, m.Client)
	case next == 0 && !listed:
		return usagef("member replace: server %d is not in the list: see holdfast member ls", old)
	case next == 0:
		next = r.GetHighestServerId() + 1
		added := cluster.Member{ID: cluster.ServerID(next), Client: m.Client, Peer: m.Peer}
		if _, err := a.askChange(ctx, c, &memberFlags{ifVersion: r.GetMembersVersion()}, "add", added); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Stderr, "holdfast: server %d joins at %s; start it there, if it does not run: holdfast server --id %d --volume DIR\n", next, m.Client, next)
	if err := a.awaitMember(ctx, c, next, f.wait); err != nil {
		return err
	}
	if r, err = primaryStatus(ctx, c); err != nil {
		return err
	}
	if r.GetServerId() == old {
		if _, err := remote.Once(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
			return s.Handover(ctx, &pb.HandoverRequest{To: next, Reason: "holdfast member replace by " + whoami()})
		}); err != nil {
			return err
		}
		// A server that has just become a member may not know it yet. Then another one is elected, which serves as well.
		if !awaitStatus(ctx, c, serveWait, func(r *pb.StatusResponse) bool {
			id := r.GetPrimary().GetId()
			return id != old && serves(r, id)
		}) {
			return errors.New("no other server serves yet: see holdfast status, and type it again")
		}
	}
	done := &pb.Answer{Status: pb.Status_STATUS_OK, MembersVersion: r.GetMembersVersion()}
	if listed {
		if done, err = a.askChange(ctx, c, &memberFlags{}, "remove", cluster.Member{ID: m.ID}); err != nil {
			return err
		}
	}
	done.Message = fmt.Sprintf("server %d is in the place of server %d (version %d of the list)", next, old, done.GetMembersVersion())
	return a.answer(done, func(w io.Writer) { fmt.Fprintln(w, done.GetMessage()) })
}

// serverAt returns the server with this address for clients, 0 for none.
func serverAt(r *pb.StatusResponse, client string) uint32 {
	for _, s := range r.GetServers() {
		if s.GetClient() == client {
			return s.GetId()
		}
	}
	return 0
}

// awaitMember waits until a server is a member by what the primary says.
func (a *app) awaitMember(ctx context.Context, c *remote.Caller, id uint32, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	why := "no primary has told of it"
	for {
		if r, err := primaryStatus(limited, c); err == nil {
			why = "it is not in the list any more"
			for _, s := range r.GetServers() {
				if s.GetId() == id && !s.GetJoining() {
					return nil
				} else if s.GetId() == id {
					why = cmp.Or(s.GetJoins(), "it joins")
				}
			}
		}
		select {
		case <-limited.Done():
			return cmp.Or(ctx.Err(), errors.New("server "+strconv.Itoa(int(id))+" is no member yet: "+why+". Type the same again to go on"))
		case <-t.C:
		}
	}
}
