// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// Nemesis kills servers, primaries above all, and starts them again. It belongs
// to one goroutine.
type Nemesis struct {
	Cluster *cluster.Cluster
	Rand    *rand.Rand
	// Every is the average time between two strikes.
	Every time.Duration

	Strikes []check.Strike
	// Kills counts processes, Primaries those that were primary.
	Kills, Primaries int
}

// The kinds of strikes.
const (
	strikePrimary = "primary"
	strikeTwice   = "primary and its successor"
	strikePair    = "primary and a replica"
	strikeAll     = "all three"
	strikeReplica = "a replica"
)

// kind draws the next one. Most often only the primary dies.
func (n *Nemesis) kind() string {
	switch x := n.Rand.IntN(20); {
	case x < 12:
		return strikePrimary
	case x < 14:
		return strikeTwice
	case x < 16:
		return strikePair
	case x < 18:
		return strikeAll
	default:
		return strikeReplica
	}
}

// startWithin bounds how long a killed server stays down.
const startWithin = 500 * time.Millisecond

// Strike waits for a primary, injects a random fault into it, and restarts the servers that it
// killed. It returns false if there is no primary within cluster.Patience.
func (n *Nemesis) Strike(ctx context.Context) bool {
	p, epoch, ok := n.primary(ctx, 0)
	if !ok {
		return false
	}
	kind := n.kind()
	if kind == strikeReplica {
		n.kill(n.other(p))
		n.mend(ctx)
		return true
	}
	n.Primaries++
	n.Strikes = append(n.Strikes, check.Strike{Kind: kind, At: time.Now(), Epoch: epoch})
	switch kind {
	case strikeAll:
		n.Kills += 3
		n.Cluster.KillAll()
	case strikePair:
		other := n.other(p)
		n.kill(p)
		n.kill(other)
	case strikeTwice:
		n.kill(p)
		next, after, ok := n.primary(ctx, epoch)
		if !ok {
			return false
		}
		n.Primaries++
		n.Strikes = append(n.Strikes, check.Strike{Kind: kind + ", second", At: time.Now(), Epoch: after})
		n.kill(next)
	default:
		n.kill(p)
	}
	n.mend(ctx)
	return true
}

// Rest waits for a random time of about Every.
func (n *Nemesis) Rest(ctx context.Context) {
	traffic.Rest(ctx, n.Every*4/5+time.Duration(n.Rand.Int64N(int64(n.Every*2/5))))
}

func (n *Nemesis) primary(ctx context.Context, behind hf.Epoch) (p *cluster.Server, epoch hf.Epoch, ok bool) {
	ok = cluster.Poll(ctx, cluster.Patience, func() bool {
		s, e := n.Cluster.Primary(ctx)
		p, epoch = s, hf.Epoch(e)
		return s != nil && epoch > behind
	})
	return p, epoch, ok
}

// other is a running server that is not this one.
func (n *Nemesis) other(than *cluster.Server) *cluster.Server {
	for _, i := range n.Rand.Perm(3) {
		if s := n.Cluster.Servers()[i]; s != than && s.Running() {
			return s
		}
	}
	return than
}

func (n *Nemesis) kill(s *cluster.Server) {
	s.Kill()
	n.Kills++
}

func (n *Nemesis) mend(ctx context.Context) {
	traffic.Rest(ctx, time.Duration(n.Rand.Int64N(int64(startWithin))))
	n.Cluster.StartAll()
}
