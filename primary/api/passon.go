// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"
)

// passOn has the primary answer a GET whose answer may be long: it is sent on as it comes.
// False says that nothing was sent. What was begun and breaks off is broken off here, too.
func (h *HTTP) passOn(w http.ResponseWriter, r *http.Request) bool {
	over := time.Now().Add(h.patience())
	tick := time.NewTicker(h.s.b.Timing().Heartbeat)
	defer tick.Stop()
	for time.Now().Before(over) {
		if m, _, ok := h.s.b.Primary(); ok && m.ID != h.s.self {
			if resp, err := h.askFor(r, m.HTTP); err == nil && resp.StatusCode != http.StatusServiceUnavailable {
				defer resp.Body.Close()
				h.copyAnswer(w, r, resp)
				return true
			} else if err == nil {
				resp.Body.Close()
			}
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return false
		}
	}
	return false
}

func (h *HTTP) askFor(r *http.Request, addr string) (*http.Response, error) {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+addr+r.URL.RequestURI(), nil)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Match"} {
		if v, ok := r.Header[name]; ok {
			ask.Header[name] = v
		}
	}
	ask.Header.Set(forwardedHeader, fmt.Sprint(h.s.self))
	return h.opt.Transport.RoundTrip(ask)
}

// copyAnswer sends an answer on, piece by piece.
func (h *HTTP) copyAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	maps.Copy(w.Header(), resp.Header)
	for name := range resp.Trailer {
		w.Header().Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	_ = control.Flush() // a follow may have nothing to send for long
	b := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(b)
		_ = control.SetWriteDeadline(time.Now().Add(bodyWait))
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			_ = control.Flush()
			standStill(r, control)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler) // nobody may take the part for the whole
		}
	}
	for name, v := range resp.Trailer {
		w.Header()[name] = v
	}
}
