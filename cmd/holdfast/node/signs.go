// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// signLook is how often a server reads the volume for a process that sends messages and was not
// seen there. It reads nothing while there is none.
const signLook = 500 * time.Millisecond

// process returns the description of this process on the volume, before its first sign of life.
func process(opt *Options, nonce uint64) volume.Process {
	host, _ := os.Hostname() // for people: unknown will do
	path := opt.Path
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return volume.Process{Nonce: nonce, PID: os.Getpid(), Host: host, Address: opt.Address, Path: path}
}

// maxAbout bounds the description of a process in its messages, in bytes.
const maxAbout = 512

// about returns the description of this process for its messages.
func about(opt *Options) string {
	text := process(opt, 0).String()
	return printable(text[:min(len(text), maxAbout)])
}

// showSigns writes a sign of life of this process to the volume every second, in all roles, on a
// goroutine of its own: a call that hangs blocks nothing else. That also proves that the volume
// takes writes. Before each it checks whether another process writes to the same place.
func (n *Node) showSigns(ctx context.Context) error {
	t := wake.Every(probeEvery)
	defer t.Stop()
	me, seen, mute := process(&n.opt, n.nonce), signs{}, false
	if n.opt.Key != (volume.KeyID{}) {
		me.Key = n.opt.Key.String()
	}
	for {
		n.lookForSign(n.opt.Server, seen)
		me.Count++
		me.Term = n.takingOver()
		err := n.showSign(me)
		if err != nil && !mute && ctx.Err() == nil {
			n.opt.Log.Warn().Err(err).Msg("the volume takes no writes")
		}
		mute = err != nil
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
	}
}

func (n *Node) showSign(me volume.Process) error {
	err := n.vol.WriteProcess(me)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.probeErr = err; err == nil {
		n.mu.probed = time.Now()
	}
	return err
}

// watchSigns reads the volume for the processes of which the elector wants to know whether they
// write to it.
func (n *Node) watchSigns(ctx context.Context) error {
	t := wake.Every(signLook)
	defer t.Stop()
	seen := signs{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			t.Again()
		}
		for _, id := range n.elector.Unproven() {
			n.lookForSign(id, seen)
		}
	}
}

// lookForSign reports to the elector which process writes to the volume under an ID.
func (n *Node) lookForSign(id cluster.ServerID, seen signs) {
	p, err := n.vol.ReadProcess(id)
	if err != nil || !seen.rises(p) {
		return
	}
	n.mu.Lock()
	n.mu.signs[id] = p
	n.mu.Unlock()
	n.elector.Prove(id, p.Nonce)
}

// maxSigns bounds how many processes are remembered.
const maxSigns = 64

// signs is at which count each process was seen on the volume, by nonce.
type signs map[uint64]uint64

// rises reports whether the process was seen before at a lower count: it has written to this
// volume since. A copy of the volume shows the count of when it was made.
func (s signs) rises(p volume.Process) bool {
	was, known := s[p.Nonce]
	if !known && len(s) == maxSigns {
		clear(s)
	}
	s[p.Nonce] = max(was, p.Count)
	return known && p.Count > was
}

// onStranger logs a process that uses a server's ID and is not of this volume.
func (n *Node) onStranger(x election.Stranger) {
	n.opt.Log.Error().Uint32("id", uint32(x.ID)).Str("from", x.From).Msg(n.strangerText(x))
}

const (
	// foreignAfter is for how long a process without a key of this volume must ping before it is reported, and
	// foreignFor how long after its last ping it is: that of a server which has just started may not show yet.
	foreignAfter, foreignFor = 3 * time.Second, 10 * time.Second
)

// foreign is a process that pings as a server and has no key on this server's volume.
type foreign struct {
	election.Stranger
	since, heard time.Time
	told         bool
}

// HandleStranger reports a process that pings as a server and has no key on this server's volume. It sends
// whatever it likes, so only the last one of each ID is kept.
func (n *Node) HandleStranger(x election.Stranger) {
	if _, member := n.members().Find(x.ID); !member {
		return
	}
	now := time.Now()
	n.mu.Lock()
	f := n.mu.foreign[x.ID]
	if now.Sub(f.heard) > foreignFor {
		f = foreign{since: now}
	}
	f.Stranger, f.heard = x, now
	tell := !f.told && now.Sub(f.since) >= foreignAfter
	f.told = f.told || tell
	n.mu.foreign[x.ID] = f
	n.mu.Unlock()
	if tell {
		n.onStranger(x)
	}
}

// foreigners returns the processes without a key of this volume that ping as servers.
func (n *Node) foreigners() (all []election.Stranger) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range n.members().IDs() {
		if f := n.mu.foreign[id]; now.Sub(f.heard) <= foreignFor && now.Sub(f.since) >= foreignAfter {
			all = append(all, f.Stranger)
		}
	}
	return all
}

// disowned returns which other server does not find this one's key on its volume, and for how long.
func (n *Node) disowned() (cluster.ServerID, time.Duration) {
	if n.opt.Disowned == nil {
		return 0, 0
	}
	return n.opt.Disowned()
}

// strangerText returns a message on a stranger: what it is, where, and what to do.
func (n *Node) strangerText(x election.Stranger) string {
	n.mu.Lock()
	own, known := n.mu.signs[x.ID]
	n.mu.Unlock()
	text := fmt.Sprintf("ANOTHER PROCESS USES SERVER ID %d AND DOES NOT WRITE TO THIS VOLUME", x.ID)
	if x.About != "" {
		text += ": " + x.About
	}
	if x.From != "" {
		text += ", at " + x.From
	}
	text += ". It serves a copy of the volume, and its messages count for nothing here: stop it"
	if known {
		text += fmt.Sprintf(". Leave alone %v", own)
	}
	return printable(text)
}

// tellProcesses adds to status whether two processes use this server's own ID, and which strangers
// use any ID.
func (n *Node) tellProcesses(me *serving.ServerStatus, at func(cluster.ServerID) *serving.ServerStatus) {
	both := n.elector.Conflict()
	shareID(me, len(both) > 0, both)
	for _, x := range slices.Concat(n.elector.Strangers(), n.foreigners()) {
		at(x.ID).Warnings = append(at(x.ID).Warnings, n.strangerText(x))
	}
}

// shareID adds to a server's status that two processes use its ID, and which, if there is a
// conflict.
func shareID(x *serving.ServerStatus, conflict bool, processes []string) {
	if x.Conflict = conflict; conflict {
		x.Warnings = append(x.Warnings, printable("stop one of: "+strings.Join(processes, "; ")))
	}
}

// printable returns a text without what could harm a terminal: names of directories, and
// descriptions of strangers, may contain anything.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
