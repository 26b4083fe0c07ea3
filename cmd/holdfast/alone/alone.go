// SPDX-License-Identifier: Apache-2.0

// Package alone removes servers from the list where nobody can be primary, because too many are gone for good.
//
// It is one term like others, in the place of a server that stays, and as safe: it claims an epoch, fences those before, adopts
// their log, writes its START, logs the change, checks, and resigns. What a server does meanwhile, or later, meets the fence. Only a
// majority is not asked. So that no term is ended for nothing, it refuses where a server shows life: its guard is held on this
// host, or what it writes to the volume rises.
package alone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// stillFor is for how long no server may write: three times as often as each that runs does.
	stillFor = 3 * time.Second
	// shownWait bounds the wait for MEMBERS. The log has the list by then.
	shownWait = 5 * time.Second
)

// ErrRuns means that a server runs, which may be primary, or can be asked instead.
var ErrRuns = errors.New("a server runs: stop it, or, if it cannot be primary, type holdfast takeover --yes and remove the others by it")

// Options say how. The zero value is that of the command.
type Options struct {
	// Timing is that of the term; the zero value is the default.
	Timing cluster.Timing
	Log    zerolog.Logger
	// Segment and FirstSegment are sizes of the log; 0 is the default.
	FirstSegment, Segment int64
}

// Remove removes a server, and returns the list without it. One that was removed before is no error.
func Remove(ctx context.Context, fsys vfs.FS, change cluster.MemberChange, opt Options) (list cluster.Membership, err error) {
	if opt.Timing == (cluster.Timing{}) {
		opt.Timing = cluster.DefaultTiming()
	}
	c, err := volume.ReadCluster(fsys)
	if err != nil {
		return list, err
	}
	if err := volume.CheckLevel(ctx, fsys, c); err != nil {
		return list, err
	}
	if list, err = volume.ReadMembers(fsys, c); err != nil {
		return list, err
	}
	if list.Removed(change.Server.ID) {
		return list, nil
	}
	if _, err := list.With(change); err != nil {
		return list, err
	}
	held, err := guards(fsys, list, change.Server.ID)
	if err != nil {
		return list, err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	return asStaying(ctx, fsys, c, list, change, opt)
}

// guards holds the guards of all servers but that as which the volume is opened, which is the first one that stays.
func guards(fsys vfs.FS, list cluster.Membership, gone cluster.ServerID) (held volume.Guards, err error) {
	for _, id := range list.Servers.IDs() {
		if id == staying(list, gone) {
			continue
		}
		l, err := volume.TakeGuard(fsys, id)
		if err != nil {
			return nil, errors.Join(runs(id, err), held.Release())
		}
		held = append(held, l)
	}
	return held, nil
}

// runs says of an error of a guard that the server runs.
func runs(id cluster.ServerID, err error) error {
	if errors.Is(err, volume.ErrSameID) {
		return fmt.Errorf("server %d: %w", id, ErrRuns)
	}
	return err
}

// staying returns the first member that is not removed; there is one.
func staying(list cluster.Membership, gone cluster.ServerID) cluster.ServerID {
	ids := slices.DeleteFunc(list.Servers.Voters().IDs(), func(id cluster.ServerID) bool { return id == gone })
	return ids[0]
}

// asStaying makes the change in a term of a server that stays.
func asStaying(ctx context.Context, fsys vfs.FS, c volume.Cluster, list cluster.Membership, change cluster.MemberChange, opt Options) (_ cluster.Membership, err error) {
	self := staying(list, change.Server.ID)
	v, err := volume.Open(fsys, volume.Options{Server: self, Random: rand.Reader, FirstSegment: opt.FirstSegment, Segment: opt.Segment, Staleness: opt.Timing.Staleness})
	if err != nil {
		return list, runs(self, err)
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := still(ctx, v, list.Servers.IDs(), stillFor+2*opt.Timing.Staleness); err != nil {
		return list, err
	}
	prepared, err := v.Prepare(ctx)
	if err != nil {
		return list, err
	}
	term, err := v.Claim(ctx, prepared)
	if err != nil {
		return list, errors.Join(err, prepared.Discard())
	}
	p := primary.New(term, primary.Options{Server: self, Timing: opt.Timing, Log: opt.Log})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case err := <-ended:
		return list, err
	case <-p.Serving():
	}
	list, err = logged(ctx, p, v, list, change)
	cancel()
	<-ended // by its resignation, if it came so far
	return list, err
}

// still returns an error if a server writes within a time.
func still(ctx context.Context, v *volume.Volume, ids []cluster.ServerID, wait time.Duration) error {
	before := signs(v, ids)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	for id, now := range signs(v, ids) {
		if now != before[id] {
			return fmt.Errorf("server %d writes to the volume: %w", id, ErrRuns)
		}
	}
	return nil
}

// sign is what a server that runs raises.
type sign struct{ beat, nonce, count uint64 }

func signs(v *volume.Volume, ids []cluster.ServerID) map[cluster.ServerID]sign {
	all := map[cluster.ServerID]sign{}
	for _, id := range ids {
		c, _ := v.ReadCanary(id, vfs.FlagDirect) //nolint:errcheck // none: it never was primary
		p, _ := v.ReadProcess(id)                //nolint:errcheck // none: it never ran
		all[id] = sign{c.Value, p.Nonce, p.Count}
	}
	return all
}

// logged has a term log the change, show the list, and resign.
func logged(ctx context.Context, p *primary.Primary, v *volume.Volume, list cluster.Membership, change cluster.MemberChange) (cluster.Membership, error) {
	q := &locktable.Request{Op: locktable.OpMembers, Client: cluster.OneShotID(rand.Text()), ID: 1, Members: &locktable.MembersRequest{Change: change}}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	end := time.Now().Add(shownWait)
	for {
		out, err := p.Do(ctx, q)
		if err == nil && out.Status == cluster.StatusOK {
			break
		}
		if err == nil {
			err = fmt.Errorf("%v: %s", out.Status, out.Message)
		}
		if out.Status != cluster.StatusStorageUnavailable || time.Now().After(end) { // else MEMBERS has to show the list as it is, first
			return list, err
		}
		<-t.C
	}
	if now, ok := p.Members(); ok {
		list = now
	}
	for end := time.Now().Add(shownWait); ; <-t.C {
		shown, err := v.ReadMembers()
		if err == nil && shown.Version >= list.Version {
			break
		}
		if time.Now().After(end) {
			return list, fmt.Errorf("the list is logged, and not shown in MEMBERS after %v: start a server that stays, which shows it", shownWait)
		}
	}
	return list, p.Resign(ctx, "holdfast member remove --volume")
}
