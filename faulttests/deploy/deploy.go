// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the files of docs/deploy to what servers do: every metric of the alerts and of the dashboard, with the
// labels by which it is chosen, is one that real servers tell, and every alert has its words in docs/operate.md.
//
// promtool, where it is installed, says whether the files are well formed, and whether each alert fires and resolves.
//
// It also writes the manual pages and completions that packages have (WriteManual, and the command in manual), and makes the packages
// of .goreleaser.yaml with nfpm alone (Recipe), for its tests. The base for Kubernetes is held to the settings, flags and ports of servers.
package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Metrics are what servers told when they were asked, by the name of the metric: the labels of its samples.
type Metrics map[string][]string

// Add enters what one server told, in the text format. A histogram has its own name, too: that of the native one.
func (m Metrics) Add(text string) {
	sample := regexp.MustCompile(`^(holdfast_\w+)(\{.*\})? `)
	for line := range strings.Lines(text) {
		if histogram, ok := strings.CutSuffix(line, " histogram\n"); ok {
			m.enter(strings.TrimPrefix(histogram, "# TYPE "), "")
		}
		if x := sample.FindStringSubmatch(line); x != nil {
			m.enter(x[1], strings.Trim(x[2], "{}"))
		}
	}
}

func (m Metrics) enter(name, labels string) {
	if !slices.Contains(m[name], labels) {
		m[name] = append(m[name], labels)
	}
}

// Unserved lists what an expression chooses that no server told: metrics, or samples with a label. Metrics that are in absent need
// not be there.
func (m Metrics) Unserved(expr string, absent map[string]string) (all []string) {
	selector := regexp.MustCompile(`\b(holdfast_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)(!?=~?)"([^"]*)"`)
	for _, x := range selector.FindAllStringSubmatch(expr, -1) {
		samples, ok := m[x[1]]
		if absent[x[1]] != "" && !ok {
			continue
		}
		if !ok {
			all = append(all, "no server tells "+x[1])
		}
		for _, l := range label.FindAllStringSubmatch(x[2], -1) {
			want := l[1] + `="`
			switch {
			case l[1] == "job" || l[1] == "instance": // Prometheus adds them
				continue
			case l[2] == "=":
				want += l[3] + `"`
			}
			if ok && !slices.ContainsFunc(samples, func(s string) bool { return strings.Contains(","+s, ","+want) }) {
				all = append(all, fmt.Sprintf("no %s has %s", x[1], want))
			}
		}
	}
	return all
}

// Alert is one alert of a file of rules.
type Alert struct{ Name, Text string }

// Alerts are those of a file of rules, as promtool takes it.
func Alerts(rules string) (all []Alert) {
	parts := strings.Split(rules, "- alert: ")
	for _, p := range parts[1:] {
		all = append(all, Alert{regexp.MustCompile(`^\w+`).FindString(p), p})
	}
	return all
}

// Undocumented lists what an alert lacks: its severity, its texts, its words in docs/operate.md (here manual), or a test (in tests)
// in which it fires.
func (a Alert) Undocumented(manual, tests string) (all []string) {
	for _, want := range []string{
		"\n        expr: ", "severity: ", "\n          summary: ", "\n          description: ",
		"\n          runbook_url: docs/operate.md#" + strings.ToLower(a.Name) + "\n",
	} {
		if !strings.Contains(a.Text, want) {
			all = append(all, fmt.Sprintf("%s has no %s", a.Name, strings.TrimSpace(want)))
		}
	}
	_, words, ok := strings.Cut(manual, "\n### "+a.Name+"\n")
	words, _, _ = strings.Cut(words, "\n### ")
	if !ok || !strings.Contains(words, "- Look at: ") || !strings.Contains(words, "- Do: ") {
		all = append(all, fmt.Sprintf("docs/operate.md does not say under %s what to look at and what to do", a.Name))
	}
	if !strings.Contains(tests, `{alertname="`+a.Name+`"}`) {
		all = append(all, fmt.Sprintf("%s fires in no test", a.Name))
	}
	return all
}
