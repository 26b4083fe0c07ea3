// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"
)

// ErrReopen ends a server whose way to the volume is dead for good while the volume is there
// again by its path: its directory was mounted anew, and what is open leads to the mount
// before. A new Node on the path serves again.
var ErrReopen = errors.New("the volume was mounted anew: what this server has open leads to the mount before")

// reopenAfter is how often in a row the volume has to be found by its path, and not by what is
// open, before the server ends for it.
const reopenAfter = 2

// reopens ends the server with ErrReopen where only opening the volume anew can help.
func (n *Node) reopens(ctx context.Context) error {
	if n.opt.Moved == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	var looking chan bool // one look at a time: it hangs where the volume does
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
			if looking == nil && !n.storageFresh() {
				looking = make(chan bool, 1)
				go func(found chan<- bool) { found <- n.opt.Moved() }(looking)
			}
		}
	}
}

// storageFresh reports whether the volume took a write, or passed a check of the reign, within
// the storage timeout, and is not older than that.
func (n *Node) storageFresh() bool {
	return n.self().Storage <= n.opt.Timing.StorageTimeout
}
