// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary/replication"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// Members returns the list of servers as far as this term has committed it. It returns false before the term has adopted a log.
func (p *Primary) Members() (cluster.Membership, bool) {
	list := p.members.Load()
	if list == nil {
		return cluster.Membership{}, false
	}
	return *list, true
}

// listed returns an error unless the log that is about to be adopted lists this server as a member. A server may have been
// removed while it was cut off, and MEMBERS may be old: here it learns it from what nobody can have set back unnoticed.
// Nor is a log adopted that has lost a list which MEMBERS shows.
func (p *Primary) listed(t *locktable.Table) error {
	if err := p.term.LostMembers(t); err != nil {
		return err
	}
	return t.MembersOr(p.term.FirstServers()).Admits(p.opt.Server)
}

// setMembers notes the list of servers that was committed and checked, for MEMBERS and for who asks.
func (p *Primary) setMembers(list *cluster.Membership) {
	if list != nil {
		p.members.Store(list)
		p.wake.members.Notify()
	}
}

// refusesMember returns why a change of the list of servers cannot be asked of this primary, "" if it can.
func (c *core) refusesMember(q *locktable.Request) string {
	x := q.Members.Change
	if x.Kind != cluster.RemoveServer {
		return ""
	}
	if x.Server.ID == c.p.opt.Server {
		return fmt.Sprintf("server %d is the primary: hand over first, with holdfast handover, and ask again", x.Server.ID)
	}
	next, err := c.table.MembersOr(c.p.term.FirstServers()).With(x)
	if err != nil || x.Force || c.p.opt.Keeps == nil || c.p.opt.Keeps(next.Servers) {
		return "" // what is wrong with the change itself is told where it is decided
	}
	return fmt.Sprintf("without server %d, those that answer are no majority of the others, %v, and nobody could be primary: start the others, remove those first that are gone for good, or ask with force", x.Server.ID, next.Servers.Voters().IDs())
}

// admitMember makes a server that joined a member. It is answered when that is committed. Like other changes it waits until MEMBERS
// shows the one before.
func (c *core) admitMember(x *call) {
	if c.recordLevel() < locktable.MembersLevel {
		c.answer(x, locktable.Outcome{Status: cluster.StatusError, Message: fmt.Sprintf("a server is reached that does not know feature level %d", locktable.MembersLevel)})
		return
	}
	recs := c.table.DecideMember(x.req.Members.Change.Server.ID, c.p.Epoch(), c.recs[:0])
	if why := c.unshown(); len(recs) > 0 && why != "" {
		c.answer(x, locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: why})
		return
	}
	if len(recs) > 0 && !c.apply(recs, nil) {
		c.answer(x, serving.Unknown())
		return
	}
	c.answer(x, locktable.Outcome{Status: cluster.StatusOK})
}

// Follow has the term feed these replicas from now on, and no others.
func (p *Primary) Follow(all map[cluster.ServerID]replication.Replica) { p.replication.Follow(all) }

// unshown returns why the list of servers cannot be changed now, "" if it can. One change waits until MEMBERS shows the one before: so it
// is one version behind at most, and of the servers that it lets claim, all but one are members of the log's list.
func (c *core) unshown() string {
	if list, made := c.table.Members(); made && c.p.shown.Load() != list.Version {
		return fmt.Sprintf("MEMBERS on the volume does not show version %d of the list of servers yet, and is to before the next change: ask again. If that lasts, see the log of server %d", list.Version, c.p.opt.Server)
	}
	return ""
}

// showMembers keeps MEMBERS on the volume as the log has it. Like the views for people it is tried again when it fails, and ends no
// term. A cluster whose list never changed has none, and nobody who could put one there later.
func (p *Primary) showMembers() {
	if p.check() != nil {
		return
	}
	if err := p.term.RemoveTemporaryMembers(); err != nil && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what earlier primaries left of MEMBERS") // it only takes space
	}
	t := time.NewTicker(viewsOwn)
	defer t.Stop()
	told := false
	for {
		err := p.showList()
		if err != nil && p.term.Err() == nil && !told {
			p.opt.Log.Warn().Err(err).Msg("the list of servers is not shown on the volume: trying again")
		}
		told = err != nil
		again := t.C
		if err == nil && p.shown.Load() == 1 {
			again = nil
		}
		select {
		case <-p.term.Done():
			return
		case <-p.wake.members:
		case <-again:
		}
	}
}

// shownWait bounds how long a resignation waits for MEMBERS.
const shownWait = 500 * time.Millisecond

// awaitShown waits until MEMBERS shows the list of servers, for a while: a successor that became a member a moment ago learns it there.
func (p *Primary) awaitShown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shownWait)
	defer cancel()
	for list := p.members.Load(); list != nil && p.shown.Load() < list.Version; list = p.members.Load() {
		select {
		case <-ctx.Done():
			return
		case <-p.term.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// showList writes MEMBERS if it is not as the log has it.
func (p *Primary) showList() error {
	list := p.members.Load()
	if there, err := p.term.ReadMembers(); err != nil || there.Text() != list.Text() {
		if err := p.check(); err != nil {
			return err
		}
		if err := p.term.PublishMembers(*list); err != nil {
			return err
		}
	}
	p.shown.Store(list.Version)
	return nil
}
