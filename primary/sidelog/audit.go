// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/auditdir"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

const (
	// auditInterval is how late an event is written at most, as long as the volume takes writes.
	auditInterval = time.Second
	// auditFile is the size at which the next file begins, auditTotal how much a server keeps of its own, in bytes.
	auditFile  = 16 << 20
	auditTotal = 512 << 20
	// auditAge is how long files are kept, of whichever server.
	auditAge = 90 * 24 * time.Hour
	// auditRoom and auditBytes bound the events that wait. Further ones are counted.
	auditRoom  = 8192
	auditBytes = 8 << 20
	// auditWrite is how many events one write has at most.
	auditWrite = 1024
	// refusalsTold is how many refusals of one caller get a line each in a second, strangersTold how many of all who have shown
	// no credential that is good. The rest is counted, by caller for the first refusalsApart.
	refusalsTold  = 10
	strangersTold = 50
	refusalsApart = 1024
	// auditStuck is after which time a write that does not come back is told by status, auditLostTold for how long it tells
	// of events that found no room.
	auditStuck    = 5 * time.Second
	auditLostTold = time.Hour
)

// AuditConfig is what an Audit needs of its server.
type AuditConfig struct {
	Server cluster.ServerID
	FS     vfs.FS
	Log    zerolog.Logger
	// Full reports whether the log cannot grow: then what is left of the disk is left to it.
	Full func() bool
	// TimeOfDay returns this machine's time of day at a moment; nil = as it is.
	TimeOfDay func(time.Time) time.Time
	// FileBytes and TotalBytes are the sizes of a file and of all; 0 = the default.
	FileBytes, TotalBytes int64
}

// Audit writes a server's part of the audit, see package audit, in whatever role it is. Run is called once; the other methods may be
// called by any goroutine, and never wait for the volume.
type Audit struct {
	writer[audit.Event]
	cfg AuditConfig

	// Guarded by mu.
	lost      uint64 // events that found no room, and of which no line tells yet
	lostSince uint64 // all of them
	lostAt    time.Time
	began     time.Time // when the write began that is under way; zero: none is
	refused   map[refusal]int
	second    time.Time // when counting them began

	// Owned by Run.
	files *auditdir.Writer
	buf   []byte
	tidy  struct {
		at    time.Time
		file  auditdir.Name
		clock evenClock
	}
	done chan struct{} // closed when Run has ended
}

// refusal is of what refusals are counted together.
type refusal struct {
	kind audit.Kind
	who  string // an identity; "" for all strangers, or for all beyond refusalsApart
}

// NewAudit returns the audit of a server. It touches nothing yet.
func NewAudit(cfg AuditConfig) *Audit {
	cfg.FileBytes, cfg.TotalBytes = cmp.Or(cfg.FileBytes, auditFile), cmp.Or(cfg.TotalBytes, auditTotal)
	if cfg.TimeOfDay == nil {
		cfg.TimeOfDay = func(now time.Time) time.Time { return now.Round(0) }
	}
	return &Audit{
		cfg: cfg, refused: map[refusal]int{}, files: auditdir.NewWriter(cfg.FS, cfg.Server), done: make(chan struct{}),
		writer: writer[audit.Event]{
			log: cfg.Log, interval: auditInterval, room: auditRoom, roomBytes: auditBytes, size: (*audit.Event).Size, keeps: true,
			failing: "the audit is not written: trying again", works: "the audit is written again", wake: wake.NewSignal(),
		},
	}
}

// Record adds an event, which gets its time and server here. Of many refusals it only counts some.
func (a *Audit) Record(e audit.Event) {
	now := time.Now()
	e.Time, e.Server = a.cfg.TimeOfDay(now), a.cfg.Server
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Kind.Denied() {
		a.tellCounted(now)
		if !a.countRefusal(&e) {
			return
		}
	}
	a.put(e, now)
}

// put adds an event to those that wait, or counts it. Call it with mu held.
func (a *Audit) put(e audit.Event, now time.Time) {
	if !a.add(e) {
		a.lost++
		a.lostSince++
		a.lostAt = now
	}
}

// countRefusal counts a refusal, and reports whether it gets a line. Call it with mu held.
func (a *Audit) countRefusal(e *audit.Event) bool {
	k, told := refusal{kind: e.Kind, who: e.Identity}, refusalsTold
	if e.Identity == "" {
		k.who = source(e.From)
		all := refusal{kind: "strangers"}
		if a.refused[all]++; a.refused[all] > strangersTold {
			k.who, told = "", 0
		}
	}
	if _, known := a.refused[k]; !known && len(a.refused) >= refusalsApart {
		k.who, told = "", 0
	}
	a.refused[k]++
	return a.refused[k] <= told
}

// source returns under what a stranger's refusals are counted: his address, of IPv6 the /64, which is as much as one host has.
func source(from string) string {
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		host = from
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && ip.Is6() && !ip.Is4In6() {
		p, _ := ip.WithZone("").Prefix(64) // fails for longer ones only
		return p.String()
	}
	return host
}

// tellCounted adds a line for each caller of whom refusals were only counted, once the second is over. Call it with mu held.
func (a *Audit) tellCounted(now time.Time) {
	if now.Sub(a.second) < time.Second {
		return
	}
	for k, n := range a.refused {
		told := refusalsTold
		if k.who == "" {
			told = 0
		}
		if n <= told || !k.kind.Denied() {
			continue
		}
		e := audit.Event{Time: a.cfg.TimeOfDay(now), Server: a.cfg.Server, Kind: k.kind, Count: uint64(n - told), Message: "so many more, within a second"}
		switch _, err := netip.ParsePrefix(k.who); {
		case k.who == "":
			e.Message += ", of several callers"
		case err == nil || net.ParseIP(k.who) != nil:
			e.From = k.who
		default:
			e.Identity = k.who
		}
		a.put(e, now)
	}
	clear(a.refused)
	a.second = now
}

// Dropped returns how many events have found no room since the server began.
func (a *Audit) Dropped() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lostSince
}

// Trouble returns why events are not written, or are lost; "" if all is well.
func (a *Audit) Trouble() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, lost := time.Now(), ""
	if a.lostSince > 0 && now.Sub(a.lostAt) < auditLostTold {
		lost = fmt.Sprintf("%d EVENTS ARE LOST TO THE AUDIT: they could not be written in time", a.lostSince)
	}
	why := ""
	switch {
	case a.trouble != nil:
		why = fmt.Sprintf("the audit was not written for %v, %d tries failed: %v", now.Sub(a.since).Round(time.Second), a.tries, a.trouble)
	case !a.began.IsZero() && now.Sub(a.began) >= auditStuck:
		why = fmt.Sprintf("the audit was not written for %v: a call into the volume does not come back", now.Sub(a.began).Round(time.Second))
	}
	if lost != "" && why != "" {
		return lost + "; " + why
	}
	return lost + why
}

// Run writes until ctx ends, and then what still waits, if the volume takes it.
func (a *Audit) Run(ctx context.Context) {
	defer close(a.done)
	a.run(ctx, func(now time.Time) error { return a.write(now, time.Second) })
	if err := a.write(time.Now(), 0); err == nil {
		a.files.Close() //nolint:errcheck // it was synced
	}
}

// Wait waits until Run has ended, but not longer than this.
func (a *Audit) Wait(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-a.done:
	case <-t.C:
	}
}

// write writes all that waits, and removes what is too old. Refusals are counted for that long.
func (a *Audit) write(now time.Time, counting time.Duration) error {
	a.mu.Lock()
	a.began = now
	a.tellCounted(now.Add(time.Second - counting))
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.began = time.Time{}
	}()
	idle := true
	for more := true; more; {
		var wrote bool
		var err error
		if wrote, more, err = a.writeSome(now); err != nil {
			return err
		}
		idle = idle && !wrote
	}
	if a.tidy.at.IsZero() || a.files.Name() != a.tidy.file || now.Sub(a.tidy.at) >= time.Hour {
		a.tidy.at, a.tidy.file = now, a.files.Name()
		if err := a.retain(now); err != nil {
			a.log.Warn().Err(err).Msg("old files of the audit stay for now")
		}
	}
	if idle {
		return errIdle
	}
	return nil
}

// writeSome is one write, if there is something to write; more reports whether another has to follow. What it wrote is durable when
// it returns.
func (a *Audit) writeSome(now time.Time) (wrote, more bool, err error) {
	a.mu.Lock()
	n := min(len(a.waiting), auditWrite)
	events, lost := a.waiting[:n:n], a.lost
	more = n < len(a.waiting)
	a.mu.Unlock()
	if n == 0 && lost == 0 {
		return false, false, nil
	}
	if a.cfg.Full() {
		return false, false, errNoSpace
	}
	day := a.cfg.TimeOfDay(now)
	if err := a.files.Begin(auditdir.Day(day), a.cfg.FileBytes); err != nil {
		return false, false, err
	}
	a.buf = a.buf[:0]
	for i := range events {
		a.buf = events[i].AppendLine(a.buf)
	}
	tellsLost := lost > 0 && !more // those that found no room came after those that wait
	if tellsLost {
		a.buf = audit.Event{Time: day, Server: a.cfg.Server, Kind: audit.KindLost, Count: lost, Message: "so many events could not be written in time"}.AppendLine(a.buf)
	}
	err = a.files.Append(a.buf)
	if err == nil {
		err = a.files.Sync()
	}
	if err != nil {
		if !vfs.IsFull(err) {
			a.files.Close() //nolint:errcheck // the next write begins another file, with the same events
		}
		return false, false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(n)
	if tellsLost {
		a.lost -= lost
	}
	return true, more, nil
}

// retain removes files that are too old, of whichever server, and the oldest own ones when there is too much of them. Done late, it
// removes what another server would have removed: a name is not used again.
func (a *Audit) retain(now time.Time) error {
	all, err := auditdir.List(a.cfg.FS)
	if err != nil {
		return err
	}
	day := a.cfg.TimeOfDay(now)
	oldest := ""
	if a.tidy.clock.believed(now, day) {
		oldest = auditdir.Day(day.Add(-auditAge))
	}
	total, gone := int64(0), 0
	for i := len(all) - 1; i >= 0; i-- {
		n := all[i]
		remove := n.Day < oldest
		if n.Server == a.cfg.Server {
			info, err := a.cfg.FS.Lstat(n.Path())
			if err != nil {
				continue // it was removed meanwhile
			}
			total += info.Size
			remove = remove || total > a.cfg.TotalBytes
		}
		if !remove || n == a.files.Name() {
			continue
		}
		if err := vfs.IgnoreMissing(a.cfg.FS.Remove(n.Path())); err != nil {
			return err
		}
		gone++
	}
	if gone > 0 {
		a.log.Info().Int("files", gone).Msg("old files of the audit removed")
	}
	return nil
}
