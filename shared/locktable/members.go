// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// MembersRequest is what OpMembers asks. It stands apart from Request, which every other request would be larger for.
type MembersRequest struct {
	Change cluster.MemberChange
	First  cluster.Members // the servers in CLUSTER; set by the primary
}

// members is the list of servers that the last KindMembers made. It is never changed, so that others may keep it.
type members struct {
	list cluster.Membership
	text string // of list
}

// Members returns the list of servers that the log made. It is false as long as the list is that of CLUSTER. The list must not
// be changed.
func (t *Table) Members() (cluster.Membership, bool) {
	if t.members == nil {
		return cluster.Membership{}, false
	}
	return t.members.list, true
}

// MembersOr returns the list of servers, which is version 1 of first, the servers in CLUSTER, if the log made none.
func (t *Table) MembersOr(first cluster.Members) cluster.Membership {
	if list, made := t.Members(); made {
		return list
	}
	return cluster.FirstMembership(first)
}

func (t *Table) decideMembers(q *Request, d *draft, r Record) Decision {
	now := t.MembersOr(q.Members.First)
	next, err := now.With(q.Members.Change)
	if q.Level != 0 && q.Level < MembersLevel {
		err = fmt.Errorf("the list of servers can be changed from feature level %d on, and every server has to know it: upgrade all servers, then type holdfast upgrade --finish", MembersLevel)
	}
	if err != nil {
		dec := refuse(q, cluster.StatusInvalidArgument, err.Error())
		dec.Outcome.Version = now.Version
		return dec
	}
	r.Kind, r.Members = KindMembers, next.Text()
	return decided(d.add(r))
}

// DecideMember makes a server that joined a member; nothing if there is none such.
func (t *Table) DecideMember(id cluster.ServerID, epoch cluster.Epoch, recs []Record) []Record {
	list, _ := t.Members()
	next, joins := list.WithMember(id)
	if !joins {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindMembers, Members: next.Text()})
	return d.recs
}

// legalMembers: versions follow each other, and an ID that was removed never comes back. The table does not know CLUSTER, so the
// first list of the log is only known to be version 2.
func (t *Table) legalMembers(r *Record) error {
	next, err := cluster.ParseMembership(r.Members)
	if err != nil {
		return err
	}
	if now, made := t.Members(); made {
		err = next.Follows(now)
	} else if next.Version != 2 {
		err = fmt.Errorf("version %d of the list of servers follows the first one", next.Version)
	}
	if err == nil && r.Request != 0 {
		err = t.legalRequester(r)
	}
	return err
}

// setMembers takes the list with this text, which is valid.
func (t *Table) setMembers(text string) {
	list, err := cluster.ParseMembership(text)
	if err != nil {
		return // legal and import have parsed it
	}
	t.hash -= t.sumMembers()
	t.members = &members{list: list, text: text}
	t.hash += t.sumMembers()
}

// sumMembers returns the list's part of the hash, 0 without one: older states keep their hash.
func (t *Table) sumMembers() uint64 {
	if t.members == nil {
		return 0
	}
	return t.sum(t.members.appendTo)
}

func (m *members) appendTo(b []byte) []byte { return appendText(append(b, tagMembers), m.text) }

// membersVersion returns the version of the list that a KindMembers makes.
func (r *Record) membersVersion() uint64 {
	list, _ := cluster.ParseMembership(r.Members) //nolint:errcheck // the record is valid
	return list.Version
}

func (t *Table) importMembers(list *cluster.Membership) error {
	text := list.Text()
	_, err := cluster.ParseMembership(text)
	switch {
	case err != nil:
		return err
	case t.members != nil || list.Version < 2:
		return fmt.Errorf("version %d of the list of servers comes with another one, or is that of CLUSTER", list.Version)
	}
	t.setMembers(text)
	return nil
}

// ForgetMembers returns a copy of the table without a list of servers: that of the CLUSTER of another volume counts from now on.
func (t *Table) ForgetMembers() *Table {
	c := t.Clone()
	c.hash -= c.sumMembers()
	c.members = nil
	return c
}

// members checks the list of servers.
func (ck *checker) members() error {
	m := ck.t.members
	if m == nil {
		return nil
	}
	ck.sum(m.appendTo)
	if m.list.Version < 2 || m.list.Validate() != nil || m.list.Text() != m.text {
		return fmt.Errorf("invariant 13: the list of servers is %s", m.text)
	}
	return nil
}
