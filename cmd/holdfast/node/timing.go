// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// otherTimings returns a warning for each server that is heard and has another timing.
func (n *Node) otherTimings() (all []string) {
	for _, p := range n.elector.Peers() {
		if told := p.Status.Timing; p.Reachable && told != 0 && told != n.timing {
			all = append(all, otherTiming(p.ID))
		}
	}
	return all
}

func otherTiming(id cluster.ServerID) string {
	return fmt.Sprintf("SERVER %d HAS ANOTHER TIMING than this one: compare what holdfast config show says on the two hosts, give all servers the same, and start them again", id)
}

// watchTimings logs each warning of otherTimings when it comes up, until ctx ends.
func (n *Node) watchTimings(ctx context.Context) error {
	t := wake.Every(probeEvery)
	defer t.Stop()
	said := map[string]bool{}
	for {
		now := map[string]bool{}
		for _, w := range n.otherTimings() {
			now[w] = true
			if !said[w] {
				n.opt.Log.Warn().Msg(w)
			}
		}
		said = now
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
	}
}
