// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// parameters reads a query with these functions, by name: each parameter at most once but for those in several, none
// unknown. Its errors are for the client.
func parameters(r *http.Request, into map[string]func(string) error, several ...string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return wire.Invalid("query: " + err.Error())
	}
	for name, values := range query {
		set, ok := into[name]
		if !ok {
			return wire.Invalid(fmt.Sprintf("unknown parameter %q: allowed are %s", name, strings.Join(slices.Sorted(maps.Keys(into)), ", ")))
		}
		if len(values) != 1 && !slices.Contains(several, name) {
			return wire.Invalid(fmt.Sprintf("parameter %q is given %d times", name, len(values)))
		}
		for _, v := range values {
			if err := set(v); err != nil {
				return wire.Invalid(fmt.Sprintf("parameter %q: %v", name, err))
			}
		}
	}
	return nil
}

func text(p *string) func(string) error {
	return func(s string) error { *p = s; return nil }
}

func count(p *uint32) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return fmt.Errorf("invalid number %q (want 0..4294967295)", s)
		}
		*p = uint32(n)
		return nil
	}
}

func number(p *uint64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number", s)
		}
		*p = n
		return nil
	}
}

func yes(p *bool) func(string) error {
	return func(s string) error {
		if s != "true" && s != "false" {
			return fmt.Errorf("use true or false")
		}
		*p = s == "true"
		return nil
	}
}

// listParameters reads the query parameters of a paged list.
func listParameters(prefix, after *string, limit *uint32, minLSN *uint64, primaryOnly *bool) map[string]func(string) error {
	return map[string]func(string) error{
		"prefix": text(prefix), "after": text(after), "limit": count(limit), "min_lsn": number(minLSN), "primary_only": yes(primaryOnly),
	}
}

func (h *Handler) listLocks(w http.ResponseWriter, r *http.Request) {
	q := &pb.ListLocksRequest{}
	if err := parameters(r, listParameters(&q.Prefix, &q.After, &q.Limit, &q.MinLsn, &q.PrimaryOnly)); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.ListLocks(r.Context(), q)
	h.sendRead(w, r, x, err, func() any { return wire.LocksBodyOf(x) })
}

func (h *Handler) getLock(w http.ResponseWriter, r *http.Request) {
	q := &pb.GetLockRequest{Lock: r.PathValue("name")}
	if err := parameters(r, map[string]func(string) error{
		"waiters": count(&q.MaxWaiters), "min_lsn": number(&q.MinLsn), "primary_only": yes(&q.PrimaryOnly),
	}); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.GetLock(r.Context(), q)
	h.sendRead(w, r, x, err, func() any {
		b := wire.LockBodyOf(x)
		b.Lock = q.Lock // also where there was nothing to read
		return b
	})
}

// whyLock answers why a lock is not available. Only the primary knows of its holder how long it was silent, so a replica passes the
// request on, and answers with what it has where there is no primary.
func (h *Handler) whyLock(w http.ResponseWriter, r *http.Request) {
	if err := parameters(r, nil); err != nil {
		h.refuse(w, 0, err)
		return
	}
	lock, forwarded := r.PathValue("name"), r.Header.Get(forwardedHeader) != ""
	b, err := why.Ask(r.Context(), h.s, lock, true)
	if err == nil && b.Status == cluster.StatusSecondaryMode.String() && !forwarded {
		if h.proxyToPrimary(w, r) {
			return
		}
		b, err = why.Ask(r.Context(), h.s, lock, false)
	}
	status, _ := cluster.ParseStatus(b.Status)
	h.sendRead(w, r, &pb.Answer{Status: pb.Status(status)}, err, func() any { return b })
}

// sendRead sends what was read. An error is a context that ended: a read changes nothing, so the
// answer is not UNKNOWN.
func (h *Handler) sendRead(w http.ResponseWriter, r *http.Request, x interface{ GetStatus() pb.Status }, err error, body func() any) {
	if err != nil {
		h.refuse(w, 0, &wire.Error{Status: cluster.StatusError, Message: "the call ended before its answer"})
		return
	}
	h.sendLeading(w, r, newReply(x.GetStatus(), 0, body()))
}

func (h *Handler) whoAmI(w http.ResponseWriter, r *http.Request) {
	q := &pb.WhoAmIRequest{}
	if err := parameters(r, map[string]func(string) error{"verb": text(&q.Verb), "lock": text(&q.Lock), "file": text(&q.File), "as": text(&q.As)}); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.WhoAmI(r.Context(), q)
	h.sendRead(w, r, x, err, func() any { return wire.WhoAmIBodyOf(x) })
}

// keys answers with the public keys of the cluster, as JSON Web Key Sets are. Programs that know nothing of Holdfast read them.
func (h *Handler) keys(w http.ResponseWriter, r *http.Request) {
	if err := parameters(r, nil); err != nil {
		h.refuse(w, 0, err)
		return
	}
	h.send(w, reply{status: cluster.StatusOK, code: http.StatusOK, body: h.s.PublicKeys()})
}

// healthz answers that the process lives, without looking at anything.
func (h *Handler) healthz(w http.ResponseWriter, _ *http.Request) {
	h.send(w, answerReply(&pb.Answer{Status: pb.Status_STATUS_OK, Message: "alive"}, 0))
}

// history answers GET /v1/history.
func (h *Handler) history(w http.ResponseWriter, r *http.Request) {
	q := &pb.HistoryRequest{}
	target := func(set func(string)) func(string) error {
		return func(s string) error {
			if q.Target != nil {
				return errors.New("give either lock or prefix")
			}
			set(s)
			return nil
		}
	}
	if err := parameters(r, map[string]func(string) error{
		"lock":   target(func(s string) { q.Target = &pb.HistoryRequest_Lock{Lock: s} }),
		"prefix": target(func(s string) { q.Target = &pb.HistoryRequest_Prefix{Prefix: s} }),
		"token":  number(&q.Token), "at": moment(&q.AtUnixMs), "since": moment(&q.SinceUnixMs), "after_lsn": number(&q.AfterLsn),
		"before_lsn": number(&q.BeforeLsn), "before_token": number(&q.BeforeToken), "limit": count(&q.Limit),
	}); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.History(r.Context(), q)
	h.sendRead(w, r, x, err, func() any { return wire.HistoryBodyOf(x) })
}

// moment reads a time of day: as RFC 3339 has it, or in milliseconds since 1970.
func moment(p *int64) func(string) error {
	return func(s string) error {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			*p = n
			return nil
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return fmt.Errorf("%q is no time: use 2006-01-02T15:04:05Z, or milliseconds since 1970", s)
		}
		*p = t.UnixMilli()
		return nil
	}
}
