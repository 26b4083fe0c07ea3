// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// maxPeriod is the longest period of --once-per: what is done is remembered for longer.
const maxPeriod = 31 * 24 * time.Hour

// onceFlags are the flags of run about what is done once.
type onceFlags struct {
	per  time.Duration // 0 = not given
	code int
}

func (o *onceFlags) flags(fl *pflag.FlagSet) {
	fl.Func("once-per", "run the command once in each such `period`, such as 24h, counted in UTC", func(s string) (err error) {
		if o.per, err = parseDuration(s); err != nil || o.per < time.Second || o.per > maxPeriod || o.per%time.Second != 0 {
			err = fmt.Errorf("use whole seconds or a duration like 24h, at most %v", maxPeriod)
		}
		return err
	})
	fl.IntVar(&o.code, "done-exit-code", exitDone, "the exit code when the slot is done")
}

// slot makes the slot of --once-per: the beginning of the period in which now is.
func (o *onceFlags) slot(l *lease, now time.Time) error {
	if o.code < 0 || o.code > 255 {
		return usagef("--done-exit-code %d: use 0 to 255", o.code)
	}
	if o.per == 0 {
		return nil
	}
	if l.once != "" {
		return usagef("--once and --once-per: leave one of them out")
	}
	l.once = slotText(now.UTC().Truncate(o.per))
	return nil
}

// done ends a run whose slot is done, which is no failure; any other error is returned as it is.
func (o *onceFlags) done(r *running, err error) error {
	if !errors.Is(err, wire.ErrAlreadyDone) {
		return err
	}
	r.app.code = o.code
	if r.app.format == formatJSON {
		return writeJSON(r.app.Stderr, runResult{Status: cluster.StatusAlreadyDone.String(), Message: err.Error(), Lock: string(r.lock), ExitCode: o.code})
	}
	if !r.lease.quiet {
		r.say(fmt.Sprintf("slot %s of lock %s is done already: the command is not run", r.lease.once, r.lock))
	}
	return nil
}
