// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// hungFlags are the flags about commands that live but make no progress.
type hungFlags struct {
	maxHold  time.Duration
	progress string
}

func (f *hungFlags) flags(fl *pflag.FlagSet) {
	fl.DurationVar(&f.maxHold, "max-hold", 0, "how long the lock may be held, however often it is renewed (default: no end)")
	fl.StringVar(&f.progress, "progress-file", "", "renew only when this file has changed: the command writes or touches it as it makes progress, at least once in --ttl")
}

func (f *hungFlags) check(ttl time.Duration) error {
	if f.maxHold != 0 && f.maxHold < ttl {
		return usagef("--max-hold %v: use at least --ttl %v", f.maxHold, ttl)
	}
	return nil
}

// mark is the state of a file when it was last polled. The zero value means that there was none.
type mark struct {
	modified time.Time
	size     int64
	info     os.FileInfo
}

func markOf(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	return mark{info.ModTime(), info.Size(), info}
}

func (m mark) differs(from mark) bool {
	return !m.modified.Equal(from.modified) || m.size != from.size || m.info != nil && from.info != nil && !os.SameFile(m.info, from.info)
}

// renewAsItGetsOn renews the lock whenever the file has changed, until ctx ends. It repeats
// failed renewals while the lease lasts; jeopardy is reported elsewhere.
func renewAsItGetsOn(ctx context.Context, lock *clientlib.Lock, path string) {
	t := time.NewTicker(max(lock.TTL()/10, 10*time.Millisecond))
	defer t.Stop()
	seen := markOf(path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-lock.Context().Done():
			return
		case <-t.C:
		}
		if now := markOf(path); now.differs(seen) && lock.Renew(ctx) == nil {
			seen = now
		}
	}
}
