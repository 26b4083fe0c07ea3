// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Membership is the list of a cluster's servers at one version. A change makes the next version. The list with which
// a cluster began, in CLUSTER, is version 1.
type Membership struct {
	Version uint64 `json:"version"`
	// HighestID is the highest ID that any version listed. A new server gets a higher one, so an ID up to here that is not listed
	// was removed for good: whoever reads that, however old what it reads, is right.
	HighestID ServerID `json:"highest_id"`
	Servers   Members  `json:"servers"`
}

const (
	// MaxServers is the most servers of a cluster.
	MaxServers = 32
	// maxAddress is the most bytes of an address in a Membership.
	maxAddress = 256
	// maxIDStep is how far above all earlier IDs that of a new server may be: a digit too many would use up the IDs.
	maxIDStep = 1000
)

// ErrVersion means that the list has another version than a change was meant for.
var ErrVersion = errors.New("the list of servers was changed meanwhile")

var (
	// ErrRemoved means that a server was removed from the cluster.
	ErrRemoved = errors.New("this server was removed from the cluster, for good: IDs are not used again. Add a server under a new ID: holdfast member add")
	// ErrNoMember means that a server is none of the cluster's members, and may become one.
	ErrNoMember = errors.New("this server is no member of the cluster")
)

// FirstMembership returns version 1, of the servers with which a cluster began.
func FirstMembership(servers Members) Membership {
	m := Membership{Version: 1, Servers: servers}
	for _, x := range servers {
		m.HighestID = max(m.HighestID, x.ID)
	}
	return m
}

// ParseMembership is the strict inverse of Text: it returns an error for any text that Text does not return.
func ParseMembership(text string) (m Membership, err error) {
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Membership{}, fmt.Errorf("list of servers: %w", err)
	}
	if err := m.Validate(); err != nil {
		return Membership{}, fmt.Errorf("list of servers: %w", err)
	}
	if m.Text() != text {
		return Membership{}, errors.New("list of servers: it is not in its one form")
	}
	return m, nil
}

// Text returns the one text for a valid Membership, which is JSON.
func (m Membership) Text() string {
	b, err := json.Marshal(m)
	if err != nil {
		return "" // numbers and texts: it cannot happen
	}
	return string(b)
}

// Validate checks everything that can be checked without the version before.
func (m Membership) Validate() error {
	if m.Version == 0 {
		return errors.New("versions start at 1")
	}
	if err := m.Servers.Validate(); err != nil {
		return err
	}
	if len(m.Servers) > MaxServers {
		return fmt.Errorf("%d servers: at most %d are possible", len(m.Servers), MaxServers)
	}
	if last := m.Servers[len(m.Servers)-1].ID; last > m.HighestID {
		return fmt.Errorf("server %d has an ID above the highest, %d", last, m.HighestID)
	}
	if len(m.Servers.Voters()) == 0 {
		return errors.New("every server only joins: at least one has to be a member")
	}
	for _, x := range m.Servers {
		for _, addr := range [...]string{x.Client, x.Peer, x.OldHTTP} {
			if len(addr) > maxAddress || strings.ContainsFunc(addr, notInAddress) {
				return fmt.Errorf("server %d: the address %.40q has %d bytes, or characters that no address has", x.ID, addr, len(addr))
			}
		}
	}
	return nil
}

// notInAddress leaves what JSON and shells write as it is.
func notInAddress(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\"'\\<>&", c) }

// Removed reports whether a server was in the list once and is not any more. That is for ever.
func (m Membership) Removed(id ServerID) bool {
	_, listed := m.Servers.Find(id)
	return !listed && id <= m.HighestID
}

// Admits returns nil for a member, which may claim. It returns an error that wraps ErrRemoved for a server that was removed,
// ErrNoMember for one that joins or is not listed yet.
func (m Membership) Admits(id ServerID) error {
	x, listed := m.Servers.Find(id)
	switch {
	case listed && !x.Joining:
		return nil
	case listed:
		return fmt.Errorf("server %d: %w: it joins, and becomes one when it is able to be primary", id, ErrNoMember)
	case m.Version > 1 && m.Removed(id):
		return fmt.Errorf("server %d: %w", id, ErrRemoved)
	default:
		return fmt.Errorf("server %d: %w, whose servers are %v", id, ErrNoMember, m.Servers.IDs())
	}
}

// Follows returns why m cannot be the version after another one, nil if it can.
func (m Membership) Follows(old Membership) error {
	if m.Version != old.Version+1 || m.HighestID < old.HighestID {
		return fmt.Errorf("version %d with IDs up to %d does not follow version %d with IDs up to %d", m.Version, m.HighestID, old.Version, old.HighestID)
	}
	for _, x := range m.Servers {
		if old.Removed(x.ID) {
			return fmt.Errorf("version %d lists server %d again, which was removed", m.Version, x.ID)
		}
	}
	return nil
}

// ChangeKind is what a MemberChange does.
type ChangeKind uint8

// The changes of a list. They are numbered for ever, because content hashes are made of them: append only.
const (
	// AddServer adds a server, which joins: it counts for nothing before it is able to be primary.
	AddServer ChangeKind = 1
	// SetServer gives a server other addresses.
	SetServer ChangeKind = 2
	// RemoveServer removes a server, and its ID for good.
	RemoveServer ChangeKind = 3
)

// MemberChange is a change of the list that an operator asks for.
type MemberChange struct {
	Kind ChangeKind
	// Server is the server as it is to be listed; of RemoveServer its ID alone.
	Server Member
	// IfVersion is the only version that is to be changed; 0 = any.
	IfVersion uint64
	// Force has a server removed although those that answer are no majority of the others. It is no part of what is asked: a repeat
	// with it, or without, is the same request.
	Force bool
}

// String tells what the change does, in one line.
func (c MemberChange) String() string {
	switch c.Kind {
	case AddServer:
		return fmt.Sprintf("add %d, clients at %s, servers at %s", c.Server.ID, c.Server.Client, c.Server.Peer)
	case SetServer:
		return fmt.Sprintf("set %d, clients at %s, servers at %s", c.Server.ID, c.Server.Client, c.Server.Peer)
	case RemoveServer:
		return fmt.Sprintf("remove %d", c.Server.ID)
	}
	return "an unknown change"
}

// Validate checks what can be checked without a list.
func (c MemberChange) Validate() error {
	switch {
	case c.Kind < AddServer || c.Kind > RemoveServer:
		return errors.New("change of the list of servers: use add, set or remove")
	case c.Server.ID == 0:
		return errors.New("name the server by its ID: IDs start at 1")
	case c.Server.Joining:
		return errors.New("that a server joins is not for operators to say")
	case c.Kind == RemoveServer && c.Server != Member{ID: c.Server.ID}:
		return fmt.Errorf("a removal has no addresses: name server %d by its ID alone", c.Server.ID)
	}
	return nil
}

// With returns the next version, with a change. It returns an error that wraps ErrVersion for another version than
// c.IfVersion; every error says what to do.
func (m Membership) With(c MemberChange) (Membership, error) {
	if c.IfVersion != 0 && c.IfVersion != m.Version {
		return Membership{}, fmt.Errorf("%w: it has version %d, and not %d: look at it, and ask again if you still want to", ErrVersion, m.Version, c.IfVersion)
	}
	id := c.Server.ID
	i := slices.IndexFunc(m.Servers, func(x Member) bool { return x.ID == id })
	next := Membership{Version: m.Version + 1, HighestID: max(m.HighestID, id), Servers: slices.Clone(m.Servers)}
	switch {
	case c.Kind == AddServer && i >= 0:
		return Membership{}, fmt.Errorf("server %d is in the list already: an ID above %d is free", id, m.HighestID)
	case c.Kind == AddServer && id <= m.HighestID:
		return Membership{}, fmt.Errorf("the ID %d is not free: a server that was removed may still run under it. Use one above %d", id, m.HighestID)
	case c.Kind == AddServer && id-m.HighestID > maxIDStep:
		return Membership{}, fmt.Errorf("the ID %d is far above %d, the highest one so far: use %d", id, m.HighestID, m.HighestID+1)
	case c.Kind == AddServer:
		c.Server.Joining = true
		next.Servers = append(next.Servers, c.Server)
	case i < 0:
		return Membership{}, fmt.Errorf("server %d is not in the list, which has %v", id, m.Servers.IDs())
	case c.Kind == SetServer:
		c.Server.Joining = m.Servers[i].Joining
		next.Servers[i] = c.Server
	default:
		if next.Servers = slices.Delete(next.Servers, i, i+1); len(next.Servers.Voters()) == 0 {
			return Membership{}, fmt.Errorf("server %d is the last member: add another first, and wait until it is one", id)
		}
	}
	if err := next.Validate(); err != nil {
		return Membership{}, err
	}
	return next, nil
}

// WithMember returns the next version, in which a server that joined is a member; false if there is no such server.
func (m Membership) WithMember(id ServerID) (Membership, bool) {
	i := slices.IndexFunc(m.Servers, func(x Member) bool { return x.ID == id && x.Joining })
	if i < 0 {
		return Membership{}, false
	}
	next := m
	next.Version++
	next.Servers = slices.Clone(m.Servers)
	next.Servers[i].Joining = false
	return next, true
}
