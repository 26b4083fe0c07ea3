// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
)

// Report has the results of all rounds of a campaign.
type Report struct {
	Began  time.Time
	Rounds []Round
	// Skipped is why faults could not be injected, by site and fault.
	Skipped map[string]map[string]string
	// Sections are results of other tools, in this order.
	Sections []Section `json:"-"`
}

// Section is the output of another tool.
type Section struct{ Title, Text string }

// Save writes the results of one process into a directory as name.json, and then
// report.md with all results in that directory: those of processes (*.json), and the output of
// other tools (*.txt).
func (r *Report) Save(dir, name string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".json"), b, 0o644)); err != nil {
		return err
	}
	all, err := load(dir)
	if err != nil {
		return err
	}
	var page strings.Builder
	if err := all.Markdown(&page); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(page.String()), 0o644)
}

// load adds up all results in a directory.
func load(dir string) (*Report, error) {
	all := &Report{Began: time.Now(), Skipped: map[string]map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		if x.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, x.Name()))
		if err != nil {
			return nil, err
		}
		name, kind, _ := strings.Cut(x.Name(), ".")
		switch kind {
		case "txt":
			all.Sections = append(all.Sections, Section{Title: name, Text: string(b)})
		case "json":
			var one Report
			if err := json.Unmarshal(b, &one); err != nil {
				return nil, fmt.Errorf("%s: %w", x.Name(), err)
			}
			if one.Began.Before(all.Began) {
				all.Began = one.Began
			}
			all.Rounds = append(all.Rounds, one.Rounds...)
			maps.Copy(all.Skipped, one.Skipped)
		}
	}
	return all, nil
}

// total is what all rounds of one site add up to.
type total struct {
	rounds, counted                          int
	took, gap                                time.Duration
	appends, grants, operations, partitions  int
	indeterminate, unknown, violations       int
	bytes                                    int64
	terms                                    uint64
	lines, lost, duplicate, foreign, misplac int
	strikes                                  map[string]int
	failovers                                map[string][]time.Duration
	healed                                   []time.Duration
	rates                                    []float64
}

func (x *total) add(r Round) {
	x.rounds++
	if r.Counted {
		x.counted++
	}
	x.took += r.Took
	x.gap = max(x.gap, r.Gap)
	x.appends += r.Appends
	x.grants += r.Grants
	x.operations += r.Operations
	x.partitions += r.Partitions
	x.indeterminate += r.Indeterminate
	x.unknown += r.Unknown
	x.violations += len(r.Violations)
	x.bytes += r.Bytes
	x.terms += uint64(r.Epoch)
	x.lines += r.Lines.LinesIn
	x.lost += r.Lines.Lost
	x.duplicate += r.Lines.Duplicate
	x.foreign += r.Lines.Foreign
	x.misplac += r.Lines.Misordered
	x.rates = append(x.rates, r.Rate)
	for _, s := range r.Strikes {
		x.strikes[s.Fault]++
		x.healed = append(x.healed, s.Healed)
	}
	for kind, all := range r.Failovers {
		x.failovers[kind] = append(x.failovers[kind], all...)
	}
}

// totals are by site, in the order of their first rounds.
func (r *Report) totals() (names []string, all map[string]*total) {
	all = map[string]*total{}
	for _, round := range r.Rounds {
		x := all[round.Site]
		if x == nil {
			x = &total{strikes: map[string]int{}, failovers: map[string][]time.Duration{}}
			all[round.Site] = x
			names = append(names, round.Site)
		}
		x.add(round)
	}
	for _, x := range all {
		for _, d := range x.failovers {
			slices.Sort(d)
		}
		slices.Sort(x.healed)
		slices.Sort(x.rates)
	}
	return names, all
}

// Markdown writes the report for people.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Torture report\n\nBegun %s.\n", r.Began.UTC().Format("2006-01-02 15:04 UTC"))
	names, all := r.totals()
	r.figures(&b, names, all)
	for _, name := range names {
		faultTable(&b, name, all[name])
		r.skipped(&b, name)
	}
	r.invariants(&b)
	r.rounds(&b)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", s.Title, strings.TrimSpace(s.Text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figures is one column a site.
func (r *Report) figures(b *strings.Builder, names []string, all map[string]*total) {
	fmt.Fprintf(b, "\n## Figures\n\n| |%s|\n|---|%s\n", strings.Join(names, "|"), strings.Repeat("---|", len(names)))
	row := func(what string, of func(*total) string) {
		fmt.Fprintf(b, "|%s|", what)
		for _, name := range names {
			fmt.Fprintf(b, "%s|", of(all[name]))
		}
		b.WriteString("\n")
	}
	number := func(what string, of func(*total) int) {
		row(what, func(x *total) string { return fmt.Sprint(of(x)) })
	}
	row("rounds, of which counted", func(x *total) string { return fmt.Sprintf("%d, %d", x.rounds, x.counted) })
	row("wall time under fire", func(x *total) string { return x.took.Round(time.Second).String() })
	number("faults injected", func(x *total) int { return sum(x.strikes) })
	number("terms", func(x *total) int { return int(x.terms) })
	row("appends acknowledged", func(x *total) string { return fmt.Sprintf("%d (%.1f MB)", x.appends, float64(x.bytes)/1e6) })
	number("grants to those who append", func(x *total) int { return x.grants })
	number("lines acknowledged", func(x *total) int { return x.lines })
	row("lines lost, duplicate, foreign, out of order", func(x *total) string {
		return fmt.Sprintf("%d, %d, %d, %d", x.lost, x.duplicate, x.foreign, x.misplac)
	})
	row("operations checked by porcupine (in partitions)", func(x *total) string { return fmt.Sprintf("%d (%d)", x.operations, x.partitions) })
	number("porcupine Unknown", func(x *total) int { return x.unknown })
	number("indeterminate operations", func(x *total) int { return x.indeterminate })
	number("**violations**", func(x *total) int { return x.violations })
	row("calls/s while nothing was wrong, median", func(x *total) string { return fmt.Sprintf("%.0f", x.rates[len(x.rates)/2]) })
	row("healthy after mending: median, p99, max", func(x *total) string { return spread(x.healed) })
	row("longest time without an answer to anybody", func(x *total) string { return x.gap.Round(time.Millisecond).String() })
}

func faultTable(b *strings.Builder, name string, x *total) {
	fmt.Fprintf(b, "\n## Faults: %s\n\n", name)
	b.WriteString("Failover: from the injection to the first answer that a later term gave to a client.\n\n")
	b.WriteString("|fault|injected|failovers|median, p99, max|\n|---|---|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(x.strikes)) {
		d := x.failovers[kind]
		fmt.Fprintf(b, "|%s|%d|%d|%s|\n", kind, x.strikes[kind], len(d), spread(d))
	}
}

func (r *Report) skipped(b *strings.Builder, site string) {
	for _, f := range slices.Sorted(maps.Keys(r.Skipped[site])) {
		fmt.Fprintf(b, "- not injected: %s: %s\n", f, r.Skipped[site][f])
	}
}

// invariants is one table for all sites.
func (r *Report) invariants(b *strings.Builder) {
	var all check.Report
	for _, x := range r.Rounds {
		all.AddResults(x.Invariants)
	}
	fmt.Fprintf(b, "\n## Invariants\n\n%s", all.Markdown())
}

func (r *Report) rounds(b *strings.Builder) {
	b.WriteString("\n## Rounds\n\n|site|seed|took|faults|epoch|LSN|violations|\n|---|---|---|---|---|---|---|\n")
	for _, x := range r.Rounds {
		fmt.Fprintf(b, "|%s|%d|%v|%d|%d|%d|%d|\n", x.Site, x.Seed, x.Took.Round(time.Second), len(x.Strikes), x.Epoch, x.LSN, len(x.Violations))
	}
	for _, x := range r.Rounds {
		for _, bad := range x.Violations {
			fmt.Fprintf(b, "\n- **%s, seed %d: %s**", x.Site, x.Seed, bad)
		}
	}
}

func sum(all map[string]int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// spread is the median, the 99th percentile and the maximum.
func spread(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "–"
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return fmt.Sprintf("%s, %s, %s", ms(check.Quantile(sorted, 0.5)), ms(check.Quantile(sorted, 0.99)), ms(sorted[len(sorted)-1]))
}
