// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// wants compares the invariants that a report finds violated.
func wants(t *testing.T, name string, r *Report, want ...Number) {
	t.Helper()
	var got []Number
	for _, x := range r.Results() {
		if x.State == Violated {
			got = append(got, x.Invariant.Number)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: violated %v, want %v: %q", name, got, want, r.Violations())
	}
}

func second(n float64) time.Time { return time.Unix(1000, int64(n*1e9)) }

func TestCheckHolds(t *testing.T) {
	hold := func(client, token int, from, until float64) Hold {
		return Hold{Client: client, Lock: "a", Token: tokenOf(token), From: second(from), Until: second(until)}
	}
	share := func(client, token int, from, until float64) Hold {
		h := hold(client, token, from, until)
		h.Shared = true
		return h
	}
	permits := func(client, token int, weight, limit uint32, from, until float64) Hold {
		h := share(client, token, from, until)
		h.Limit, h.Weight = limit, weight
		return h
	}
	other := hold(3, 9, 0, 9)
	other.Lock = "b"
	for name, c := range map[string]struct {
		holds []Hold
		want  []Number
	}{
		"one after the other":            {[]Hold{hold(1, 5, 2, 3), hold(0, 4, 0, 2), other}, nil},
		"two at once":                    {[]Hold{hold(0, 4, 0, 2), hold(1, 5, 1.5, 3)}, []Number{I2}},
		"one within another":             {[]Hold{hold(0, 4, 0, 9), hold(1, 5, 2, 3), hold(2, 6, 4, 5)}, []Number{I2}},
		"behind one within another":      {[]Hold{hold(0, 4, 0, 9), hold(1, 5, 2, 3), hold(2, 6, 8, 12)}, []Number{I2}},
		"two clients under one token":    {[]Hold{hold(0, 4, 0, 5), hold(1, 4, 1, 7), hold(2, 5, 7, 8)}, nil},
		"the token of two goes on":       {[]Hold{hold(0, 4, 0, 5), hold(1, 4, 1, 7), hold(2, 5, 6, 8)}, []Number{I2}},
		"an answer that came too late":   {[]Hold{hold(0, 4, 5, 3), hold(1, 5, 4, 6)}, nil},
		"nobody believes in it any more": {[]Hold{hold(0, 4, 0, 2), hold(0, 6, 2, 2), hold(1, 5, 2, 6)}, nil},

		"two share":                          {[]Hold{share(0, 4, 0, 3), share(1, 5, 1, 4)}, nil},
		"one alone beside a sharer":          {[]Hold{share(0, 4, 0, 3), hold(1, 5, 2, 4)}, []Number{I2}},
		"a sharer beside one alone":          {[]Hold{hold(0, 4, 0, 3), share(1, 5, 2, 4)}, []Number{I2}},
		"one alone beside the first of two":  {[]Hold{share(0, 4, 0, 9), share(1, 5, 1, 2), hold(2, 6, 3, 4)}, []Number{I2}},
		"one alone behind all who share":     {[]Hold{share(0, 4, 0, 2), share(1, 5, 1, 3), hold(2, 6, 3, 4)}, nil},
		"a sharer within one alone":          {[]Hold{hold(0, 4, 0, 9), share(1, 5, 2, 3)}, []Number{I2}},
		"a downgrade lets others in":         {[]Hold{hold(0, 4, 0, 2), share(0, 4, 2, 5), share(1, 5, 3, 6)}, nil},
		"others were in before it":           {[]Hold{hold(0, 4, 0, 2), share(0, 4, 2, 5), share(1, 5, 1, 6)}, []Number{I2}},
		"one alone while the downgraded has": {[]Hold{hold(0, 4, 0, 2), share(0, 4, 2, 5), hold(1, 5, 3, 6)}, []Number{I2}},

		"as many permits as there are":       {[]Hold{permits(0, 4, 1, 3, 0, 3), permits(1, 5, 2, 3, 1, 4)}, nil},
		"more permits than there are":        {[]Hold{permits(0, 4, 2, 3, 0, 3), permits(1, 5, 2, 3, 1, 4)}, []Number{I2}},
		"three have more than there are":     {[]Hold{permits(0, 4, 1, 3, 0, 9), permits(1, 5, 1, 3, 1, 9), permits(2, 6, 2, 3, 2, 3)}, []Number{I2}},
		"permits one after the other":        {[]Hold{permits(0, 4, 2, 3, 0, 3), permits(1, 5, 2, 3, 3, 4), permits(2, 6, 1, 3, 3, 5)}, nil},
		"permits of two limits":              {[]Hold{permits(0, 4, 1, 3, 0, 3), permits(1, 5, 1, 4, 1, 4)}, []Number{I2}},
		"permits of one limit, and the next": {[]Hold{permits(0, 4, 1, 3, 0, 3), permits(1, 5, 4, 4, 3, 4)}, nil},
		"a sharer beside a permit":           {[]Hold{permits(0, 4, 1, 3, 0, 3), share(1, 5, 1, 4)}, []Number{I2}},
		"one alone beside a permit":          {[]Hold{permits(0, 4, 1, 3, 0, 3), hold(1, 5, 1, 4)}, []Number{I2}},
		"two clients under one permit":       {[]Hold{permits(0, 4, 2, 3, 0, 5), permits(1, 4, 2, 3, 1, 7), permits(2, 5, 1, 3, 6, 8)}, nil},
	} {
		r := &Report{}
		CheckHolds(c.holds, r)
		wants(t, name, r, c.want...)
	}
}

func TestCheckFsck(t *testing.T) {
	found := func(s fsck.Severity, path string) fsck.Report {
		return fsck.Report{Files: 2, Findings: []fsck.Finding{{Severity: s, Path: path, Problem: "odd"}}}
	}
	for name, c := range map[string]struct {
		report fsck.Report
		err    error
		want   []Number
	}{
		"right":              {fsck.Report{}, nil, nil},
		"a warning":          {found(fsck.SeverityWarning, "files/x"), nil, nil},
		"a file":             {found(fsck.SeverityError, "files/x"), errors.New("1 error"), []Number{I5}},
		"an epoch":           {found(fsck.SeverityError, "epochs/0000000001"), errors.New("1 error"), []Number{I3}},
		"fsck does not work": {fsck.Report{}, errors.New("exit 2"), []Number{Run}},
	} {
		r := &Report{}
		CheckFsck(c.report, c.err, r)
		wants(t, name, r, c.want...)
	}
}

func TestCheckHarmless(t *testing.T) {
	before := cluster.Snapshot{"CLUSTER": {Size: 1}, "epochs/0000000003/fence": {}, "epochs/0000000004/wal-1": {Size: 5}, "files/x": {Size: 3}, "lock_state.json": {}}
	for name, c := range map[string]struct {
		path string
		sum  byte
		want []Number
	}{
		"nothing":               {"CLUSTER", 0, nil},
		"its own epoch":         {"epochs/0000000003/fence", 1, nil},
		"a new file of its own": {"epochs/0000000003/wal-9", 1, nil},
		"the views":             {"lock_state.json", 1, nil},
		"history":               {"history/3-1.jsonl", 1, nil},
		"its own index":         {"index/0000000003-000001.idx", 1, nil},
		"another epoch's index": {"index/0000000004-000001.idx", 1, []Number{I10}},
		"another epoch":         {"epochs/0000000004/wal-1", 1, []Number{I10}},
		"a protected file":      {"files/x", 1, []Number{I10}},
		"CLUSTER":               {"CLUSTER", 1, []Number{I10}},
		"a new epoch":           {"epochs/0000000005/fence", 1, []Number{I10}},
	} {
		after := cluster.Snapshot{}
		for k, v := range before {
			after[k] = v
		}
		s := after[c.path]
		s.Sum[0] = c.sum
		after[c.path] = s
		r := &Report{}
		CheckHarmless(before, after, 3, r)
		wants(t, name, r, c.want...)
	}
}

func TestCheckLiveness(t *testing.T) {
	l := &Ledger{}
	l.Grant(Grant{Lock: "a", Token: 5, Epoch: 1, Answered: second(0)})
	l.Append(Append{Acked: true, Receipt: wire.Receipt{Epoch: 2}, Answered: second(3)})
	strike := func(e hf.Epoch, at float64) []Strike { return []Strike{{Kind: "kill", Epoch: e, At: second(at)}} }
	for name, c := range map[string]struct {
		strikes []Strike
		want    []Number
	}{
		"in time":         {strike(1, 2), nil},
		"too late":        {strike(1, 0.5), []Number{I15}},
		"never":           {strike(2, 4), []Number{I15}},
		"nothing happens": {nil, nil},
	} {
		r := &Report{}
		CheckLiveness(c.strikes, l, 2*time.Second, r)
		wants(t, name, r, c.want...)
	}
}

func TestViewPoller(t *testing.T) {
	const good = `{"format":1,"epoch":4,"entities":[]}`
	for name, c := range map[string]struct {
		contents []string // "" = it is not there
		term     hf.Epoch
		each     time.Duration
		want     []Number
	}{
		"a young volume":      {[]string{"", "", good}, 4, time.Second, nil},
		"cut off":             {[]string{good, good[:10]}, 4, time.Second, []Number{I14}},
		"empty":               {[]string{good, " "}, 4, time.Second, []Number{I14}},
		"gone":                {[]string{good, ""}, 4, time.Second, []Number{I14}},
		"of an older term":    {[]string{good, good, good}, 5, healWithin, []Number{I14}},
		"old for a moment":    {[]string{good, good, good}, 5, time.Second, nil},
		"of the right term":   {[]string{good, good, good}, 4, healWithin, nil},
		"of one to come soon": {[]string{good, good, good}, 3, healWithin, nil},
	} {
		dir, r := t.TempDir(), &Report{}
		p := &ViewPoller{path: filepath.Join(dir, viewName), report: r, present: func() (hf.Epoch, bool) { return c.term, true }}
		for i, content := range c.contents {
			if content != "" {
				put(t, p.path, []byte(content))
			} else if err := os.RemoveAll(p.path); err != nil {
				t.Fatal(err)
			}
			p.look(second(0).Add(time.Duration(i) * c.each))
		}
		wants(t, name, r, c.want...)
	}
	r := &Report{}
	p := StartViewPoller(t.Context(), t.TempDir(), nil, r)
	p.Stop()
	if len(r.Figures()) != 1 {
		t.Errorf("figures: %v", r.Figures())
	}
}

func TestSampler(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{
		"0000000001/fence": 9, "0000000001/claim.json": 9, "0000000001/wal-00000000000000000001.log": 1000,
		"0000000002/wal-00000000000000000900.log": 500, "0000000002/checkpoint-9/lock_state.json": 70,
	} {
		path := filepath.Join(dir, "epochs", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, make([]byte, size))
	}
	if err := os.Link(filepath.Join(dir, "epochs/0000000001/wal-00000000000000000001.log"), filepath.Join(dir, "epochs/0000000002/wal-00000000000000000001.log")); err != nil {
		t.Fatal(err)
	}
	self := func() []int { return []int{0, os.Getpid(), 1 << 30} }
	r := &Report{}
	most := StartSampler(t.Context(), dir, self, DefaultLimits(), r).Stop()
	if most.LogBytes != 1500 || most.Files != 4 || most.Descriptors < 3 || most.Threads < 1 || most.Resident < 1<<20 {
		t.Errorf("usage %+v", most)
	}
	wants(t, "within the limits", r)
	r = &Report{}
	StartSampler(t.Context(), dir, self, Usage{Descriptors: 1, Threads: 1, Resident: 1, LogBytes: 1, Files: 1}, r).Stop()
	wants(t, "beyond the limits", r, I16)
	if n := len(r.Violations()); n != 5 {
		t.Errorf("%d violations, want one of each kind: %q", n, r.Violations())
	}
	r = &Report{}
	StartSampler(t.Context(), filepath.Join(dir, "nothing"), self, DefaultLimits(), r).Stop()
	if text := strings.Join(r.Violations(), " "); text != "" {
		t.Errorf("a volume that is not there yet: %s", text)
	}
}
