// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

var _ serving.Backend = (*Node)(nil)

// behind is the LSN of a primary that has less than this server knows to be committed, and that
// known LSN. The zero value is none.
type behind struct{ at, known cluster.LSN }

func (b behind) String() string {
	return fmt.Sprintf("THE PRIMARY'S STATE IS OLDER (LSN %d) THAN WHAT WAS COMMITTED (LSN %d): the volume was set back, see docs/recovery.md", b.at, b.known)
}

// volumeTrouble returns a message on how long the volume has taken no writes, and why; "" if it
// does.
func (n *Node) volumeTrouble(age time.Duration) string {
	n.mu.Lock()
	err, never := n.mu.probeErr, n.mu.probed.IsZero()
	n.mu.Unlock()
	text := fmt.Sprintf("THE VOLUME HAS TAKEN NO WRITE for %v", age.Round(time.Second))
	if never {
		text = "THE VOLUME HAS TAKEN NO WRITE since this server started"
	}
	if err == nil {
		return text + ": a call into it does not come back"
	}
	return text + ": " + err.Error()
}

// otherVolume returns a message that this server does not see what the primary writes.
func otherVolume(lag time.Duration) string {
	return fmt.Sprintf("WHAT THE PRIMARY WRITES HAS NOT SHOWN HERE for %v: this server has a copy of the volume, or its filesystem shows old data past the caches. It neither votes nor takes over: mount the volume that the primary has, and start this server again", lag.Round(time.Second))
}

// Status returns the state of all servers as this one sees them.
func (n *Node) Status() serving.ClusterStatus {
	c := n.vol.Cluster()
	own := n.self()
	list := n.list.Load()
	s := serving.ClusterStatus{Own: n.opt.Own, Members: list.Version, HighestID: list.HighestID, ClusterID: c.ID.String(), Server: n.opt.Server, Epoch: n.highestKnown()}
	for _, m := range list.Servers {
		s.Servers = append(s.Servers, serving.ServerStatus{Member: m, Role: "unreachable", Joins: n.joins(m.ID)})
	}
	if n.opt.Cells != nil {
		s.Cells = n.opt.Cells(list.Servers)
	}
	at := func(id cluster.ServerID) *serving.ServerStatus {
		for i := range s.Servers {
			if s.Servers[i].Member.ID == id {
				return &s.Servers[i]
			}
		}
		return &serving.ServerStatus{} // a stranger: it is not shown
	}
	n.describeSelf(at(n.opt.Server), own)
	for _, p := range n.elector.Peers() {
		x := at(p.ID)
		x.Heard = p.Heard
		shareID(x, p.Conflict, p.Processes)
		if !p.Reachable {
			continue
		}
		x.Role, x.Epoch, x.LSN = p.Status.Role.String(), p.Status.Epoch, p.Status.LSN
		x.Able, x.Storage = p.Status.Able, p.Status.Storage
		x.FeatureLevel = max(1, p.Status.FeatureLevel) // without one it has the first
		s.Epoch = max(s.Epoch, p.Status.Epoch)
	}
	s.Level, s.Next, s.NextWaits = n.upgrade()
	me := at(n.opt.Server)
	me.Warnings = append(me.Warnings, n.otherTimings()...)
	n.tellProcesses(me, at)
	if p := n.current(); p != nil {
		for id, waited := range p.Waited() {
			at(id).Unwaited = !waited
		}
	}
	return s
}

// describeSelf fills in this server, whose status to the others is own.
func (n *Node) describeSelf(me *serving.ServerStatus, own election.Status) {
	me.Role, me.Epoch, me.LSN, me.PID = own.Role.String(), own.Epoch, own.LSN, os.Getpid()
	me.FeatureLevel = own.FeatureLevel
	// As the others judge it: a server that cannot write to the volume, or sees an old one, cannot
	// take over.
	now, limit := time.Now(), n.opt.Timing.StorageTimeout
	me.Able, me.Storage = own.Able && own.Storage <= limit, n.storageAge(now)
	me.Filesystem, me.Network, me.Warnings = n.vol.Kind().Name, n.vol.Kind().Network, slices.Clone(n.opt.Warnings)
	n.mu.Lock()
	if b := n.mu.setBack; b != (behind{}) {
		me.Warnings = append(me.Warnings, b.String())
	}
	n.mu.Unlock()
	if s, known := n.vol.Space(); known {
		me.FreeBytes = s.Free
	}
	me.Canary = n.canary.read(now)
	if k := me.Canary; k.StaleDirectReads > 0 {
		me.Warnings = append(me.Warnings, fmt.Sprintf("%d READS PAST THE CACHES SHOWED OLD DATA", k.StaleDirectReads))
	}
	if why := n.outdated(); why != "" {
		me.Warnings = append(me.Warnings, why)
	}
	if why := n.noTermReason(); why != "" {
		me.Warnings = append(me.Warnings, why)
	}
	if why := n.loneReason(); why != "" {
		me.Warnings = append(me.Warnings, why)
	}
	if me.Storage > limit {
		me.Warnings = append(me.Warnings, n.volumeTrouble(me.Storage))
	}
	if lag := n.canary.lag(now); lag > limit {
		me.Warnings = append(me.Warnings, otherVolume(lag))
	}
	if by, age := n.disowned(); age >= foreignAfter {
		me.Warnings = append(me.Warnings, fmt.Sprintf("SERVER %d HAS NOT FOUND THIS SERVER'S KEY ON ITS VOLUME for %v: one of the two has a copy of the volume. This server neither votes nor takes over: mount the volume that the other servers have, and start this server again", by, age.Round(time.Second)))
	}
	if n.opt.Restart != nil {
		me.Restart = n.opt.Restart()
	}
	if n.opt.Trouble != nil {
		if why := n.opt.Trouble(); why != "" {
			me.Warnings = append(me.Warnings, why)
		}
	}
	me.Version, me.Path, me.Uptime = n.opt.Version, n.opt.Path, time.Since(n.began)
	if p := n.current(); p != nil {
		me.Full = p.Full()
		me.Warnings = append(me.Warnings, p.FileTrouble()...)
		if why := p.HistoryTrouble(); why != "" {
			me.Warnings = append(me.Warnings, why)
		}
	}
}

// LogFull reports whether this server is primary, and its log cannot grow: then what is left of the disk is left to it.
func (n *Node) LogFull() bool {
	p := n.current()
	return p != nil && p.Full()
}
