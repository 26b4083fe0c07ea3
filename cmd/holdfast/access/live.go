// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// lookEvery is how often the next version is looked for by its name.
	lookEvery = 500 * time.Millisecond
	// listEvery is how often all versions are listed: some caches remember that a name was missing, and numbers may be left out.
	listEvery = 10 * time.Second
	// askedEvery is the shortest time between two looks, however many ask for one: strangers may ask, too.
	askedEvery = 100 * time.Millisecond
	// askedWait is how long Refresh waits. A volume that hangs does not hold up an answer for longer.
	askedWait = time.Second
)

// Live holds the access rules that are in force in a server. They never go back to a lower version while it lives.
type Live struct {
	fs    vfs.FS
	log   zerolog.Logger
	rules atomic.Pointer[access.Rules]
	asked wake.Signal // somebody waits for a look
	mu    struct {
		sync.Mutex
		next chan struct{} // closed after the first look that begins from now on; nil while nobody waits for it
	}

	// Of the goroutine that runs it.
	pending []uint64        // versions above that of the rules, in rising order
	bad     map[uint64]bool // those of them that do not parse
	said    string          // the last error that was logged, until there is none
	missing int             // so many of the last lists were without the rules in force
}

// OpenLive reads the newest version that parses. A volume without a version has nil rules. It returns an error if there are
// versions, and none parses, or a newer one cannot be read: a server without its rules would let everybody in.
func OpenLive(fsys vfs.FS, log zerolog.Logger) (*Live, error) {
	l := &Live{fs: fsys, log: log, bad: map[uint64]bool{}, asked: wake.NewSignal()}
	all, err := volume.RulesVersions(fsys)
	if err != nil {
		return nil, err
	}
	l.pending = all
	if err := l.load(); err != nil {
		return nil, err
	}
	if len(all) > 0 && l.Rules() == nil {
		return nil, errors.New("no version of the access rules can be used: see holdfast access history, and publish a good one with holdfast access set")
	}
	return l, nil
}

// Rules returns the rules in force, nil if the volume has none. It is safe for concurrent use.
func (l *Live) Rules() *access.Rules { return l.rules.Load() }

// Refresh waits for a look for newer rules that begins after the call, but not longer than askedWait. All who wait share
// one look, and there are at most ten in a second. It needs Run.
func (l *Live) Refresh() {
	l.mu.Lock()
	if l.mu.next == nil {
		l.mu.next = make(chan struct{})
	}
	looked := l.mu.next
	l.mu.Unlock()
	l.asked.Notify()
	t := time.NewTimer(askedWait)
	defer t.Stop()
	select {
	case <-looked:
	case <-t.C:
	}
}

// awaited returns the channel to be closed after the look that begins now, nil if nobody waits for it.
func (l *Live) awaited() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.next
	l.mu.next = nil
	return c
}

// Run keeps the rules up to date, and calls changed after each change, until the context ends. A filesystem that hangs
// makes it return late, and nobody should wait for it.
func (l *Live) Run(ctx context.Context, changed func(*access.Rules)) {
	t := wake.Every(lookEvery)
	defer t.Stop()
	looked, listed := time.Time{}, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Again()
		case <-l.asked:
			if !retry.Rest(ctx, askedEvery-time.Since(looked)) {
				return
			}
		}
		looked = time.Now()
		list := looked.Sub(listed) >= listEvery
		if list {
			listed = looked
		}
		waiting, before := l.awaited(), l.Rules()
		l.say(l.look(list))
		if now := l.Rules(); now != before {
			l.log.Info().Uint64("version", now.Version()).Msg("the access rules have changed")
			changed(now)
		}
		if waiting != nil {
			close(waiting)
		}
	}
}

// say logs an error unless it was logged already.
func (l *Live) say(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != l.said {
		l.log.Error().Uint64("in_force", l.Rules().Version()).Msg("the access rules stay as they are: " + why)
	}
	l.said = why
}

// look looks for newer versions, and loads the newest.
func (l *Live) look(list bool) error {
	var errs []error
	if list {
		errs = append(errs, l.list())
	}
	if l.missing > 1 { // one list may be of a cache
		errs = append(errs, fmt.Errorf("access version %d has vanished from the volume: an older state was restored, or somebody removed it; publish it again", l.Rules().Version()))
	}
	for {
		next := l.top() + 1
		has, err := volume.HasRules(l.fs, next)
		if err != nil {
			errs = append(errs, fmt.Errorf("look for access version %d: %w", next, err))
		}
		if !has {
			break
		}
		l.pending = append(l.pending, next)
	}
	return errors.Join(append(errs, l.load())...)
}

// top returns the highest version that was seen.
func (l *Live) top() uint64 {
	if n := len(l.pending); n > 0 {
		return l.pending[n-1]
	}
	return l.Rules().Version()
}

// list looks for versions that were missed by name, and for the one in force.
func (l *Live) list() error {
	all, err := volume.RulesVersions(l.fs)
	if err != nil {
		return err
	}
	own := l.Rules().Version()
	l.missing++
	if own == 0 || slices.Contains(all, own) {
		l.missing = 0
	}
	for _, n := range all {
		if n > own && !slices.Contains(l.pending, n) {
			l.pending = append(l.pending, n)
		}
	}
	slices.Sort(l.pending)
	return nil
}

// load has the newest pending version that can be used be in force. Those that do not parse are logged and skipped for
// ever, since a version does not change; it returns the error of the newest other one that cannot be used now.
func (l *Live) load() (err error) {
	for _, n := range slices.Backward(l.pending) {
		if l.bad[n] {
			continue
		}
		text, readErr := volume.ReadRules(l.fs, n)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		r, parseErr := Parse(text, n)
		if parseErr != nil {
			l.bad[n] = true
			l.log.Error().Uint64("version", n).Uint64("in_force", l.Rules().Version()).Msg("this version of the access rules is skipped: " + parseErr.Error())
			continue
		}
		l.rules.Store(r)
		l.pending = slices.DeleteFunc(l.pending, func(x uint64) bool { return x <= n })
		return err
	}
	return err
}
