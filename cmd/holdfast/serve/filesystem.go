// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
)

// ErrFilesystem means that the volume's filesystem would break what Holdfast
// promises. The wrapping error says why and what to do.
var ErrFilesystem = errors.New("this filesystem would break what Holdfast promises")

// ErrNoAccess means that this host, or the user of the server, may not use the volume, while the
// filesystem itself is suitable. The wrapping error says what to check.
var ErrNoAccess = errors.New("this host or user may not use the volume")

// startWait is how often a server that waits for its volume logs it.
const startWait = 10 * time.Second

// trusted has the doctor check the filesystem, and returns an error for one that the doctor refuses.
func trusted(ctx context.Context, opt *Options) (warnings []string, err error) {
	r, err := atVolume(ctx, opt, func() (*doctor.Report, error) { return doctor.AtStart(opt.Volume, opt.Server, opt.waiting) })
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", opt.Volume, err)
	}
	if t := r.Timing; t != nil && !opt.Timing.Suffices(t.Latency) {
		r.Timing, err = atVolume(ctx, opt, func() (*doctor.Timing, error) { return doctor.MeasureAgain(opt.Volume, opt.Server) })
		if err != nil {
			opt.Log.Warn().Err(err).Msg("how long the volume takes could not be measured")
		}
	}
	return opt.accept(r)
}

// waiting logs why a server that starts waits for the volume.
func (opt *Options) waiting(why string) {
	opt.Log.Warn().Str("volume", opt.Volume).Msg(why)
}

// atVolume returns what do returns, or the cause of ctx if that ends first. Then do goes on in a
// goroutine of its own, perhaps stuck in the filesystem: the process is to exit.
func atVolume[T any](ctx context.Context, opt *Options, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	t := time.NewTicker(startWait)
	defer t.Stop()
	for {
		select {
		case x := <-done:
			return x.value, x.err
		case <-ctx.Done():
			return (result{}).value, context.Cause(ctx)
		case <-t.C:
			opt.Log.Warn().Str("volume", opt.Volume).Msg("the volume does not answer, and the server waits for it: is its file server up?")
		}
	}
}

// accept returns an error for a filesystem that the doctor refuses. With UnsafeFilesystem it only
// logs that and returns it as a warning for status. The warnings also have the doctor's doubts.
//
// It raises the timing to what this kind of filesystem needs.
func (opt *Options) accept(r *doctor.Report) (warnings []string, err error) {
	if s := r.MinStaleness; opt.Timing.Staleness < s {
		opt.Timing.Staleness, opt.Timing.FencingPeriod = s, max(opt.Timing.FencingPeriod, 2*s)
		opt.Log.Info().Str("filesystem", r.Filesystem).Dur("staleness", s).Dur("fencing_period", opt.Timing.FencingPeriod).
			Msg("takeovers wait longer: this filesystem may show old data to a host that is cut off from a part of it")
	}
	doubts := append(slices.Clone(r.Doubts), opt.tight(r.Timing)...)
	var refused []string
	tried := false // the doctor refused what the filesystem did in a trial
	for _, f := range r.Findings {
		switch f.Verdict {
		case doctor.Refuse:
			refused, tried = append(refused, describe(f)), tried || !f.Denied
		case doctor.Warn:
			opt.Log.Warn().Str("check", f.Check).Strs("fix", f.Fix).Msg(f.Detail)
		}
	}
	switch {
	case refused == nil:
		return doubts, nil
	case !opt.UnsafeFilesystem && !tried:
		return nil, fmt.Errorf("volume %s: %w: %s", opt.Volume, ErrNoAccess, strings.Join(refused, "; "))
	case !opt.UnsafeFilesystem:
		return nil, fmt.Errorf("volume %s: %w: %s. See holdfast doctor %s; --unsafe-filesystem starts all the same, for tests", opt.Volume, ErrFilesystem, strings.Join(refused, "; "), opt.Volume)
	}
	for _, text := range refused {
		opt.Log.Error().Msg("unsafe filesystem: " + text)
	}
	return append([]string{"UNSAFE FILESYSTEM: " + strings.Join(refused, "; ")}, doubts...), nil
}

// tight logs, and returns as a warning, that this server's timing is too tight for what was
// measured, if it is. It changes nothing: all servers need the same timing.
func (opt *Options) tight(t *doctor.Timing) []string {
	if t == nil || opt.Timing.Suffices(t.Latency) {
		return nil
	}
	flags := opt.Timing.Flags(opt.Timing.Covering(t.Latency))
	opt.Log.Warn().Str("check", t.Check).Str("write", t.Write).Str("timer_late", t.Late).Strs("flags", flags).
		Msg("the timing of this server is too tight for what it measured: start all servers with these flags, or expect needless elections and leases that end too early")
	return []string{fmt.Sprintf("the timing is too tight for what was measured at the start (%s): start all servers with %s", t, strings.Join(flags, " "))}
}

// describe returns a finding in one sentence, with the commands that fix it, or that show what is
// wrong.
func describe(f doctor.Finding) string {
	text, and := f.Check+": "+f.Detail, " && "
	if f.Denied {
		and = "; "
	}
	if len(f.Fix) > 0 {
		text += " (" + strings.Join(f.Fix, and) + ")"
	}
	return text
}
