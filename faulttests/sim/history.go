// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/ends"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// historyOptions make small files, soon, that leave some releases out.
func historyOptions() primary.HistoryOptions {
	return primary.HistoryOptions{Rate: 1, FileBytes: 3 << 10, Interval: 30 * time.Millisecond}
}

// logbook has every record that any process wrote. Of those with one LSN the log has the
// one of the highest epoch: its writer had not adopted the others.
type logbook struct {
	mu      sync.Mutex
	records map[cluster.LSN]locktable.Record
}

func (l *logbook) note(entries []wal.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[cluster.LSN]locktable.Record{}
	}
	for _, x := range entries {
		r, err := locktable.DecodeHeader(x.Header)
		if err == nil && r.Epoch >= l.records[r.LSN].Epoch {
			l.records[r.LSN] = r
		}
	}
}

// inherit takes over what another has.
func (l *logbook) inherit(from *logbook) {
	from.mu.Lock()
	defer from.mu.Unlock()
	l.records = maps.Clone(from.records)
}

// log is what the log up to an LSN says of grants that ended.
func (l *logbook) log(upTo cluster.LSN) (*ends.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := ends.New()
	for lsn := cluster.LSN(1); lsn <= upTo; lsn++ {
		r, ok := l.records[lsn]
		if !ok {
			return nil, fmt.Errorf("nobody was seen to write LSN %d", lsn)
		}
		x.See(&r)
	}
	return x, nil
}

// verifyHistory checks that the last term has recorded, or counted, every grant that ended.
func (s *Scenario) verifyHistory(p *primary.Primary, disk *volumetest.Disk) (bad []string) {
	r := p.Recent()
	for n := 0; len(r.Ends) > 0 || r.From != p.LSN(); r = p.Recent() {
		if n++; n > 1000 {
			return []string{"history: the last term does not write it: " + p.HistoryTrouble()}
		}
		time.Sleep(30 * time.Millisecond)
	}
	upTo := r.From
	log, err := s.book.log(upTo)
	if err != nil {
		return []string{"history: " + err.Error()}
	}
	v := log.Compare(disk.Files("history/"), upTo)
	s.Log.Info().Int("told", v.Told).Int("skipped", v.Skipped).Int("unknown", v.Unknown).Msg("history")
	return v.Bad
}

// tellsHistory judges a write to the history: everything in it is durable and checked.
// Called with mu held.
func (a *audit) tellsHistory(e volumetest.Event) {
	var upTo cluster.LSN
	for line := range strings.Lines(string(e.Data)) {
		l, err := history.ParseLine([]byte(strings.TrimSpace(line)))
		if err != nil {
			a.bad = append(a.bad, fmt.Sprintf("history: %v: %q: %v", e.Call, line, err))
		}
		upTo = slices.Max([]cluster.LSN{upTo, l.End.LSN, l.Skip.To, l.UpTo})
	}
	if !strings.HasPrefix(path.Base(e.Name), path.Base(a.own)+"-") {
		a.bad = append(a.bad, fmt.Sprintf("house rule: %s did %v", a.own, e.Call))
	}
	a.need(max(a.started, a.since(upTo)), "%v with LSN %d", e.Call, upTo)
}
