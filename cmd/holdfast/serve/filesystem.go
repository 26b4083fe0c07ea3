// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
)

// ErrFilesystem says that the volume's filesystem would not keep what Holdfast
// promises. The wrapping error says why and what to do.
var ErrFilesystem = errors.New("this filesystem would break what Holdfast promises")

// startWait is how often a server that waits for its volume says so.
const startWait = 10 * time.Second

// trusted has the doctor look at the filesystem, and refuses one that the doctor refuses.
func trusted(ctx context.Context, opt *Options) (warnings []string, err error) {
	r, err := atVolume(ctx, opt, func() (*doctor.Report, error) { return doctor.AtStart(opt.Volume, opt.Server) })
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", opt.Volume, err)
	}
	return opt.accept(r)
}

// atVolume returns what do returns, or the cause of ctx when that ends first. Do then hangs in
// the filesystem for as long as it must, on its own: the process is to end.
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

// accept refuses a filesystem that the doctor refuses. With UnsafeFilesystem it only says so, in
// the log and in the warnings that it returns for status. They also hold the doctor's doubts.
//
// It raises the timing to what this kind of filesystem needs.
func (opt *Options) accept(r *doctor.Report) (warnings []string, err error) {
	if s := r.MinStaleness; opt.Timing.Staleness < s {
		opt.Timing.Staleness, opt.Timing.FencingPeriod = s, max(opt.Timing.FencingPeriod, 2*s)
		opt.Log.Info().Str("filesystem", r.Filesystem).Dur("staleness", s).Dur("fencing_period", opt.Timing.FencingPeriod).
			Msg("takeovers wait longer: this filesystem may show old data to a host that is cut off from a part of it")
	}
	var refused []string
	for _, f := range r.Findings {
		switch f.Verdict {
		case doctor.Refuse:
			refused = append(refused, describe(f))
		case doctor.Warn:
			opt.Log.Warn().Str("check", f.Check).Strs("fix", f.Fix).Msg(f.Detail)
		}
	}
	switch {
	case refused == nil:
		return r.Doubts, nil
	case !opt.UnsafeFilesystem:
		return nil, fmt.Errorf("volume %s: %w: %s. See holdfast doctor %s; --unsafe-filesystem starts all the same, for tests", opt.Volume, ErrFilesystem, strings.Join(refused, "; "), opt.Volume)
	}
	for _, text := range refused {
		opt.Log.Error().Msg("unsafe filesystem: " + text)
	}
	return append([]string{"UNSAFE FILESYSTEM: " + strings.Join(refused, "; ")}, r.Doubts...), nil
}

// describe is a finding in one sentence, with the first command that mends it.
func describe(f doctor.Finding) string {
	text := f.Check + ": " + f.Detail
	if len(f.Fix) > 0 {
		text += " (" + strings.Join(f.Fix, " && ") + ")"
	}
	return text
}
