// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// countWait bounds what status and readiness wait for a table: at a primary a
// read waits for the volume, and both must answer when that stalls.
const countWait = 250 * time.Millisecond

// Status describes all servers as this one sees them, and counts what is in the table unless
// the request is for this server alone. A caller who may read nothing is told which servers there are and whether
// they live, so that it finds the primary, and monitors need no credential.
func (s *Service) Status(ctx context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	c := s.b.Status()
	r := &pb.StatusResponse{
		Status: pb.Status_STATUS_OK, ClusterId: c.ClusterID, ServerId: uint32(c.Server), Epoch: uint64(c.Epoch),
		FeatureLevel: c.Level, NextLevel: c.Next, UpgradeWaitsFor: c.NextWaits,
		MembersVersion: c.Members, HighestServerId: uint32(c.HighestID), Gateway: serving.ThroughGateway(serving.RemoteOf(ctx)),
	}
	if m, _, ok := s.b.Primary(); ok {
		r.Primary = &pb.Primary{Id: uint32(m.ID), Client: m.Client, Http: m.HTTPAddress()}
	}
	for i := range c.Servers {
		x := serverProto(&c.Servers[i], c.Server)
		if !c.Servers[i].Member.Joining && !r.Gateway { // through which clients learn of no way around it
			r.MemberClients = append(r.MemberClients, x.Client)
		}
		if c.Servers[i].Member.ID == c.Server {
			r.Role, r.Lsn = x.Role, x.Lsn
		} else if q.GetLocal() {
			continue
		}
		r.Servers = append(r.Servers, x)
	}
	for _, x := range c.Cells {
		cell := &pb.CellServers{Cell: uint32(x.Cell), ClusterId: x.ClusterID, Pin: x.Pin}
		if !r.Gateway { // as above: a gateway has a port for each cell
			cell.Clients = x.Clients
		}
		r.Cells = append(r.Cells, cell)
	}
	if !q.GetLocal() { // by it a client computes whom to ask, once
		r.Cell = convert.FromOwn(s.own)
	}
	if allowed := s.permission(ctx); !allowed.readsAny() {
		forStrangers(r)
		return r, nil
	}
	if q.GetLocal() { // a search for the primary waits for no table
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	s.count(ctx, r)
	return r, nil
}

// Parted reports whether the cells of the site have the two names apart, so that the file cannot be one of the lock.
func (s *Service) Parted(lock cluster.LockName, file cluster.FileName) bool {
	return s.own != nil && s.own.Route(string(lock)) != s.own.Route(string(file))
}

// Owns returns what this cell owns, nil where the volume is of no site.
func (s *Service) Owns() *cluster.Own { return s.own }

// Elsewhere returns where the cell is served that has the names, of which either may be "". Ok is false where that is this
// cell, where no cell has both, and where the volume is of no site.
func (s *Service) Elsewhere(lock cluster.LockName, file cluster.FileName) (at serving.CellServers, ok bool) {
	why, has := s.own.Refuses(lock, file)
	if why == "" || lock != "" && file != "" && s.Parted(lock, file) {
		return at, false
	}
	return s.cell(func(c serving.CellServers) bool { return c.Cell == has })
}

// Opener returns the cell that made a client's ID. Ok is false where no cell that is known here did, and certain whether all of the site are known.
func (s *Service) Opener(id cluster.ClientID) (at serving.CellServers, ok, certain bool) {
	_, mark := id.OpenedBy()
	made := func(clusterID string) bool {
		var of cluster.ID
		return of.UnmarshalText([]byte(clusterID)) == nil && cluster.MarkOf(of) == mark
	}
	switch {
	case mark == 0 || s.own == nil:
		return at, false, true
	case made(s.cluster):
		return serving.CellServers{Cell: s.own.Cell}, true, true
	}
	if at, ok = s.cell(func(c serving.CellServers) bool { return made(c.ClusterID) }); ok {
		return at, true, true
	}
	_, unread := s.cell(func(c serving.CellServers) bool { return c.ClusterID == "" && c.Cell != s.own.Cell })
	return at, false, !unread
}

// cell returns the cell of the site for which is is true, if there is one.
func (s *Service) cell(is func(serving.CellServers) bool) (at serving.CellServers, ok bool) {
	cells := s.b.Status().Cells
	if i := slices.IndexFunc(cells, is); i >= 0 {
		return cells[i], true
	}
	return at, false
}

// forStrangers takes out of a status what tells more than where the servers are, and whether they live.
func forStrangers(r *pb.StatusResponse) {
	r.Lsn, r.Message = 0, "more is told to who shows a credential that may read"
	r.FeatureLevel, r.NextLevel, r.UpgradeWaitsFor, r.MembersVersion, r.HighestServerId = 0, 0, nil, 0, 0
	for i, x := range r.Servers {
		r.Servers[i] = &pb.Server{
			Id: x.Id, Role: x.Role, Epoch: x.Epoch, Client: x.Client, Http: x.Http,
			Able: x.Able, Reachable: x.Reachable, HeardAgoMs: x.HeardAgoMs, Conflict: x.Conflict, Unwaited: x.Unwaited, Joining: x.Joining,
		}
	}
}

func serverProto(x *serving.ServerStatus, self cluster.ServerID) *pb.Server {
	role := roleProto(x.Role)
	heard := wire.CeilMillis(x.Heard)
	if x.Heard < 0 {
		heard = -1
	}
	return &pb.Server{
		Id: uint32(x.Member.ID), Role: role, Epoch: uint64(x.Epoch), Lsn: uint64(x.LSN), Pid: int64(x.PID),
		Client: x.Member.Client, Http: x.Member.HTTPAddress(), Peer: x.Member.Peer,
		Volume: &pb.VolumeStatus{
			Filesystem: x.Filesystem, Network: x.Network, Path: x.Path, CheckAgeMs: wire.CeilMillis(x.Storage), FreeBytes: x.FreeBytes, Full: x.Full, Warnings: x.Warnings, Canary: canaryProto(x.Canary),
		},
		Version: x.Version, UptimeMs: wire.FloorMillis(x.Uptime),
		Able: x.Able, Reachable: x.Member.ID == self || role != pb.Role_ROLE_UNREACHABLE,
		HeardAgoMs: heard, Conflict: x.Conflict, Unwaited: x.Unwaited, FeatureLevel: x.FeatureLevel, ConfigPendingRestart: x.Restart,
		Joining: x.Member.Joining, Joins: x.Joins,
	}
}

func canaryProto(c serving.CanaryStatus) *pb.CanaryStatus {
	return &pb.CanaryStatus{
		Looks: c.Looks, AgeMs: wire.CeilMillis(c.Age), MaxLagMs: wire.CeilMillis(c.MaxLag), StaleReads: c.StaleReads, StaleDirectReads: c.StaleDirectReads,
	}
}

// roleProto returns the role with this name. An unknown role maps to UNREACHABLE.
func roleProto(name string) pb.Role {
	for r := pb.Role_ROLE_REPLICA; r <= pb.Role_ROLE_UNREACHABLE; r++ {
		if wire.RoleWord(r) == name {
			return r
		}
	}
	return pb.Role_ROLE_UNREACHABLE
}

// count adds what is in the table, if it can be read now.
func (s *Service) count(ctx context.Context, r *pb.StatusResponse) {
	var locks, clients, files int
	quarantined := 0
	var rings []locktable.Ring
	var own *cluster.Own
	reading, err := s.b.Read(ctx, func(v serving.View) {
		own = v.Table.Own()
		locks, clients = v.Table.LockCount(), v.Table.ClientCount()
		rings, _ = v.Table.Rings(mostRings, ringLooks)
		for _, f := range v.Table.Files() {
			if files++; f.Quarantined {
				quarantined++
			}
			if files == maxPage {
				break
			}
		}
	})
	if err != nil || reading.Status != cluster.StatusOK {
		r.Message = "the table cannot be read now"
		return
	}
	r.Lsn, r.AgeMs = uint64(reading.LSN), wire.CeilMillis(reading.Age)
	if r.Cell == nil { // a lost cell that was recovered, and is served by itself
		r.Cell = convert.FromOwn(own)
	}
	t := &pb.TableStatus{Locks: uint64(locks), Clients: uint64(clients), Files: uint64(files), Quarantined: uint64(quarantined)}
	r.Table = t
	allowed := s.permission(ctx)
	for _, ring := range rings {
		if readsRing(allowed, ring) {
			r.Rings = append(r.Rings, convert.FromRing(ring))
		}
	}
	n := s.counted.of(countedFor{r.Role, r.Epoch}, func() counts { return s.countLocks(ctx) })
	t.Held, t.Waiting, t.Unheard = n.held, n.waiting, n.unheard
	if !n.all || files == maxPage {
		upto := "the first locks"
		if allowed.May(access.Read, string(n.last), "") {
			upto = fmt.Sprintf("the locks up to %q", n.last)
		}
		r.Message = fmt.Sprintf("a large table: held, waiting and unheard count %s, files at most %d", upto, maxPage)
	}
}

// counts are what is counted lock by lock, up to the last one.
type counts struct {
	held, waiting, unheard uint64
	last                   cluster.LockName
	all                    bool
	pages                  int
}

// countLocks counts locks, a page in each read, so that no read is long.
func (s *Service) countLocks(ctx context.Context) (c counts) {
	for n := 0; !c.all && n < maxCounted; n += maxPage {
		page, reading, err := s.page(ctx, "", c.last, maxPage)
		if err != nil || reading.Status != cluster.StatusOK {
			break
		}
		if c.all = len(page) <= maxPage; !c.all {
			page = page[:maxPage]
		}
		c.pages++
		for i := range page {
			x := &page[i]
			c.waiting += uint64(x.view.QueueLength)
			if x.view.Grant.Token != 0 {
				c.held++
				c.unheard += x.unheard()
			}
			c.last = x.view.Name
		}
	}
	return c
}

// lastCount keeps what was counted of a large table: clients that look for a primary
// ask often, and all at once.
type lastCount struct {
	mu sync.Mutex
	counts
	by    countedFor
	until time.Time
}

// countedFor is the role in which a server counts: a new primary has heard nobody yet.
type countedFor struct {
	role  pb.Role
	epoch uint64
}

// keepCount is how many times longer than a count took it is kept.
const keepCount = 20

func (l *lastCount) of(by countedFor, count func() counts) counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	if by == l.by && began.Before(l.until) {
		return l.counts
	}
	l.by, l.counts = by, count()
	if l.pages > 1 {
		l.until = began.Add((1 + keepCount) * time.Since(began))
	}
	return l.counts
}

// unheard counts the holders, as far as they are listed, that were not heard in this term.
func (x *lockSnapshot) unheard() (n uint64) {
	count := func(heard bool, remaining time.Duration) {
		if !heard && remaining != convert.RemainingUnknown {
			n++
		}
	}
	count(x.heard, x.remaining)
	for i := range x.others {
		count(x.others[i].heard, x.others[i].remaining)
	}
	return n
}

// storage returns how long ago this server's volume took a write or passed a check.
func (s *Service) storage() time.Duration {
	for _, x := range s.b.Status().Servers {
		if x.Member.ID == s.self {
			return x.Storage
		}
	}
	return 0
}

// Check is one condition of readiness.
type Check struct {
	Name string
	// Status is OK, or what the server answers because the check fails. Message is for people; it has no names of locks,
	// files, clients or servers.
	Status  cluster.Status
	Message string
}

// Readiness returns the checks that all pass if this server is of use to clients: it serves, or its table is fed. The role is
// the last.
func (s *Service) Readiness(ctx context.Context) []Check {
	volume := Check{"volume", cluster.StatusOK, "it took a write, or passed a check"}
	if age, limit := s.storage(), s.b.Timing().StorageTimeout; age > limit {
		volume.Status, volume.Message = cluster.StatusStorageUnavailable, fmt.Sprintf("the volume has taken no write for %v", age.Round(time.Second))
	}
	role := Check{"role", cluster.StatusOK, s.role()}
	switch role.Message {
	case rolePrimary:
	case roleReplica:
		return []Check{volume, s.fed(ctx), role}
	default:
		role.Status = cluster.StatusServerFencing
	}
	return []Check{volume, role}
}

// fed checks whether a replica's table is as new as its primary.
func (s *Service) fed(ctx context.Context) Check {
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	reading, err := s.b.Read(ctx, func(serving.View) {})
	switch {
	case err != nil || reading.Status != cluster.StatusOK:
		return Check{"table", cluster.StatusSecondaryMode, "a replica that has no table yet"}
	case reading.Local && reading.Age > s.b.Timing().StorageTimeout:
		return Check{"table", cluster.StatusSecondaryMode, fmt.Sprintf("a replica that was not fed for %v", reading.Age.Round(time.Millisecond))}
	}
	return Check{"table", cluster.StatusOK, "the primary feeds it"}
}
