// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// passOn has the primary answer a GET whose answer may be long: it is sent on as it comes.
// False says that nothing was sent. What was begun and breaks off is broken off here, too.
func (h *HTTP) passOn(w http.ResponseWriter, r *http.Request) bool {
	over := time.Now().Add(h.patience())
	tick := time.NewTicker(h.s.b.Timing().Heartbeat)
	defer tick.Stop()
	for time.Now().Before(over) {
		if m, epoch, ok := h.s.b.Primary(); ok && m.ID != h.s.self {
			asked := time.Now()
			resp, end, moved := h.askFor(r, m, epoch)
			if resp != nil {
				defer end()
				h.copyAnswer(w, r, resp)
				return true
			}
			if moved {
				over = over.Add(time.Since(asked)) // who took over gets as much patience as at once
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

// askFor asks a server for an answer, which is read until end. None = another attempt may be
// better: the server says so, it took answerWait to say nothing, or it moved, which means
// that another one reigns now, for a paused one would not answer for hours.
func (h *HTTP) askFor(r *http.Request, m cluster.Member, epoch cluster.Epoch) (resp *http.Response, end func(), moved bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTP+r.URL.RequestURI(), nil)
	if err != nil {
		cancel(err)
		return nil, nil, false
	}
	for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Match"} {
		if v, ok := r.Header[name]; ok {
			ask.Header[name] = v
		}
	}
	ask.Header.Set(forwardedHeader, fmt.Sprint(h.s.self))
	silent, heard := context.WithTimeout(ctx, answerWait)
	defer heard()
	stop := context.AfterFunc(silent, func() { cancel(context.Cause(silent)) })
	go h.watch(silent, cancel, m.ID, epoch)
	resp, err = h.opt.Transport.RoundTrip(ask)
	stop()
	if err == nil && resp.StatusCode != http.StatusServiceUnavailable && ctx.Err() == nil {
		return resp, func() { resp.Body.Close(); cancel(nil) }, false
	}
	if err == nil {
		resp.Body.Close()
	}
	moved = errors.Is(context.Cause(ctx), errMoved)
	cancel(nil)
	return nil, nil, moved
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
