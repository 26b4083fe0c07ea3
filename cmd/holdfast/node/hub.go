// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/wal"
)

// Hub returns the hub of this server's events: of its term while it has one, else of the pushes
// that its replica applies.
func (n *Node) Hub() *watch.Hub { return n.hub }

// pushed is the watch hub as a replica sees it.
type pushed struct{ *watch.Feed }

var _ replica.Feed = pushed{}

// Frames publishes the frames of a push.
func (p pushed) Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, taken []replica.RevokedGrant) {
	var losses []watch.Loss
	for i := range taken {
		losses = append(losses, lossOf(&taken[i]))
	}
	p.Feed.Frames(before, end, epoch, frames, losses)
}

// lossOf returns the loss for a holder, as its primary would report it.
func lossOf(x *replica.RevokedGrant) watch.Loss {
	switch x.Record.Kind {
	case locktable.KindForceClear:
		return watch.ClearedOf(&x.Record)
	case locktable.KindAsk:
		return watch.AskOf(&x.Grant, &x.Record)
	default:
		l := watch.LossOf(&x.Grant, &x.Record)
		l.Ended.LastAppend = x.Last
		return l
	}
}
