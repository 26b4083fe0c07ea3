// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// stuckAfter is by how much a loop has to be late before the process counts as stuck. A machine that is short of CPU is not
// helped by starting the process anew.
const stuckAfter = 10 * time.Second

// Probes returns a handler of its own for the probes and the metrics, without callers and rules: what they answer names nothing.
func (h *Handler) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", h.livez)
	mux.HandleFunc("GET /readyz", h.readyz)
	if h.opt.Metrics != nil {
		mux.HandleFunc("GET /metrics", scrape(h.opt.Metrics))
	}
	return mux
}

// livez answers 200 unless a loop of this process is stuck. It asks neither the volume nor a quorum nor another server: to start
// the process anew would mend none of them. So it does not watch the goroutine that commits, either, which waits for the volume: where
// that does not come through, another server takes over from a stalled primary (package election), and the process ends itself if the
// goroutine does not return from its term.
func (h *Handler) livez(w http.ResponseWriter, r *http.Request) {
	var checks []service.Check
	if h.opt.Loops != nil {
		late := h.opt.Loops(time.Now())
		for _, name := range slices.Sorted(maps.Keys(late)) {
			c := service.Check{Name: name, Status: cluster.StatusOK, Message: "alive"}
			if late[name] > stuckAfter {
				c.Status, c.Message = cluster.StatusError, fmt.Sprintf("the %s loop has not gone round for %v", name, late[name].Round(time.Second))
			}
			checks = append(checks, c)
		}
	}
	h.probe(w, r, "alive", checks)
}

// readyz answers 200 if this server is of use to clients, else 503.
func (h *Handler) readyz(w http.ResponseWriter, r *http.Request) {
	checks := h.s.Readiness(r.Context())
	h.probe(w, r, checks[len(checks)-1].Message, checks)
}

// probe answers 200 with this message if all checks pass, else 503 with that of the first that does not. With verbose it
// lists them.
func (h *Handler) probe(w http.ResponseWriter, r *http.Request, message string, checks []service.Check) {
	out, code := locktable.Outcome{Status: cluster.StatusOK, Message: message}, http.StatusOK
	list := &strings.Builder{}
	for _, c := range checks {
		sign := "+"
		if c.Status != cluster.StatusOK {
			if sign = "-"; code == http.StatusOK {
				out.Status, out.Message, code = c.Status, c.Message, http.StatusServiceUnavailable
			}
		}
		fmt.Fprintf(list, "[%s] %s: %s\n", sign, c.Name, c.Message)
	}
	x := answerReply(convert.FromOutcome(&out), code)
	if r.URL.Query().Has("verbose") {
		x.plain = true
		x.body = []byte(list.String() + out.Status.String() + "\n")
	}
	h.send(w, x)
}

// metrics serves the metrics to every caller that the rules permit anything.
func (h *Handler) metrics(w http.ResponseWriter, r *http.Request) {
	if err := h.s.MayScrape(r.Context()); err != nil {
		h.refuse(w, 0, err)
		return
	}
	if h.opt.Metrics == nil {
		h.notFound(w, r)
		return
	}
	scrape(h.opt.Metrics)(w, r)
}

// lockMetrics serves the metrics of the locks that a scrape names, to callers that may read them.
func (h *Handler) lockMetrics(w http.ResponseWriter, r *http.Request) {
	var names []string
	var prefix *string
	holders := false
	if err := parameters(r, map[string]func(string) error{
		"lock":    func(s string) error { names = append(names, s); return nil },
		"prefix":  func(s string) error { prefix = &s; return nil },
		"holders": yes(&holders),
	}, "lock"); err != nil {
		h.refuse(w, 0, err)
		return
	}
	read, err := h.s.SampleLocks(r.Context(), names, prefix)
	switch {
	case err != nil || read.GetStatus() != pb.Status_STATUS_OK:
		h.sendRead(w, r, read, err, func() any { return wire.LocksBodyOf(read) })
	case h.opt.LockMetrics == nil:
		h.notFound(w, r)
	default:
		scrape(h.opt.LockMetrics(read, holders))(w, r)
	}
}

// scrape returns a function that serves metrics. Few scrapes may be under way at once, so one that is not read ends after bodyWait.
func scrape(metrics http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait))
		metrics.ServeHTTP(w, r)
	}
}
