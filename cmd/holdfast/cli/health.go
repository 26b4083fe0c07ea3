// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// The exit codes of status, for monitors.
const (
	healthyCode  = 0
	degradedCode = 1 // the cluster serves, but something needs attention
	downCode     = 2 // no server is primary
)

// health sums up a status, also in JSON.
type health struct {
	code    int
	Health  string   `json:"health"`  // healthy, degraded or down
	Reasons []string `json:"reasons"` // why it is not healthy
}

// healthOf derives the health from the status of all servers.
func healthOf(b *wire.StatusBody) health {
	h := health{code: downCode, Health: "down", Reasons: []string{}}
	for i := range b.Servers {
		s := &b.Servers[i]
		if s.Role == "primary" {
			h.code, h.Health = degradedCode, "degraded"
		}
		if note := careNote(s); note != "" {
			h.Reasons = append(h.Reasons, fmt.Sprintf("server %d: %s", s.ID, note))
		}
	}
	if h.code == downCode {
		if text := majorityText(b); text != "" {
			h.Reasons = append(h.Reasons, text)
		}
	} else if len(h.Reasons) == 0 {
		h.code, h.Health = healthyCode, "healthy"
	}
	return h
}

// careNote describes what is wrong with a server, "" if nothing is.
func careNote(s *wire.ServerBody) string {
	var notes []string
	switch {
	case s.Conflict:
		notes = append(notes, "TWO PROCESSES USE THIS ID")
	case s.Joining: // it counts for nothing yet
	case s.Role == "unreachable":
		notes = append(notes, "does not answer")
	case s.Unwaited:
		notes = append(notes, "answers do not wait for it: it was silent")
	case s.Role == "replica" && !s.Able:
		notes = append(notes, "could not take over now")
	}
	if s.Volume.Full {
		notes = append(notes, "VOLUME FULL")
	}
	return strings.Join(append(notes, s.Volume.Warnings...), "; ")
}

// healthText prints each reason on a line of its own; nothing for a healthy cluster.
func healthText(w io.Writer, h *health) {
	switch h.code {
	case degradedCode:
		fmt.Fprintln(w, "degraded: the cluster serves, but needs attention:")
	case downCode:
		fmt.Fprintln(w, "down: no server is primary:")
	}
	for _, r := range h.Reasons {
		fmt.Fprintf(w, "  %s\n", r)
	}
}
