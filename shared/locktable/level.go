// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// level is the feature level that the last KindLevel raised the cluster to, and the version of the
// binary that did; zero before the first one.
type level struct {
	n       uint32
	version string
}

// LevelState is the feature level of the cluster, and the version of the binary that raised it.
type LevelState struct {
	Level   uint32 `json:"level"`
	Version string `json:"version,omitempty"`
}

// Level returns the feature level that the cluster was raised to, 0 if it never was, and the version of the
// binary that raised it.
func (t *Table) Level() (n uint32, version string) { return t.level.n, t.level.version }

// DecideLevel raises the feature level of the cluster; nothing if it is not lower now.
func (t *Table) DecideLevel(n uint32, version string, epoch cluster.Epoch, recs []Record) []Record {
	if n <= t.level.n {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindLevel, Level: n, Version: clip(version)})
	return d.recs
}

// legalLevel: a level only rises. What was written since the last one needs it.
func (t *Table) legalLevel(r *Record) error {
	if r.Level <= t.level.n {
		return fmt.Errorf("the cluster has feature level %d, which does not change to %d", t.level.n, r.Level)
	}
	return nil
}

func (t *Table) raise(l level) {
	t.hash -= t.sumLevel()
	t.level = l
	t.hash += t.sumLevel()
}

// sumLevel returns the level's part of the hash, 0 without one: older states keep their hash.
func (t *Table) sumLevel() uint64 {
	if t.level == (level{}) {
		return 0
	}
	return t.sum(t.level.appendTo)
}

func (l level) appendTo(b []byte) []byte {
	return appendText(appendNumbers(append(b, tagLevel), uint64(l.n)), l.version)
}

func (l level) export() *LevelState { return &LevelState{Level: l.n, Version: l.version} }

// importLevel takes the level of a state. It returns an error that wraps ErrUnknownLevel for one of a newer binary.
func (t *Table) importLevel(s *LevelState) error {
	if t.level != (level{}) || s.Level == 0 || !validText(s.Version) {
		return fmt.Errorf("feature level %d comes twice, or is none", s.Level)
	}
	if err := knownLevel(s.Level, s.Version); err != nil {
		return err
	}
	t.raise(level{s.Level, s.Version})
	return nil
}

// level checks the feature level.
func (ck *checker) level() error {
	l := ck.t.level
	if l == (level{}) {
		return nil
	}
	ck.sum(l.appendTo)
	if l.n == 0 || l.n > MaxLevel {
		return fmt.Errorf("invariant 12: feature level %d", l.n)
	}
	return nil
}
