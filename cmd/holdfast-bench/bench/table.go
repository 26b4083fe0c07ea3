// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes a report for people: medians of the runs, latencies in
// microseconds.
func WriteTable(w io.Writer, r *Report) error {
	writeHead(w, r)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	wide := len("workload")
	for _, x := range r.Rows {
		wide = max(wide, len(x.Workload))
	}
	// tabwriter aligns all columns alike; names stand to the left.
	fmt.Fprintln(t, pad("workload", wide)+"\ttarget\tworkers\tclients\tsize\toffered\truns\tper second\tmin-max\tp50 us\tp99 us\tp999 us\tmax us\trelease p50\tCPU us/op client+servers\tper worker\t")
	for _, x := range r.Rows {
		x.Workload = pad(x.Workload, wide)
		fmt.Fprintln(t, strings.Join(cells(x), "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Rows {
		if len(x.Series) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s, %s:\n", strings.TrimSpace(x.Workload), x.Target)
		if err := WriteSeries(w, x.Series); err != nil {
			return err
		}
	}
	return writeFigures(w, r)
}

func pad(s string, wide int) string { return fmt.Sprintf("%-*s", wide, s) }

func writeHead(w io.Writer, r *Report) {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d CPUs, %d GiB, Linux %s, data on %s, load average %s\n", m.CPU, m.CPUs, m.MemoryBytes>>30, m.Kernel, m.Filesystem, m.Load)
	fmt.Fprintf(w, "commit %s, %s, %.0f s\n\n", r.Commit, r.Began.Format("2006-01-02 15:04:05 MST"), r.Seconds)
}

// writeFigures writes what does not fit the columns.
func writeFigures(w io.Writer, r *Report) error {
	var b strings.Builder
	for _, x := range r.Rows {
		for _, f := range x.Figures {
			fmt.Fprintf(&b, "%s, %s: %s %s %s\n", x.Workload, x.Target, f.Name, number(f.Value), f.Unit)
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "left out: %s\n", s)
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+b.String())
	return err
}

// cells are one line of the table; what a workload does not have is a dash.
func cells(x Row) []string {
	m := x.Median
	c := []string{x.Workload, x.Target, fmt.Sprint(x.Workers), orDash(float64(x.Clients)), orDash(float64(x.Size)), orDash(x.Offered), fmt.Sprint(len(x.Runs)), "-", "-", "-", "-", "-", "-", "-", "-", "-"}
	if m.Rate > 0 {
		c[7], c[8] = number(m.Rate), number(x.RateMin)+"-"+number(x.RateMax)
	}
	if l := m.Latency; l != nil {
		c[9], c[10], c[11], c[12] = number(l.P50), number(l.P99), number(l.P999), number(l.Max)
	}
	if m.Release != nil {
		c[13] = number(m.Release.P50)
	}
	if m.WorkerMax > 0 {
		c[15] = fmt.Sprintf("%d-%d", m.WorkerMin, m.WorkerMax)
	}
	if m.ClientCPU != nil {
		servers := "?"
		if m.ServerCPU != nil {
			servers = number(*m.ServerCPU)
		}
		c[14] = number(*m.ClientCPU) + " + " + servers
	}
	return c
}

// orDash is a whole number, or a dash for 0.
func orDash(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", x)
}

// number has three digits at least, and no more than make sense.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.0f", x)
	}
}

// Ratio compares one row of ours with the same row of a peer.
type Ratio struct {
	Workload string `json:"workload"`
	Workers  int    `json:"workers"`
	// Clients and PeerClients are how many clients the workers had.
	Clients     int `json:"clients,omitempty"`
	PeerClients int `json:"peer_clients,omitempty"`
	Size        int `json:"size_bytes,omitempty"`
	// Offered is the rate of an open loop.
	Offered float64 `json:"offered_per_second,omitempty"`
	Peer    string  `json:"peer"`
	// The rate is better above 1, the latencies below; 0 = one of them has none.
	Rate float64 `json:"rate"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// counterpart reports whether a row p of a peer is what our row o is compared with: the same work by
// as many clients. A peer that has no row with as many clients has only one shape, a connection for
// each worker, which stands against all of ours.
func counterpart(rows []Row, o, p Row) bool {
	same := func(x Row) bool {
		return x.Target == p.Target && x.Workload == o.Workload && x.Workers == o.Workers && x.Size == o.Size && x.Offered == o.Offered
	}
	if p.Target == o.Target || !same(p) {
		return false
	}
	return p.Clients == o.Clients || !slices.ContainsFunc(rows, func(x Row) bool { return same(x) && x.Clients == o.Clients })
}

// Ratios returns our rows divided by each peer's.
func Ratios(rows []Row, ours string) (all []Ratio) {
	for _, o := range rows {
		if o.Target != ours {
			continue
		}
		for _, p := range rows {
			if !counterpart(rows, o, p) {
				continue
			}
			r := Ratio{
				Workload: o.Workload, Workers: o.Workers, Clients: o.Clients, PeerClients: p.Clients, Size: o.Size, Offered: o.Offered,
				Peer: p.Target, Rate: divide(o.Median.Rate, p.Median.Rate),
			}
			if a, b := o.Median.Latency, p.Median.Latency; a != nil && b != nil {
				r.P50, r.P99, r.Max = divide(a.P50, b.P50), divide(a.P99, b.P99), divide(a.Max, b.Max)
			}
			all = append(all, r)
		}
	}
	return all
}

func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// WriteComparison writes the table, and then the ratios.
func WriteComparison(w io.Writer, r *Report, ratios []Ratio) error {
	if err := WriteTable(w, r); err != nil {
		return err
	}
	fmt.Fprint(w, "\nOurs divided by the peer's, from this run (rate: more is better; latencies: less is better):\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\tworkers\tclients\tsize\toffered\tpeer\tits clients\trate\tp50\tp99\tmax\t")
	for _, x := range ratios {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Workload, x.Workers, orDash(float64(x.Clients)),
			orDash(float64(x.Size)), orDash(x.Offered), x.Peer, orDash(float64(x.PeerClients)), times(x.Rate), times(x.P50), times(x.P99), times(x.Max))
	}
	return t.Flush()
}

func times(x float64) string {
	if x == 0 {
		return "-"
	}
	return number(x) + "x"
}
