// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   string // in the error; "" = none
	}{
		{"defaults", func(*Options) {}, ""},
		{"closed loop", func(o *Options) { o.Rate = 0 }, ""},
		{"no warm-up", func(o *Options) { o.Warmup = 0 }, ""},
		{"no workers", func(o *Options) { o.Workers = []int{4, 0} }, "--workers 0"},
		{"no wait", func(o *Options) { o.Wait = 0 }, ""},
		{"negative wait", func(o *Options) { o.Wait = -1 }, "--wait"},
		{"nothing to append", func(o *Options) { o.Sizes = []int{0} }, "--size 0"},
		{"too much to append", func(o *Options) { o.Sizes = []int{1<<20 + 1} }, "--size 1048577"},
		{"no repeat", func(o *Options) { o.Repeat = 0 }, "--repeat"},
		{"no holders", func(o *Options) { o.Holders = 0 }, "--holders"},
		{"negative kills", func(o *Options) { o.HoldersKills = -1 }, "--holders-kills"},
		{"negative watchers", func(o *Options) { o.Watchers = -1 }, "--watchers"},
		{"too many loops", func(o *Options) { o.StarveLoops = 5000 }, "--starve-loops"},
		{"no connections", func(o *Options) { o.Connections = 0 }, "--connections"},
		{"negative processes", func(o *Options) { o.Processes = -1 }, "--processes -1"},
		{"too many processes", func(o *Options) { o.Processes = 65 }, "--processes 65"},
		{"short lease of connections", func(o *Options) { o.Lease = time.Millisecond }, "--lease"},
		{"no events", func(o *Options) { o.WatchRates = []int{0} }, "--watch-rate 0"},
		{"short lease", func(o *Options) { o.HoldersTTL = time.Millisecond }, "--holders-ttl"},
		{"broken lease", func(o *Options) { o.HoldersTTL = time.Second + 1 }, "--holders-ttl"},
		{"no time", func(o *Options) { o.Duration = 0 }, "--duration"},
		{"negative warm-up", func(o *Options) { o.Warmup = -1 }, "--warmup"},
		{"negative rate", func(o *Options) { o.Rate = -1 }, "--rate"},
		{"no churn", func(o *Options) { o.ChurnRate = 0 }, "--churn-rate"},
		{"no appends", func(o *Options) { o.ChurnAppends = 0 }, "--churn-appends"},
		{"no failover", func(o *Options) { o.Failovers = 0 }, "--failovers"},
		{"no handover", func(o *Options) { o.Handovers = 0 }, "--handovers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := DefaultOptions()
			tt.change(&o)
			err := o.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	if usual, err := Find(nil); err != nil || len(usual) != len(All())-3 {
		t.Errorf("%d workloads, %v", len(usual), err)
	}
	if long, err := Find([]string{"churn"}); err != nil || len(long) != 1 || !long[0].Alone {
		t.Errorf("%v, %v", long, err)
	}
	if some, err := Find([]string{"append", "own"}); err != nil || len(some) != 2 || some[0].Name != "append" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := Find([]string{"own", "nothing"}); err == nil {
		t.Error("a workload that is not there was found")
	}
}

// TestCrowd: many watchers are spread over all servers, and not too many share a connection.
func TestCrowd(t *testing.T) {
	endpoints := []string{"127.0.0.2:1", "127.0.0.2:2", "127.0.0.2:3"}
	for _, tt := range []struct{ watchers, share, clients int }{{1, 500, 0}, {2, 500, 3}, {1500, 500, 3}, {1501, 500, 6}, {10_000, 500, 21}, {7, 1, 9}} {
		h, err := NewHoldfast(endpoints, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Crowd(tt.watchers, tt.share); err != nil || h.watching.Len() != tt.clients {
			t.Errorf("%d watchers share %d clients, want %d, %v", tt.watchers, h.watching.Len(), tt.clients, err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		limits
		clients, asked, processes int // none = refused
		want                      string
	}{
		{limits{20_000, 28_232}, 5000, 0, 1, ""},
		{limits{20_000, 28_232}, 15_000, 0, 3, ""},
		{limits{20_000, 28_232}, 50_000, 0, 0, "allows 15804"},
		{limits{1_000_000, 28_232}, 50_000, 0, 0, "allows 27732"},
		{limits{1_000_000, 64_511}, 50_000, 0, 5, ""},
		{limits{1024, 28_232}, 600, 0, 2, ""},
		{limits{1024, 28_232}, 700, 0, 0, "allows 668"},
		{limits{100, 28_232}, 1, 0, 0, "allows 0"},
		{limits{20_000, 28_232}, 15_000, 8, 8, ""},
		{limits{20_000, 28_232}, 15_000, 3, 3, ""},
		{limits{20_000, 28_232}, 15_000, 2, 0, "use 3 to 64 for 15000 clients"},
		{limits{20_000, 28_232}, 5, 6, 0, "use 1 to 5 for 5 clients"},
	} {
		n, err := tt.limits.processes("connections", tt.clients, tt.asked)
		if n != tt.processes || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, %d clients: %d processes, %v, want %d, %q", tt.limits, tt.clients, n, err, tt.processes, tt.want)
		}
	}
	if l, err := readLimits(10); err != nil || l.files < 10 || l.ports < 10 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestVerifyRecords(t *testing.T) {
	file := func(numbers ...int64) []byte {
		var b []byte
		for _, n := range numbers {
			r := make([]byte, 20)
			bench.Record(r, n)
			b = append(b, r...)
		}
		return b
	}
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"whole", file(0, 1, 2), ""},
		{"lost at the end", file(0, 1), "record 3 of 3"},
		{"lost in the middle", file(0, 2), "record 2"},
		{"doubled", file(0, 1, 1, 2), "record 3"},
		{"one too many", file(0, 1, 2, 3), "more than"},
		{"out of order", file(1, 0, 2), "record 1"},
		{"torn", file(0, 1, 2)[:59], "record 3 of 3"},
		{"zeros", append(file(0, 1), make([]byte, 20)...), "record 3"},
		{"empty", nil, "record 1 of 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := verifyRecords(bytes.NewReader(tt.file), bench.Appended{File: "f", Count: 3, Size: 20})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	base := time.Now()
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	during := []servers.Interval{{From: at(10), To: at(20)}, {From: at(40), To: at(41)}}
	samples := []sample{
		{at(1), time.Second}, {at(9), 500 * time.Millisecond}, {at(20), time.Second}, // outside
		{at(9), 2 * time.Second}, {at(12), time.Second}, {at(19), 5 * time.Second}, {at(30), 20 * time.Second}, // inside
	}
	outside, inside := split(samples, during)
	if outside.Operations != 3 || inside.Operations != 4 {
		t.Errorf("%d outside, %d inside", outside.Operations, inside.Operations)
	}
}
