// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// MEMBERS shows the list of servers that the log has, to servers that begin or claim while nobody serves. The log decides: a
// claimant that MEMBERS lets pass finds the list in the log that it adopts. The primary replaces it, as it does the views for people,
// so a primary that was paused may put an older list in place of a newer one. What an older list says of a removed server is true for
// ever, because an ID never comes back; a removed server that it still names claims, and is refused by the log; a newer server
// that it does not name yet waits until the present primary has written it again.

// membersTries is how often MEMBERS is read: a network filesystem may lose a file under its reader when it is replaced.
const membersTries = 3

// ReadMembers returns the list of servers in MEMBERS, and that of CLUSTER where there is none. It returns an error, and that of
// CLUSTER, if MEMBERS cannot be read, which wraps ErrDamaged for a content that is no list, or of another cluster.
func ReadMembers(fsys vfs.FS, c Cluster) (cluster.Membership, error) {
	var err error
	for range membersTries {
		var b []byte
		if b, err = vfs.ReadFile(fsys, layout.MembersName, vfs.FlagRead); errors.Is(err, fs.ErrNotExist) {
			return cluster.FirstMembership(c.Servers), nil
		}
		if err == nil {
			var list cluster.Membership
			if list, err = cluster.ParseMembers(b, c.ID); err == nil {
				return list, nil
			}
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
			break
		}
	}
	return cluster.FirstMembership(c.Servers), fmt.Errorf("read %s: %w", layout.MembersName, err)
}

// ReadClusterNow returns CLUSTER, with the servers that MEMBERS lists now. Where that cannot be read, it has those with which the
// cluster began.
func ReadClusterNow(fsys vfs.FS) (Cluster, error) {
	c, err := ReadCluster(fsys)
	if err != nil {
		return c, err
	}
	list, _ := ReadMembers(fsys, c) //nolint:errcheck // see above
	c.Servers = list.Servers
	return c, nil
}

// openedBy returns the list of servers for one that opens the volume, as a member or to join. A list that cannot be read is no
// reason not to, for a server in CLUSTER: the log has it, too.
func openedBy(fsys vfs.FS, c Cluster, id cluster.ServerID) (cluster.Membership, error) {
	list, readErr := ReadMembers(fsys, c) // it is read again before each claim, and told there
	_, listed := list.Servers.Find(id)
	err := list.Admits(id)
	switch {
	case listed:
		return list, nil
	case errors.Is(err, cluster.ErrRemoved):
	case readErr != nil:
		err = fmt.Errorf("server %d is not one of the servers %v in CLUSTER, and whether it was added cannot be read: %w. A primary writes MEMBERS again; where none serves, type: holdfast fsck", id, list.Servers.IDs(), readErr)
	default:
		err = fmt.Errorf("server %d is not one of this volume's servers %v: %w", id, list.Servers.IDs(), cluster.ErrNoMember)
	}
	return list, err
}

// RestoreMembers makes MEMBERS the list of a recovery's epoch, nil for none. Servers that were added since the volume was made could not
// start without it.
func RestoreMembers(fsys vfs.FS, c Cluster, e cluster.Epoch, list *cluster.Membership) error {
	if list == nil {
		return vfs.IgnoreMissing(fsys.Remove(layout.MembersName))
	}
	return fsys.Replace(layout.MembersName, writeMembers(c.ID, e, *list))
}

// lostMembers returns an error that wraps ErrDamaged if a list that MEMBERS showed is newer than that of a log which was read after it: it
// was committed before it was written there.
func (c Cluster) lostMembers(shown cluster.Membership, t *locktable.Table) error {
	if list := t.MembersOr(c.Servers); shown.Version > list.Version {
		return fmt.Errorf("%w: MEMBERS shows version %d of the list of servers, the log ends with version %d: put the newer files back; where they are lost, stop all servers and type: holdfast recover --volume DIR",
			ErrDamaged, shown.Version, list.Version)
	}
	return nil
}

func writeMembers(id cluster.ID, e cluster.Epoch, list cluster.Membership) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, cluster.MembersText(id, e, list)+"\n")
		return err
	}
}

// ServerIDs returns, in order, the IDs of the servers in CLUSTER and of all that have a file in servers/: of every server that ever ran
// here, whatever the list of servers says of it by now.
func ServerIDs(fsys vfs.FS, c Cluster) ([]cluster.ServerID, error) {
	ids := c.Servers.IDs()
	entries, err := fsys.ReadDir(layout.ServersDir)
	for _, x := range entries {
		if id, _, ok := layout.ParseServerName(x.Name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// Members returns the list of servers that the volume showed when it was opened.
func (v *Volume) Members() cluster.Membership { return v.members }

// ReadMembers is the function ReadMembers for this volume.
func (v *Volume) ReadMembers() (cluster.Membership, error) { return ReadMembers(v.fs, v.cluster) }

// RemoveTemporaryMembers is RemoveTemporaries for MEMBERS.
func (r *Term) RemoveTemporaryMembers() error { return r.removeTemporaries(layout.MembersName) }

// FirstServers returns the servers with which the cluster began, those of CLUSTER.
func (r *Term) FirstServers() cluster.Members { return r.v.cluster.Servers }

// LostMembers returns an error that wraps ErrDamaged if MEMBERS shows a newer list than the log that this term is about to adopt has, and
// no later term can have written that: it would have fenced this one before.
func (r *Term) LostMembers(t *locktable.Table) error {
	shown, err := r.ReadMembers()
	if err != nil {
		return nil // what cannot be read shows nothing
	}
	lost := r.v.cluster.lostMembers(shown, t)
	if lost == nil {
		return nil
	}
	if err := r.Check(); err != nil {
		return err
	}
	return lost
}

// ReadMembers is the function ReadMembers for the volume of this term.
func (r *Term) ReadMembers() (cluster.Membership, error) { return r.v.ReadMembers() }

// PublishMembers writes MEMBERS. The caller has checked, and the list was committed before. Written late, it does no harm: see above.
func (r *Term) PublishMembers(list cluster.Membership) error {
	return r.publishView(layout.MembersName, writeMembers(r.v.cluster.ID, r.epoch, list))
}
