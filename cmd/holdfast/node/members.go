// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/replication"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// The list of servers changes while servers run (PROTOCOL.md, 22). A server follows the newest list that it believes: that of
// its own term, or of MEMBERS. Both were committed. A list that is pushed to it is no more than a reason to read MEMBERS: any process
// may have sent it, and it decides who votes, where servers are dialed, and which of them end. Two servers that follow different
// lists may both be elected; the volume decides between them as ever.

const (
	// followEvery is how often a server looks whether it knows of a newer list.
	followEvery = 200 * time.Millisecond
	// membersEvery is how often MEMBERS is read where a primary is heard: its pushes tell of changes, but they end with a removal.
	// Without one, and until MEMBERS shows what was pushed, it is read every probeEvery.
	membersEvery = 5 * time.Second
	// admitWait bounds the wait for the record that makes a server a member.
	admitWait = 5 * time.Second
)

// members returns the servers of the list that this server follows. It never blocks.
func (n *Node) members() cluster.Members { return n.list.Load().Servers }

// newest returns the newest list that this server believes.
func (n *Node) newest() *cluster.Membership {
	if p := n.current(); p != nil {
		if x, adopted := p.Members(); adopted {
			n.believe(x)
		}
	}
	return n.known.Load()
}

// believe notes a list that MEMBERS showed or a term of this server committed. Either may be older than what it knows.
func (n *Node) believe(list cluster.Membership) {
	for was := n.known.Load(); list.Version > was.Version && !n.known.CompareAndSwap(was, &list); was = n.known.Load() {
	}
}

// pushed returns the version of a list that was pushed to this server and is newer than what it believes, 0 if there is none.
func (n *Node) pushed() uint64 {
	if x := n.replica.Members(); x != nil && x.Version > n.known.Load().Version {
		return x.Version
	}
	return 0
}

// mayClaim returns an error if the newest list of servers, that on the volume included, does not have this server as a member: a
// claim would end a term that is healthy, and be refused by the log. The log decides, so a list that cannot be read keeps
// nobody from claiming. If the list has other voters than those by which this server was elected, they vote anew; where the primary before
// resigned and named it, nobody voted.
func (n *Node) mayClaim() error {
	list, err := n.vol.ReadMembers()
	if err != nil {
		n.opt.Log.Warn().Err(err).Msg("claiming without the list of servers")
		return nil
	}
	n.believe(list)
	newest := n.newest()
	if err := newest.Admits(n.opt.Server); err != nil {
		return err
	}
	if n.elector.Voted() && !slices.Equal(newest.Servers.Voters().IDs(), n.members().Voters().IDs()) {
		return fmt.Errorf("version %d of the list of servers came after the vote: %w", newest.Version, election.ErrYield)
	}
	return nil
}

// followMembers follows the list of servers until ctx ends. It ends with cluster.ErrRemoved when this server was removed.
func (n *Node) followMembers(ctx context.Context) error {
	t := wake.Every(followEvery)
	defer t.Stop()
	var fed *primary.Primary // the term that feeds the servers of the list
	for {
		list := n.newest()
		if err := list.Admits(n.opt.Server); errors.Is(err, cluster.ErrRemoved) {
			return err
		}
		changed := list.Version != n.list.Load().Version
		if changed {
			n.follow(list)
		}
		if p := n.current(); p != nil && (changed || p != fed) {
			p.Follow(n.replicas())
			fed = p
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.learned:
		case <-t.C:
			t.Again()
		}
	}
}

// follow has this server take others for servers of the cluster by this list from now on.
func (n *Node) follow(list *cluster.Membership) {
	n.opt.Log.Info().Str("members", list.Text()).Msg("the list of servers has changed")
	n.list.Store(list)
	n.opt.Peers.Follow(list.Servers)
	n.elector.SetMembers(list.Servers)
}

// replicas returns the other servers as those that a term feeds.
func (n *Node) replicas() map[cluster.ServerID]replication.Replica {
	all := map[cluster.ServerID]replication.Replica{}
	for _, m := range n.members() {
		if m.ID != n.opt.Server {
			all[m.ID] = replication.Replica{Link: link{n.opt.Peers, m.ID}, Counts: !m.Joining}
		}
	}
	return all
}

// links returns the replicas of a new term, which are the other voters: its list is not known yet.
func (n *Node) links() map[cluster.ServerID]replication.Link {
	links := map[cluster.ServerID]replication.Link{}
	for id, x := range n.replicas() {
		if x.Counts {
			links[id] = x.Link
		}
	}
	return links
}

// readMembers reads MEMBERS when that is due, or makes members where this server is primary, until ctx ends. It may hang in the
// filesystem.
func (n *Node) readMembers(ctx context.Context) error {
	t := wake.Every(followEvery)
	defer t.Stop()
	last, told, joins := time.Now(), uint64(0), joining{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		case <-n.reread:
			last = time.Time{}
		}
		p, pushed, every := n.current(), n.pushed(), membersEvery
		if _, _, heard := n.elector.Primary(); p != nil || pushed != 0 || !heard {
			every = probeEvery
		}
		news := p == nil && pushed != 0 && pushed != told
		if !news && time.Since(last) < every {
			continue
		}
		last, told = time.Now(), pushed
		if p != nil {
			n.admit(ctx, p, &joins)
			continue
		}
		n.tellJoins(nil)
		if list, err := n.vol.ReadMembers(); err == nil {
			n.believe(list)
			n.learned.Notify()
		}
	}
}

// joining is how far servers that join a term are. Its owner is readMembers.
type joining struct {
	epoch cluster.Epoch
	goals map[cluster.ServerID]cluster.LSN // what was committed when they were first heard
}

// admit makes the servers members that joined and are able to be primary by now.
func (n *Node) admit(ctx context.Context, p *primary.Primary, j *joining) {
	list, adopted := p.Members()
	if !adopted || p.State() != primary.StateServing {
		return
	}
	if j.epoch != p.Epoch() {
		*j = joining{epoch: p.Epoch(), goals: map[cluster.ServerID]cluster.LSN{}}
	}
	peers, waits := n.elector.Peers(), map[cluster.ServerID]string{}
	for _, m := range list.Servers {
		if !m.Joining {
			continue
		}
		why := n.waitsToJoin(m, peers, p, j)
		if why == "" {
			why = n.makeMember(ctx, p, m.ID)
		}
		waits[m.ID] = why
	}
	n.tellJoins(waits)
}

// waitsToJoin returns why a server cannot be a member yet, "" if it can: it has the state, and could be primary itself, as far as it
// shows, on this volume.
func (n *Node) waitsToJoin(m cluster.Member, peers []election.PeerStatus, p *primary.Primary, j *joining) string {
	i := slices.IndexFunc(peers, func(x election.PeerStatus) bool { return x.ID == m.ID })
	if i < 0 || !peers[i].Reachable || peers[i].Heard < 0 {
		return fmt.Sprintf("it does not answer at %s: start it there, or correct its address with holdfast member set", m.Peer)
	}
	goal, heard := j.goals[m.ID]
	if !heard {
		goal = p.LSN()
		j.goals[m.ID] = goal
	}
	want := election.Status{Epoch: p.Epoch(), LSN: goal, FeatureLevel: p.Level(), Storage: n.opt.Timing.StorageTimeout}
	if why := falls(&peers[i], want); why != "" {
		return why
	}
	if _, err := n.vol.ReadCanary(m.ID, vfs.FlagDirect); err != nil && !errors.Is(err, volume.ErrEmptyCanary) {
		return err.Error()
	}
	return ""
}

// falls returns why a server that is heard falls short of what is wanted of a member, "" if it does not.
func falls(x *election.PeerStatus, want election.Status) string {
	switch is := x.Status; {
	case x.Conflict:
		return "two processes use its ID: stop one"
	case !x.Proven:
		return "it was not seen to write to this volume yet"
	case is.FeatureLevel < want.FeatureLevel:
		return fmt.Sprintf("it knows feature level %d only: upgrade it", max(1, is.FeatureLevel))
	case is.Epoch != want.Epoch || is.LSN < want.LSN:
		return fmt.Sprintf("it has the state up to LSN %d of epoch %d, and not up to %d of epoch %d", is.LSN, is.Epoch, want.LSN, want.Epoch)
	case !is.Able || is.Storage > want.Storage:
		return "it could not be primary: too few members know of it yet, or see its log"
	}
	return ""
}

// makeMember logs that a server is a member, and returns why it is not, "" if it is.
func (n *Node) makeMember(ctx context.Context, p *primary.Primary, id cluster.ServerID) string {
	ctx, cancel := context.WithTimeout(ctx, admitWait)
	defer cancel()
	out, err := p.Admit(ctx, id)
	switch {
	case err != nil:
		return err.Error()
	case out.Status != cluster.StatusOK:
		return fmt.Sprintf("%v: %s", out.Status, out.Message)
	}
	n.opt.Log.Info().Uint32("id", uint32(id)).Msg("a server that joined is a member")
	return ""
}

// tellJoins has status say why servers that join are no members yet.
func (n *Node) tellJoins(waits map[cluster.ServerID]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.joins = waits
}

// joins returns why a server that joins is no member yet, as far as this server, a primary, knows.
func (n *Node) joins(id cluster.ServerID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.joins[id]
}
