// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// MarkdownRuns is how many runs a row needs for WriteMarkdown: published figures are medians.
const MarkdownRuns = 3

// WriteMarkdown writes the table of docs/performance.md: a line for each row of ours, with a column for
// each service. It returns an error for a row with too few runs.
func WriteMarkdown(w io.Writer, r *Report, ours string) error {
	services := []string{ours}
	for _, x := range r.Rows {
		if x.Median.Rate > 0 && len(x.Runs) < MarkdownRuns {
			return fmt.Errorf("%s, %s has %d runs: use --repeat %d or more for medians", x.Workload, x.Target, len(x.Runs), MarkdownRuns)
		}
		if !slices.Contains(services, x.Target) {
			services = append(services, x.Target)
		}
	}
	m := r.Machine
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors, %d GiB, Linux %s, %s, load average %s; commit %s, %s.\n",
		m.CPU, m.CPUs, m.MemoryBytes>>30, m.Kernel, m.Filesystem, m.Load, r.Commit, r.Began.Format("2006-01-02"))
	fmt.Fprintf(&b, "Medians (least to most), Holdfast's rate divided by the peer's, processor time of clients + servers per operation.\n\n")
	fmt.Fprintf(&b, "| what | %s |\n|---%s|\n", strings.Join(services, " | "), strings.Repeat("|---", len(services)))
	for _, o := range r.Rows {
		if o.Target != ours {
			continue
		}
		line := []string{markdownName(o)}
		for _, name := range services {
			line = append(line, markdownCell(r.Rows, o, name))
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownName says what a row of ours measures.
func markdownName(x Row) string {
	name := x.Workload
	if x.Size > 0 {
		name += fmt.Sprintf(" of %d bytes", x.Size)
	}
	if x.Offered > 0 {
		name += fmt.Sprintf(" at %s/s", thousands(x.Offered))
	}
	switch {
	case x.Workers == 1:
		name += ", 1 worker"
	case x.Clients == 0:
		name += fmt.Sprintf(", %d workers", x.Workers)
	case x.Clients == x.Workers:
		name += fmt.Sprintf(", %d workers with a client each", x.Workers)
	case x.Clients == 1:
		name += fmt.Sprintf(", %d workers of one client", x.Workers)
	default:
		name += fmt.Sprintf(", %d workers of %d clients", x.Workers, x.Clients)
	}
	if x.Unit != "" {
		name += ", " + x.Unit + "/s"
	}
	return name
}

// markdownCell is what a service did of a row of ours; a dash where it did not.
func markdownCell(rows []Row, o Row, name string) string {
	at := slices.IndexFunc(rows, func(p Row) bool {
		return p.Target == name && (name == o.Target && p.Workers == o.Workers && p.Clients == o.Clients &&
			p.Workload == o.Workload && p.Size == o.Size && p.Offered == o.Offered || counterpart(rows, o, p))
	})
	if at < 0 {
		return "–"
	}
	x := rows[at]
	var parts []string
	if m := x.Median; m.Rate > 0 {
		rate := thousands(m.Rate)
		if name == o.Target {
			rate = "**" + rate + "**"
		}
		rate += fmt.Sprintf(" (%s-%s)", thousands(x.RateMin), thousands(x.RateMax))
		if name != o.Target {
			rate += fmt.Sprintf("; **%s x**", number(divide(o.Median.Rate, m.Rate)))
		}
		parts = append(parts, rate)
	}
	if l := x.Median.Latency; l != nil {
		parts = append(parts, fmt.Sprintf("p50 %s, p99 %s ms", number(l.P50/1000), number(l.P99/1000)))
	}
	if m := x.Median; m.ClientCPU != nil && m.ServerCPU != nil {
		parts = append(parts, fmt.Sprintf("%s + %s µs", number(*m.ClientCPU), number(*m.ServerCPU)))
	}
	return strings.Join(parts, "; ")
}

// thousands is a whole number with commas.
func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
