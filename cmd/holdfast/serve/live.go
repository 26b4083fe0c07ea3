// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
)

// Live are settings that may change while a server runs.
type Live struct {
	// Origins are patterns of origins whose pages may use this server, see origins.Check.
	Origins []string
	// PerAddress is how many connections of clients one address may have; 0 = ConnectionsPerAddress.
	PerAddress int
	TLSFiles   TLSFiles
	// HistoryBytes and HistoryAge bound the history; 0 = the defaults. They take effect when something is removed
	// next, within an hour.
	HistoryBytes int64
	HistoryAge   time.Duration
	// Trace says which calls are traced.
	Trace trace.Config
}

// TLSFiles are the names of files in PEM, "" = none: a certificate from outside and its key, and authorities of clients'
// certificates.
type TLSFiles struct{ Cert, Key, ClientCA string }

// LiveSettings are the Live that counts now. Whatever they concern asks for them when it needs them. Methods may be called by any
// goroutine.
type LiveSettings struct {
	now     atomic.Pointer[Live]
	restart atomic.Pointer[[]string]
	pages   *origins.Policy
	// traces is nil until the server runs.
	traces atomic.Pointer[trace.Recorder]
}

// NewLive returns settings with which a server starts.
func NewLive(l Live) *LiveSettings {
	s := &LiveSettings{pages: origins.New(l.Origins)}
	s.now.Store(&l)
	s.restart.Store(&[]string{})
	return s
}

// Change has other settings count from now on, and restart be the names of those that wait for a restart. If the TLS files
// are not good, it returns why and changes nothing. A new certificate is shown within lookEvery.
func (s *LiveSettings) Change(l Live, restart []string) error {
	if l.TLSFiles != (TLSFiles{}) {
		if _, err := new(outside).read(l.TLSFiles); err != nil {
			return err
		}
	}
	if r := s.traces.Load(); r != nil {
		if err := r.Configure(l.Trace); err != nil {
			return fmt.Errorf("trace-otlp: %w", err)
		}
	}
	s.now.Store(&l)
	s.restart.Store(&restart)
	s.pages.Set(l.Origins)
	return nil
}

// traceTo has r trace as the settings say, from now on.
func (s *LiveSettings) traceTo(r *trace.Recorder) error {
	s.traces.Store(r)
	return r.Configure(s.now.Load().Trace)
}

// Restart returns the names of settings that were changed and wait for a restart of the server.
func (s *LiveSettings) Restart() []string { return *s.restart.Load() }

func (s *LiveSettings) perAddress() int {
	return cmp.Or(s.now.Load().PerAddress, ConnectionsPerAddress)
}

func (s *LiveSettings) tlsFiles() TLSFiles { return s.now.Load().TLSFiles }

func (s *LiveSettings) historyBounds() (int64, time.Duration) {
	l := s.now.Load()
	return cmp.Or(l.HistoryBytes, 256<<20), cmp.Or(l.HistoryAge, 90*24*time.Hour)
}
