// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// Report has everything that one command measured.
type Report struct {
	// Command is the command line.
	Command []string  `json:"command"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Machine Machine   `json:"machine"`
	// Versions are those of the measured services, by name. Commit is that of this program.
	Versions map[string]string `json:"versions"`
	Commit   string            `json:"commit"`
	// Options are the values of all flags by name, including defaults.
	Options map[string]string `json:"options"`
	Rows    []Row             `json:"rows"`
	// Skipped lists what was left out, and why.
	Skipped []string `json:"skipped,omitempty"`
}

// Row is one workload at one size against one service.
type Row struct {
	Workload string `json:"workload"`
	Target   string `json:"target"`
	// Unit is the name of the operation that the rate counts.
	Unit    string `json:"unit"`
	Workers int    `json:"workers"`
	Clients int    `json:"clients,omitempty"`
	Size    int    `json:"size_bytes,omitempty"`
	// Offered is the rate of an open loop.
	Offered float64 `json:"offered_per_second,omitempty"`
	Median  Run     `json:"median"`
	RateMin float64 `json:"per_second_min"`
	RateMax float64 `json:"per_second_max"`
	Runs    []Run   `json:"runs"`
	// Figures are further results that only this workload has.
	Figures []Figure `json:"figures,omitempty"`
	// Series are quantities that were sampled while it ran.
	Series []*Series `json:"series,omitempty"`
}

// Run is one repetition.
type Run struct {
	Seconds    float64  `json:"seconds,omitempty"`
	Operations int64    `json:"operations"`
	Rate       float64  `json:"per_second"`
	Latency    *Latency `json:"latency,omitempty"`
	// Release is the latency of the second part of an operation.
	Release *Latency `json:"release,omitempty"`
	// ClientCPU and ServerCPU are microseconds per operation; nil = unknown.
	ClientCPU *float64 `json:"client_cpu_us,omitempty"`
	ServerCPU *float64 `json:"server_cpu_us,omitempty"`
	// ServerCores is how many processors each server used on average; none = unknown.
	ServerCores []float64 `json:"server_cores,omitempty"`
	// WorkerMin and WorkerMax are the operations of the least and the most served worker.
	WorkerMin int64 `json:"worker_min"`
	WorkerMax int64 `json:"worker_max"`
	// Samples are the single times in milliseconds, if there are few.
	Samples []float64 `json:"samples_ms,omitempty"`
}

// Figure is one number with its name.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// charge divides processor time by the operations, and by the time it took.
func (r *Run) charge(c CPU) {
	for _, used := range c.Each {
		r.ServerCores = append(r.ServerCores, used.Seconds()/r.Seconds)
	}
	if r.Operations == 0 {
		return
	}
	per := func(d time.Duration) *float64 {
		us := float64(d) / float64(time.Microsecond) / float64(r.Operations)
		return &us
	}
	r.ClientCPU = per(c.Client)
	if c.Known {
		r.ServerCPU = per(c.Servers)
	}
}

// Add adds a repetition and computes the medians again.
func (r *Row) Add(run Run) {
	r.Runs = append(r.Runs, run)
	var latency, release []*Latency
	var rates, client, server []float64
	var cores [][]float64
	m := Run{WorkerMin: run.WorkerMin}
	for _, x := range r.Runs {
		rates = append(rates, x.Rate)
		latency, release = append(latency, x.Latency), append(release, x.Release)
		client, server = appendKnown(client, x.ClientCPU), appendKnown(server, x.ServerCPU)
		cores = append(cores, x.ServerCores)
		m.Operations += x.Operations
		m.Seconds += x.Seconds
		m.WorkerMin, m.WorkerMax = min(m.WorkerMin, x.WorkerMin), max(m.WorkerMax, x.WorkerMax)
	}
	n := len(r.Runs)
	m.Operations, m.Seconds = m.Operations/int64(n), m.Seconds/float64(n)
	m.Rate, m.Latency, m.Release = Median(rates), medianLatency(latency), medianLatency(release)
	m.ClientCPU, m.ServerCPU, m.ServerCores = known(client), known(server), medians(cores)
	r.Median, r.RateMin, r.RateMax = m, slices.Min(rates), slices.Max(rates)
}

func appendKnown(all []float64, x *float64) []float64 {
	if x == nil {
		return all
	}
	return append(all, *x)
}

func known(all []float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	m := Median(all)
	return &m
}

// medians are those of the first of each, of the second of each and so on.
func medians(all [][]float64) (m []float64) {
	for i := range slices.MinFunc(all, func(a, b []float64) int { return len(a) - len(b) }) {
		var column []float64
		for _, row := range all {
			column = append(column, row[i])
		}
		m = append(m, Median(column))
	}
	return m
}

// Median returns the middle value, or the mean of the middle two; 0 if there are none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// SampleRun returns a repetition that consists of single times: its percentiles are some of
// them, but the median of an even number is between two.
func SampleRun(times []time.Duration) Run {
	r := Run{Operations: int64(len(times))}
	var us []float64
	for _, t := range times {
		r.Samples = append(r.Samples, float64(t.Microseconds())/1000)
		us = append(us, float64(t)/float64(time.Microsecond))
	}
	if len(us) == 0 {
		return r
	}
	slices.Sort(us)
	at := func(p float64) float64 { return us[int(math.Ceil(p*float64(len(us))))-1] }
	r.Latency = &Latency{P50: Median(us), P99: at(0.99), P999: at(0.999), Max: us[len(us)-1]}
	return r
}

// NewRun returns a repetition of which only the number of operations is known.
func NewRun(operations int64, took time.Duration, used CPU) Run {
	r := Run{Seconds: took.Seconds(), Operations: operations, Rate: float64(operations) / took.Seconds()}
	r.charge(used)
	return r
}

// Begin records the time and the machine; dir is the directory of the servers' data.
func (r *Report) Begin(dir string) {
	r.Command = append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	r.Began, r.Commit = time.Now(), Commit()
	r.Machine = ReadMachine(dir)
	r.Versions = map[string]string{"go": runtime.Version()}
}

// FlagOptions adds the flags of a command to options, including defaults.
func FlagOptions(flags *pflag.FlagSet, options map[string]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			options[f.Name] = f.Value.String()
		}
	})
}
