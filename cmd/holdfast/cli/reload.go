// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// reloader changes the settings of a running server. A reload that finds a mistake changes nothing.
type reloader struct {
	from    settings.Sources
	started *settings.Server // those with which the server started, of which it has those that need a restart
	live    *serve.LiveSettings
	level   *logLevel
	log     zerolog.Logger

	mu  sync.Mutex
	now *settings.Server // those of the last reload that was done
}

// reload reads the settings anew. What may change while the server runs counts from now on, for the rest it logs that a restart is
// needed.
func (r *reloader) reload() serve.Reloaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := settings.Load(r.from)
	if err == nil {
		err = next.Complete()
	}
	if err != nil {
		return r.refused(err)
	}
	changed, _ := r.now.Difference(next)
	_, restart := r.started.Difference(next)
	if err := r.live.Change(liveOf(next), restart); err != nil {
		return r.refused(err)
	}
	r.level.set(next.LogLevel)
	r.now = next
	done := serve.Reloaded{Changed: append([]string{}, changed...), Restart: append([]string{}, restart...)}
	for _, name := range restart {
		r.log.Warn().Str("setting", name).Str("is", r.started.Find(name).Value()).Str("configured", next.Find(name).Value()).Msg("needs a restart: " + name)
	}
	r.log.Info().Strs("changed", done.Changed).Msg("the configuration was read anew")
	return done
}

func (r *reloader) refused(err error) serve.Reloaded {
	r.log.Error().Err(err).Msg("the configuration was read anew and has a mistake: nothing was changed")
	return serve.Reloaded{Changed: []string{}, Restart: slices.Clone(r.live.Restart()), Error: err.Error()}
}

// onSignal reloads at each SIGHUP until stop is called. A server without a file has nothing to read anew: like other processes,
// it ends when its terminal goes. One with a file lives on then, whether nohup started it or not.
func (r *reloader) onSignal() (stop func()) {
	if r.from.File == "" {
		return func() {}
	}
	hup := make(chan os.Signal, 1) // one that comes during a reload causes another; more change nothing
	signal.Notify(hup, syscall.SIGHUP)
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-hup:
				r.reload()
			case <-end:
				return
			}
		}
	}()
	return func() { signal.Stop(hup); close(end) }
}

// liveOf returns the settings that a running server takes.
func liveOf(s *settings.Server) serve.Live {
	return serve.Live{
		Origins: s.AllOrigins(), PerAddress: s.PerAddress, TLSFiles: serve.TLSFiles{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.ClientCA},
		HistoryBytes: s.History.TotalBytes, HistoryAge: s.History.Age,
		Trace: s.Trace,
	}
}

// logLevel is the lowest level of the lines of a log, which may be changed.
type logLevel struct{ least atomic.Int32 }

// set takes a level that is good.
func (l *logLevel) set(name string) {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		panic(errors.New("log level " + name)) // settings has checked it
	}
	l.least.Store(int32(level))
}

// Sample implements zerolog.Sampler: it reports whether a line of this level is written.
func (l *logLevel) Sample(level zerolog.Level) bool { return int32(level) >= l.least.Load() }
