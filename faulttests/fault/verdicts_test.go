// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestEveryVerdict kills primaries under load and asks every checker that a run
// of real processes can have.
func TestEveryVerdict(t *testing.T) {
	needFaults(t)
	b := newBattle(t, sourceText(t, 2<<20), 4, *faultSeed)
	archive := t.TempDir()
	collector := check.StartCollector(t.Context(), b.c.Dir(), archive)
	b.fight(t, 6, 5*time.Minute)
	b.end(t)
	if err := collector.Stop(); err != nil {
		t.Error(err)
	}
	var r check.Report
	read := func(name hf.FileName) ([]byte, error) { return os.ReadFile(b.c.File(string(name))) }
	b.ledger.Check(read, &r)
	for _, dir := range []string{archive, b.c.Dir()} {
		if _, err := check.CheckLog(check.LogOptions{Dir: dir, Ledger: b.ledger, File: read}, &r); err != nil {
			t.Error(err)
		}
	}
	t.Logf("\n%s", r.Text())
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
}
