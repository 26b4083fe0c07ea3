// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// Hub is where this server's events are: of its reign while it has one, else of
// the pushes that its replica applies.
func (n *Node) Hub() *watch.Hub { return n.hub }

// pushed is the watch hub as a replica sees it.
type pushed struct{ *watch.Feed }

var _ replica.Feed = pushed{}

// Frames hands over what a push brought.
func (p pushed) Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, taken []replica.Taken) {
	var losses []watch.Loss
	for i := range taken {
		losses = append(losses, lossOf(&taken[i]))
	}
	p.Feed.Frames(before, end, epoch, frames, losses)
}

// lossOf is what a holder is told, as its primary would tell it.
func lossOf(x *replica.Taken) watch.Loss {
	switch x.Record.Kind {
	case locktable.KindForceClear:
		return watch.ClearedOf(&x.Record)
	case locktable.KindAsk:
		return watch.AskOf(&x.Grant, &x.Record)
	default:
		l := watch.LossOf(&x.Grant, &x.Record)
		l.Told.LastAppend = x.Last
		return l
	}
}
