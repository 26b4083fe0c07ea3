// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"unique"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// owner returns the identity that the client belongs to, "" for none.
func (c *client) owner() string {
	if c.identity == (unique.Handle[string]{}) {
		return ""
	}
	return c.identity.Value()
}

func (c *client) setOwner(identity string) {
	if identity != "" {
		c.identity = unique.Make(identity)
	}
}

// own gives the client of r, if it has no identity, that of r.
func (t *Table) own(r *Record) {
	if r.Identity == "" {
		return
	}
	if c := t.clients.get(r.Client); c != nil && c.owner() == "" {
		t.changesClient(c)
		c.setOwner(r.Identity)
	}
}

// admits reports whether a caller of this identity may use the client and what belongs to it.
func (c *client) admits(identity string) bool {
	owner := c.owner()
	return owner == "" || owner == identity
}

// DeniesClient returns why a caller of this identity, "" for none, may not name the client in a
// request. It is "" where the caller may. It does not name the owner: who may read the lock sees that there.
func (t *Table) DeniesClient(id cluster.ClientID, identity string) string {
	c := t.clients.get(id)
	if c == nil || c.admits(identity) {
		return ""
	}
	return fmt.Sprintf("client %s belongs to another identity, and you %s: use a client ID of your own", id, areYou(identity))
}

// DeniesToken returns why a caller of this identity, "" for none, may not use the token. It is ""
// where the caller may, and where the token is not live.
func (t *Table) DeniesToken(lock cluster.LockName, token cluster.Token, identity string) string {
	g := t.live(lock, token)
	if g == nil || g.client.admits(identity) {
		return ""
	}
	return fmt.Sprintf("the lock %q is held by another identity under this token, and you %s", lock, areYou(identity))
}

func areYou(identity string) string {
	if identity == "" {
		return "have no credential"
	}
	return "are " + identity
}
