// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

func TestHistogram(t *testing.T) {
	a, b := NewHistogram(), NewHistogram()
	if a.Latency() != nil {
		t.Error("percentiles of nothing")
	}
	for i := range 1000 {
		a.Record(time.Duration(i+1) * time.Microsecond)
		b.Record(time.Duration(i+1001) * time.Microsecond)
	}
	b.Record(-time.Second)
	b.Record(100 * time.Hour)
	a.Merge(b)
	l := a.Latency()
	near := func(got, want float64) bool { return got > want*0.998 && got < want*1.002 }
	if a.Count() != 2002 || !near(l.P50, 1000) || !near(l.P99, 1980) || !near(l.Max, histogramMax.Seconds()*1e6) {
		t.Errorf("%d latencies: %+v", a.Count(), l)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(tt.of); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.of, got, tt.want)
		}
	}
}

func TestSampleRun(t *testing.T) {
	r := SampleRun([]time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond})
	if r.Latency.P50 != 25_000 || r.Latency.P99 != 40_000 || r.Latency.Max != 40_000 || !slices.Equal(r.Samples, []float64{30, 10, 20, 40}) {
		t.Errorf("%+v %+v", r, r.Latency)
	}
	if r := SampleRun(nil); r.Latency != nil {
		t.Error("percentiles of nothing")
	}
}

func run(rate, p50 float64, cpu time.Duration) Run {
	r := Run{Seconds: 1, Operations: int64(rate), Rate: rate, Latency: &Latency{P50: p50, P99: 2 * p50, P999: 3 * p50, Max: 4 * p50}, WorkerMin: 1, WorkerMax: int64(rate)}
	r.charge(CPU{Client: cpu, Servers: 2 * cpu, Known: cpu > 0})
	return r
}

func TestRowHasMedians(t *testing.T) {
	row := Row{Workload: "own"}
	for _, r := range []Run{run(100, 10, time.Second), run(300, 30, 0), run(200, 20, time.Second)} {
		row.Add(r)
	}
	m := row.Median
	if m.Rate != 200 || row.RateMin != 100 || row.RateMax != 300 || m.Latency.P99 != 40 || m.Latency.Max != 120 || m.WorkerMax != 300 {
		t.Errorf("%+v %+v", m, m.Latency)
	}
	if *m.ServerCPU != 15_000 { // of the two that know it: 20,000 and 10,000
		t.Errorf("CPU of servers: %v", *m.ServerCPU)
	}
}

func report() *Report {
	r := &Report{
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 12, Commit: "abc", Skipped: []string{"etcd: not found"},
		Machine: Machine{CPU: "Some CPU", CPUs: 2, MemoryBytes: 24 << 30, Kernel: "6.1", Filesystem: "ext4", Load: "0.00 0.01 0.05"},
	}
	add := func(row Row, runs ...Run) {
		for _, x := range runs {
			row.Add(x)
		}
		r.Rows = append(r.Rows, row)
	}
	add(Row{Workload: "own", Target: "holdfast", Workers: 16}, run(1000, 50, time.Millisecond), run(1200, 40, time.Millisecond), run(1100, 45, 0))
	add(Row{Workload: "own", Target: "redis", Workers: 16}, run(550, 90, 0))
	add(Row{Workload: "own", Target: "etcd", Workers: 8}, run(1, 90, 0))
	add(Row{Workload: "append", Target: "holdfast", Workers: 4, Size: 100, Figures: []Figure{{"memory", 12.5, "MiB"}}}, run(10, 5, 0))
	add(Row{Workload: "own", Target: "redis", Workers: 16, Offered: 1000}, run(1, 90, 0)) // an open loop is another row
	add(Row{Workload: "failover", Target: "holdfast", Workers: 4}, SampleRun([]time.Duration{250 * time.Millisecond}))
	add(Row{Workload: "failover", Target: "etcd", Workers: 4}, SampleRun([]time.Duration{time.Second}))
	return r
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	r := report()
	if err := WriteComparison(&b, r, Ratios(r.Rows, "holdfast")); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/comparison.txt", b.Bytes())
}

// golden compares with a file, or writes it anew.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRatios(t *testing.T) {
	got := Ratios(report().Rows, "holdfast")
	want := []Ratio{
		{Workload: "own", Workers: 16, Peer: "redis", Rate: 2, P50: 0.5, P99: 0.5, Max: 200.0 / 360},
		{Workload: "failover", Workers: 4, Peer: "etcd", P50: 0.25, P99: 0.25, Max: 0.25},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestRatiosCompareAsManyClients: a peer that gives each worker a connection stands against both of
// our shapes, one that has both against the same.
func TestRatiosCompareAsManyClients(t *testing.T) {
	var rows []Row
	for _, x := range []struct {
		target  string
		clients int
		rate    float64
	}{{"holdfast", 16, 100}, {"holdfast", 1, 400}, {"etcd", 16, 10}, {"etcd", 1, 20}, {"redis", 16, 200}} {
		row := Row{Workload: "own", Target: x.target, Workers: 16, Clients: x.clients}
		row.Add(Run{Seconds: 1, Rate: x.rate})
		rows = append(rows, row)
	}
	var b strings.Builder
	if err := WriteMarkdown(&b, &Report{Rows: rows}, "holdfast"); err == nil || !strings.Contains(err.Error(), "--repeat 3") {
		t.Errorf("medians of one run: %v", err)
	}
	type pair struct {
		clients, theirs int
		peer            string
		rate            float64
	}
	var got []pair
	for _, r := range Ratios(rows, "holdfast") {
		got = append(got, pair{r.Clients, r.PeerClients, r.Peer, r.Rate})
	}
	want := []pair{{16, 16, "etcd", 10}, {16, 16, "redis", 0.5}, {1, 1, "etcd", 20}, {1, 16, "redis", 2}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	r := report()
	for _, x := range []struct {
		target  string
		clients int
		rate    float64
	}{{"holdfast", 256, 5200}, {"holdfast", 1, 21_000}, {"etcd", 256, 1300}, {"redis", 256, 18_000}} {
		row := Row{Workload: "own", Target: x.target, Unit: "pairs", Workers: 256, Clients: x.clients}
		for i := range MarkdownRuns {
			row.Add(run(x.rate+float64(i), 50, time.Millisecond))
		}
		r.Rows = append(r.Rows, row)
	}
	r.Rows = r.Rows[len(r.Rows)-6:] // those with enough runs, and the failovers
	if err := WriteMarkdown(&b, r, "holdfast"); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/markdown.txt", b.Bytes())
}

func TestJSONHasWhatIsNeeded(t *testing.T) {
	b, err := json.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"per_second":1100`, `"p99_us"`, `"runs"`, `"machine"`, `"filesystem":"ext4"`, `"versions"`, `"commit":"abc"`, `"samples_ms":[250]`, `"size_bytes":100`} {
		if !strings.Contains(string(b), field) {
			t.Errorf("no %s in %s", field, b)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a (b) c) S 7 42 42 0 -1 0 1 2 3 4 100 50 20 10 20 0 1 0 100 1 1"
	p, ok := parseStat(line)
	if want := (process{pid: 42, parent: 7, used: 1800 * time.Millisecond}); !ok || p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "42", "x (y) S 1", "42 (y) S x " + strings.Repeat("1 ", 20), "42 (y) S 1 2"} {
		if p, ok := parseStat(bad); ok {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}

func TestTreeCPU(t *testing.T) {
	all := []process{{3, 2, 4}, {2, 1, 2}, {1, 0, 1}, {4, 1, 8}, {5, 0, 16}, {6, 5, 32}}
	for _, tt := range []struct {
		roots []int
		want  time.Duration
	}{{[]int{1}, 15}, {[]int{2}, 6}, {[]int{2, 5}, 54}, {[]int{2, 3}, 6}, {nil, 0}, {[]int{9}, 0}} {
		if got := treeCPU(all, tt.roots); got != tt.want {
			t.Errorf("roots %v: %v, want %v", tt.roots, got, tt.want)
		}
	}
}

func TestOurselvesInProc(t *testing.T) {
	c, err := ReadCPU([]int{os.Getpid()})
	if err != nil || !c.Known {
		t.Errorf("%+v, %v", c, err)
	}
	if rss, err := ResidentBytes(os.Getpid()); err != nil || rss < 1<<20 {
		t.Errorf("%d bytes, %v", rss, err)
	}
	if m := ReadMachine("."); m.CPUs < 1 || m.MemoryBytes < 1<<20 || m.Filesystem == "" || m.Kernel == "" {
		t.Errorf("%+v", m)
	}
}
