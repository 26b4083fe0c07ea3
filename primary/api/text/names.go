// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// prefix begins the client IDs of this front end. Those that servers draw are in upper case.
const prefix = "~text/"

// hashDigits is the length of a hash in a client ID.
const hashDigits = 16

// clientID is who a client is to the lock table, for one lock. Where the hashes of two
// locks are the same, a client that is heard for one keeps the other, and nothing worse.
func clientID(client string, lock cluster.LockName) cluster.ClientID {
	return cluster.ClientID(fmt.Sprintf("%s%s/%0*x", prefix, client, hashDigits, xxhash.Sum64String(string(lock))))
}

// ownerOf is what OWN calls a holder.
func ownerOf(id cluster.ClientID, lock cluster.LockName) string {
	s := string(id)
	if name, ok := strings.CutPrefix(s, prefix); ok && len(name) > hashDigits+1 {
		if name = name[:len(name)-hashDigits-1]; clientID(name, lock) == id {
			return name
		}
	}
	if id.Opened() || id.Anonymous() {
		return s
	}
	return "=" + s
}

// releaseID is the request ID of every release: of such clients only grants are remembered.
const releaseID cluster.RequestID = 1

// acquireID is the request ID of an acquire. The same line has the same one, at every server and
// whenever it comes, and so the same place in line and the same grant.
func acquireID(lock cluster.LockName, ttl, wait time.Duration) cluster.RequestID {
	h := xxhash.Sum64String(fmt.Sprintf("%s,%d,%d", lock, ttl, wait))
	return max(cluster.RequestID(h)&locktable.MaxRequestID, releaseID+1)
}
