// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// takingOver returns the term that this server takes over, 0 if it takes none over or a call of the takeover hangs.
func (n *Node) takingOver() cluster.Epoch {
	p := n.current()
	if p == nil || p.State() != primary.StateFencing || p.Unanswered(time.Now()) > n.opt.Timing.StorageTimeout {
		return 0
	}
	return p.Epoch()
}

// watchPrimaries reads, where the volume has a vote, what servers write to it as primaries, on a goroutine of its own.
// While the primary answers pings, it reads when that has told of a new value of its canary, and once a second.
func (n *Node) watchPrimaries(ctx context.Context) error {
	t := wake.Every(canaryLook)
	defer t.Stop()
	var seen uint64
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
		if !n.elector.AsksVolume() {
			continue
		}
		if id, _, beat, now := n.toldBeat(); id == 0 || beat != seen || now.Sub(looked) >= probeEvery {
			seen, looked = beat, now
			n.lookForPrimaries()
		}
	}
}

// lookForPrimaries reports to the elector what all members have written. It reports nothing if one of the reads failed. The others are read all the
// same, so that names which a cache may hide are waited for beside each other.
func (n *Node) lookForPrimaries() {
	look := election.Look{Began: time.Now(), Signs: map[cluster.ServerID]election.Sign{}}
	var unseen error
	for _, id := range n.members().Voters().IDs() {
		sign, own, err := n.readSign(id)
		if unseen == nil {
			unseen = err
		}
		if !own {
			look.Signs[id] = sign
		}
	}
	n.setUnseen(unseen)
	if unseen != nil {
		return
	}
	look.Ended = time.Now()
	n.elector.Saw(look)
}

// readSign reads what a server has written as primary, or on its way to be one. Under this server's own ID, only a canary that
// another process raises is of interest: one of a term of this process, own, may land when the term has ended.
func (n *Node) readSign(id cluster.ServerID) (s election.Sign, own bool, err error) {
	c, err := n.vol.ReadCanary(id, vfs.FlagDirect)
	if n.absent.prove(absentFile{id, false}, err, n.namesLie()) || errors.Is(err, volume.ErrEmptyCanary) {
		err = nil
	}
	s.Beat = c.Value
	if id == n.opt.Server {
		n.mu.Lock()
		defer n.mu.Unlock()
		return s, err == nil && c.Epoch != 0 && c.Epoch == n.mu.beatEpoch, err
	}
	p, missing := n.vol.ReadProcess(id)
	if n.absent.prove(absentFile{id, true}, missing, n.namesLie()) {
		missing = nil
	}
	if p.Term != 0 {
		s.Takeover = p.Count
	}
	return s, false, errors.Join(err, missing)
}

// absent is since when each read has found that a file is missing.
type absent map[absentFile]time.Time

// absentFile is the canary or the sign of life of a server.
type absentFile struct {
	id      cluster.ServerID
	process bool
}

// prove reports whether the result of a read proves that the file was never written. The caches of a network filesystem may
// hide a name for so long: a server that has never run must not keep the other one from serving for longer.
func (a absent) prove(f absentFile, err error, hidden time.Duration) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		delete(a, f)
		return false
	}
	if _, known := a[f]; !known {
		a[f] = time.Now()
	}
	return time.Since(a[f]) >= hidden
}

// setUnseen notes why this server cannot read what the others write, nil if it can.
func (n *Node) setUnseen(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.unseen = err
}

// loneReason returns why this server does not take over although it hears no primary, "" where it hears one or a majority.
func (n *Node) loneReason() string {
	v := n.elector.VolumeVote()
	if _, _, known := n.Primary(); known || !v.Asked {
		return ""
	}
	n.mu.Lock()
	unseen := n.mu.unseen
	n.mu.Unlock()
	switch {
	case v.Risen != 0:
		return stillWrites(v) + ". If it lives, correct the network between it and this server"
	case unseen != nil && n.storageAge(time.Now()) <= n.opt.Timing.StorageTimeout: // else status tells of its writes
		return fmt.Sprintf("this server does not take over, for it cannot see on the volume whether another one is primary: %v", unseen)
	case !n.members().Voters().VolumeVotes() && v.Still >= v.Needed:
		return "no majority of the servers answers and writes to the volume. Start the others; or, if they never come back: holdfast takeover --yes"
	}
	return ""
}

// stillWrites names the server that was seen to go on as primary.
func stillWrites(v election.VolumeVote) string {
	return fmt.Sprintf("server %d writes to the volume as primary, %v ago, and does not answer this server", v.Risen, v.Ago.Round(time.Second/10))
}

// takeoverGrace is for how much longer than the volume's vote needs a permission to take over lasts.
const takeoverGrace = 10 * time.Second

// Takeover is an operator's permission for this server to be primary once without a majority. What the volume shows decides,
// and refuses it while another server goes on as primary.
func (n *Node) Takeover() locktable.Outcome {
	out := locktable.Outcome{Status: cluster.StatusOK}
	refuse := func(format string, args ...any) locktable.Outcome {
		out.Status, out.Message = cluster.StatusError, "refused: "+fmt.Sprintf(format, args...)
		return out
	}
	if m, epoch, known := n.Primary(); known && m.ID == n.opt.Server {
		out.Message = fmt.Sprintf("server %d is the primary of epoch %d already", m.ID, epoch)
		return out
	} else if known {
		return refuse("server %d is primary, and there is nothing to take over: see holdfast status", m.ID)
	}
	v := n.elector.VolumeVote()
	if !v.Asked {
		return refuse("a majority of the servers answers server %d, and writes to the volume: they need no operator to have a primary; holdfast status shows what they wait for", n.opt.Server)
	}
	for _, p := range n.elector.Peers() {
		if !p.Joining && p.Reachable && p.Status.Able {
			return refuse("server %d reaches a majority of the servers, and needs no operator to be primary: see holdfast status", p.ID)
		}
	}
	if v.Risen != 0 {
		return refuse("%s. If it lives, correct the network; if it has ended just now, try again in %v", stillWrites(v), v.Needed.Round(time.Second))
	}
	if why := n.unfit(); why != "" {
		return refuse("server %d cannot be primary: %s", n.opt.Server, why)
	}
	n.elector.Permit(time.Now().Add(v.Needed + takeoverGrace))
	n.opt.Log.Warn().Msg("an operator permits this server to take over without a majority")
	out.Message = fmt.Sprintf("server %d takes over in place of those that do not answer, if the volume shows no primary for %v: see holdfast status", n.opt.Server, v.Needed.Round(time.Second/10))
	return out
}

// unfit returns why this server could not claim, "" if it could.
func (n *Node) unfit() string {
	age := n.self().Storage
	n.mu.Lock()
	prepared, outdated := n.mu.prepared != nil, n.mu.outdated
	n.mu.Unlock()
	switch {
	case outdated != "":
		return outdated
	case age > n.opt.Timing.StorageTimeout:
		return n.volumeTrouble(age)
	case !prepared:
		return "no claim is prepared: see its log"
	}
	return ""
}
