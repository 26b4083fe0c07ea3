// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// ErrReopen ends a server that can reach the volume only by opening it anew: its directory was
// mounted again, and what is open leads to the earlier mount. A new Node on the path serves
// again.
var ErrReopen = errors.New("the volume was mounted anew: what this server has open leads to the mount before")

// reopenAfter is how often in a row the volume has to be found by its path, and not by what is
// open, before the server ends.
const reopenAfter = 2

// reopens ends the server with ErrReopen if only opening the volume anew can help.
func (n *Node) reopens(ctx context.Context) error {
	if n.opt.Moved == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	t := wake.Every(probeEvery)
	defer t.Stop()
	var looking chan bool // one check at a time: it hangs if the volume does
	found := 0
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case moved := <-looking:
			looking = nil
			if found++; !moved || n.storageFresh() {
				found = 0
			}
			if found == reopenAfter {
				return ErrReopen
			}
		case <-t.C:
			t.Again()
			if looking == nil && !n.storageFresh() {
				looking = make(chan bool, 1)
				go func(found chan<- bool) { found <- n.opt.Moved() }(looking)
			}
		}
	}
}

// storageFresh reports whether a write to the volume or a check of the term succeeded within the
// storage timeout, and reads are not older than that.
func (n *Node) storageFresh() bool {
	return n.self().Storage <= n.opt.Timing.StorageTimeout
}
