// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// StatusBody is the state of the cluster as one server sees it.
type StatusBody struct {
	Status    string       `json:"status"`
	Message   string       `json:"message"`
	ClusterID string       `json:"cluster_id"`
	ServerID  uint32       `json:"server_id"`
	Role      string       `json:"role"`
	Epoch     uint64       `json:"epoch"`
	LSN       uint64       `json:"lsn"`
	Age       string       `json:"age"`
	Primary   *Primary     `json:"primary"`
	Servers   []ServerBody `json:"servers"`
	Table     *TableBody   `json:"table"` // null if the answering server has none
	// FeatureLevel is that of the cluster, 0 if it is not known. NextLevel is the highest that a server knows which the primary
	// hears, and UpgradeWaitsFor says why the cluster cannot be raised to it; 0 where it is that already.
	FeatureLevel    uint32   `json:"feature_level"`
	NextLevel       uint32   `json:"next_level"`
	UpgradeWaitsFor []string `json:"upgrade_waits_for"`
	// MembersVersion is that of the list of servers, HighestServerID the highest ID that any version listed; 0 if they are not known.
	MembersVersion  uint64 `json:"members_version"`
	HighestServerID uint32 `json:"highest_server_id"`
	// Rings are clients that wait for each other.
	Rings [][]RingLinkBody `json:"rings,omitempty"`
	// Gateway reports whether the request came through a gateway: its client stays there, whatever addresses answers have.
	Gateway bool `json:"gateway"`
	// Cell is what this volume owns as a cell of a site; nil if it is none, or not known.
	Cell *CellBody `json:"cell,omitempty"`
	// Cells is where each cell of the site is served, this one included, as far as the server knows: it may be old.
	Cells []CellServersBody `json:"cells,omitempty"`
}

// CellServersBody is where a cell of a site is served.
type CellServersBody struct {
	Cell uint32 `json:"cell"`
	// Clients has HOST:PORT of each of its servers; none through a gateway, which has a port for each cell.
	Clients []string `json:"clients"`
	// ClusterID is that of its servers, "" where it is not known, and Pin that of the authority of their certificates, "" where there is none.
	ClusterID string `json:"cluster_id"`
	Pin       string `json:"pin"`
}

// cellServersOf converts where cells are served.
func cellServersOf(all []*pb.CellServers) (bodies []CellServersBody) {
	for _, x := range all {
		bodies = append(bodies, CellServersBody{x.GetCell(), append([]string{}, x.GetClients()...), x.GetClusterId(), x.GetPin()})
	}
	return bodies
}

// CellBody is what a cell of a site owns.
type CellBody struct {
	SiteID  string      `json:"site_id"`
	Cell    uint32      `json:"cell"`
	Version uint64      `json:"version"`
	Ranges  []RangeBody `json:"ranges"`
	Pins    []PinBody   `json:"pins"`
}

// RangeBody gives a cell the places from From, in hexadecimal, up to where the next range begins.
type RangeBody struct {
	From string `json:"from"`
	Cell uint32 `json:"cell"`
}

// PinBody gives a cell the names that begin with Prefix.
type PinBody struct {
	Prefix string `json:"prefix"`
	Cell   uint32 `json:"cell"`
}

// cellBodyOf converts what a cell owns, nil for nil.
func cellBodyOf(c *pb.Cell) *CellBody {
	if c == nil {
		return nil
	}
	b := &CellBody{SiteID: c.GetSiteId(), Cell: c.GetCell(), Version: c.GetVersion(), Ranges: []RangeBody{}, Pins: []PinBody{}}
	for _, r := range c.GetRanges() {
		b.Ranges = append(b.Ranges, RangeBody{fmt.Sprintf("%016x", r.GetFrom()), r.GetCell()})
	}
	for _, p := range c.GetPins() {
		b.Pins = append(b.Pins, PinBody{p.GetPrefix(), p.GetCell()})
	}
	return b
}

// RingLinkBody is one client of those that wait for each other: for a lock that the client of the next one holds, and the last for one of the
// first.
type RingLinkBody struct {
	ClientID  string `json:"client_id"`
	RequestID uint64 `json:"request_id"`
	User      string `json:"user,omitempty"`
	Host      string `json:"host"`
	PID       int64  `json:"pid"`
	Command   string `json:"command"`
	Identity  string `json:"identity,omitempty"`
	// Lock is that for which it waits, and Token that of the grant behind which it does.
	Lock  string `json:"lock"`
	Token uint64 `json:"token"`
}

// RingBodyOf converts a ring, nil for none.
func RingBodyOf(r *pb.Ring) (ring []RingLinkBody) {
	for _, x := range r.GetLinks() {
		h := x.GetHolder()
		ring = append(ring, RingLinkBody{
			ClientID: x.GetClientId(), RequestID: x.GetRequestId(), User: h.GetUser(), Host: h.GetHost(), PID: h.GetPid(), Command: h.GetCommand(),
			Identity: h.GetIdentity(), Lock: x.GetLock(), Token: x.GetToken(),
		})
	}
	return ring
}

// ServerBody is one server in StatusBody.
type ServerBody struct {
	ID        uint32     `json:"id"`
	Role      string     `json:"role"`
	Epoch     uint64     `json:"epoch"`
	LSN       uint64     `json:"lsn"`
	PID       int64      `json:"pid"`
	Client    string     `json:"client"`
	OldHTTP   string     `json:"http,omitempty"` // see cluster.Member
	Peer      string     `json:"peer"`
	Volume    VolumeBody `json:"volume"`
	Able      bool       `json:"able"`
	Reachable bool       `json:"reachable"`
	HeardAgo  string     `json:"heard_ago"` // "" = never
	Conflict  bool       `json:"conflict"`
	Version   string     `json:"version"`
	Uptime    string     `json:"uptime"`
	Unwaited  bool       `json:"unwaited"` // answers should wait for this replica, and do not any more
	// FeatureLevel is the highest level of records that it can apply; 0 if it is not known.
	FeatureLevel uint32 `json:"feature_level"`
	// Restart are settings that were changed and count after a restart only; empty where the server itself was not asked.
	Restart []string `json:"config_pending_restart"`
	// Joining is set for a server that was added and is no member yet; Joins says why, where the primary answers.
	Joining bool   `json:"joining"`
	Joins   string `json:"joins"`
}

// VolumeBody is the volume as one server sees it.
type VolumeBody struct {
	Filesystem string     `json:"filesystem"`
	Network    bool       `json:"network"`
	Path       string     `json:"path"`
	CheckAge   string     `json:"check_age"`
	FreeBytes  *int64     `json:"free_bytes"` // null if it is not known
	Full       bool       `json:"full"`
	Warnings   []string   `json:"warnings"`
	Canary     CanaryBody `json:"canary"`
}

// CanaryBody is how stale a replica's reads of the volume are: the primary
// raises a number there every second and sends it to the replicas.
type CanaryBody struct {
	Looks            uint64 `json:"looks"`
	Age              string `json:"age"`                // of the last read; "" = never
	MaxLag           string `json:"max_lag"`            // of plain reads
	StaleReads       uint64 `json:"stale_reads"`        // plain reads
	StaleDirectReads uint64 `json:"stale_direct_reads"` // reads past the caches: there must be none
}

// TableBody is the numbers of entries in the table.
type TableBody struct {
	Locks       uint64 `json:"locks"`
	Clients     uint64 `json:"clients"`
	Held        uint64 `json:"held"`
	Waiting     uint64 `json:"waiting"`
	Files       uint64 `json:"files"`
	Quarantined uint64 `json:"quarantined"`
	Unheard     uint64 `json:"unheard"`
}

// StatusBodyOf converts a status.
func StatusBodyOf(r *pb.StatusResponse) StatusBody {
	b := StatusBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), ClusterID: r.GetClusterId(), ServerID: r.GetServerId(),
		Role: RoleWord(r.GetRole()), Epoch: r.GetEpoch(), LSN: r.GetLsn(), Age: duration(r.GetAgeMs()),
		Primary: PrimaryOf(r.GetPrimary()), Servers: make([]ServerBody, len(r.GetServers())),
		FeatureLevel: r.GetFeatureLevel(), NextLevel: r.GetNextLevel(), UpgradeWaitsFor: append([]string{}, r.GetUpgradeWaitsFor()...),
		MembersVersion: r.GetMembersVersion(), HighestServerID: r.GetHighestServerId(), Gateway: r.GetGateway(), Cell: cellBodyOf(r.GetCell()), Cells: cellServersOf(r.GetCells()),
	}
	for i, s := range r.GetServers() {
		v := s.GetVolume()
		b.Servers[i] = ServerBody{
			ID: s.GetId(), Role: RoleWord(s.GetRole()), Epoch: s.GetEpoch(), LSN: s.GetLsn(), PID: s.GetPid(),
			Client: s.GetClient(), OldHTTP: oldHTTP(s.GetClient(), s.GetHttp()), Peer: s.GetPeer(),
			Volume: VolumeBody{
				Filesystem: v.GetFilesystem(), Network: v.GetNetwork(), Path: v.GetPath(), CheckAge: duration(v.GetCheckAgeMs()),
				FreeBytes: knownBytes(v.GetFreeBytes()), Full: v.GetFull(), Warnings: append([]string{}, v.GetWarnings()...),
				Canary: canaryBodyOf(v.GetCanary()),
			},
			Able: s.GetAble(), Reachable: s.GetReachable(), HeardAgo: ageOrNever(s.GetHeardAgoMs()), Conflict: s.GetConflict(), Unwaited: s.GetUnwaited(),
			Version: s.GetVersion(), Uptime: duration(s.GetUptimeMs()), FeatureLevel: s.GetFeatureLevel(), Restart: append([]string{}, s.GetConfigPendingRestart()...),
			Joining: s.GetJoining(), Joins: s.GetJoins(),
		}
	}
	for _, ring := range r.GetRings() {
		b.Rings = append(b.Rings, RingBodyOf(ring))
	}
	if t := r.GetTable(); t != nil {
		b.Table = &TableBody{
			Locks: t.Locks, Clients: t.Clients, Held: t.Held, Waiting: t.Waiting, Files: t.Files,
			Quarantined: t.Quarantined, Unheard: t.Unheard,
		}
	}
	return b
}

func knownBytes(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func canaryBodyOf(c *pb.CanaryStatus) CanaryBody {
	b := CanaryBody{
		Looks: c.GetLooks(), MaxLag: duration(c.GetMaxLagMs()), StaleReads: c.GetStaleReads(), StaleDirectReads: c.GetStaleDirectReads(),
	}
	if b.Looks > 0 {
		b.Age = duration(c.GetAgeMs())
	}
	return b
}

// RoleWord returns the name of a role: "primary", "replica", "fencing", "candidate", "unreachable".
func RoleWord(r pb.Role) string { return word(r.String(), "ROLE_") }

// StateWord returns the name of a request's state: "not_seen", "pending",
// "executed", "cancelled", "stale".
func StateWord(s pb.RequestState) string { return word(s.String(), "REQUEST_STATE_") }

// EventWord returns the name of an event: "grant", "release", ….
func EventWord(k pb.EventKind) string { return word(k.String(), "EVENT_KIND_") }

// LossWord returns the name of a loss's reason: "expired", "broken", "force_cleared", "released".
func LossWord(r pb.LossReason) string { return word(r.String(), "LOSS_REASON_") }

// word converts the name of an enum's value to that in JSON. A value that this binary does
// not know is its number.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
