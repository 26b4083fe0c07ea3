// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// searchWait bounds what an answer waits for the files of the share.
	searchWait = 1500 * time.Millisecond
	// searches is how many read the share at a time. One that hangs keeps its place.
	searches = 2
)

// historyQuery reads a request.
func historyQuery(q *pb.HistoryRequest) (history.Query, error) {
	x := history.Query{
		Token: cluster.Token(q.GetToken()), At: q.GetAtUnixMs(), Since: q.GetSinceUnixMs(), After: cluster.LSN(q.GetAfterLsn()),
		Before: cluster.LSN(q.GetBeforeLsn()), BeforeToken: cluster.Token(q.GetBeforeToken()), Limit: pageSize(q.GetLimit()),
	}
	switch t := q.GetTarget().(type) {
	case *pb.HistoryRequest_Lock:
		x.Lock = cluster.LockName(t.Lock)
		if err := x.Lock.Validate(); err != nil {
			return x, err
		}
	case *pb.HistoryRequest_Prefix:
		if x.Prefix = t.Prefix; len(x.Prefix) > cluster.MaxLockName {
			return x, fmt.Errorf("the prefix has more than %d bytes", cluster.MaxLockName)
		}
	default:
		return x, errors.New("name a lock, or the prefix of names; an empty prefix means all")
	}
	if x.At < 0 || x.Since < 0 {
		return x, errors.New("a time before 1970")
	}
	return x, nil
}

// history tells which grants ended.
func (s *service) history(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	x, err := historyQuery(q)
	if err != nil {
		return &pb.HistoryResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}, nil
	}
	// The table comes first: everything that it says to have ended by then is in memory
	// or in the files when they are read. What ended since is left out, because it is
	// among the live ones.
	live, more, reading, err := s.held(ctx, &x)
	if err != nil {
		return nil, err
	}
	r := &pb.HistoryResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = enough(reading, false, 0); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	h, err := s.search(ctx, x, reading.LSN)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var notes []string
	if more {
		notes = append(notes, fmt.Sprintf("there may be more live grants than these %d: ask for one lock, or for more at a time", len(live)))
	}
	switch {
	case err != nil:
		notes = append(notes, fmt.Sprintf("the files of the share were not read, so this is only what the server has in memory: %v", err))
	case h.Stopped:
		notes = append(notes, fmt.Sprintf("the time was over before all files were read: what ended up to LSN %d was not looked for", h.From))
	}
	r.Message = strings.Join(notes, "; ")
	for i := range live {
		r.Grants = append(r.Grants, convert.FromHeld(&live[i]))
	}
	fillHistory(r, &h)
	return r, nil
}

func fillHistory(r *pb.HistoryResponse, h *volume.History) {
	for i := range h.Ends {
		r.Grants = append(r.Grants, convert.FromEnd(&h.Ends[i]))
	}
	if n := len(h.Ends); h.More && n > 0 {
		r.NextLsn, r.NextToken = uint64(h.Ends[n-1].LSN), uint64(h.Ends[n-1].Token)
	}
	r.FromLsn, r.KeptLsn, r.Skipped = uint64(h.From), uint64(h.Kept), convert.FromRange(h.Skipped)
	for _, g := range h.Gaps {
		r.Gaps = append(r.Gaps, convert.FromRange(history.Skip{Range: g}))
	}
}

// held lists the live grants that match, for a first page: of a lock that is shared, all of them.
func (s *service) held(ctx context.Context, q *history.Query) (live []locktable.Grant, more bool, reading Reading, err error) {
	looks := 0
	look := func(g *locktable.Grant) bool { // false: that was enough
		if looks++; looks > maxPage {
			more = true
			return false
		}
		if g.Token != 0 && (q.Token == 0 || q.Token == g.Token) && history.Held(q.At, g.Since, 0) {
			if len(live) == q.Limit {
				more = true
				return false
			}
			live = append(live, *g)
		}
		return true
	}
	reading, err = s.b.Read(ctx, func(v primary.View) {
		switch {
		case q.Before != 0: // live ones stand on the first page
		case q.Lock != "" && q.Token != 0:
			if g, ok := v.Table.Live(q.Lock, q.Token); ok {
				look(&g)
			}
		case q.Lock != "":
			if l, ok := v.Table.Lock(q.Lock); ok {
				lookAtAll(v, &l, look)
			}
		default:
			for l := range v.Table.Locks(q.Prefix, "") {
				if !lookAtAll(v, &l, look) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, false, reading, err // the core loop may still be writing live
	}
	return live, more, reading, nil
}

// lookAtAll looks at the grants of a lock, and at a free one once.
func lookAtAll(v primary.View, l *locktable.LockView, look func(*locktable.Grant) bool) bool {
	if l.Holders < 2 {
		return look(&l.Grant)
	}
	for g := range v.Table.Grants(l.Name) {
		if !look(&g) {
			return false
		}
	}
	return true
}

var errSearches = errors.New("others are reading them, or they hang: ask again")

// search looks through memory and files. With an error it is what memory has.
func (s *service) search(ctx context.Context, q history.Query, upTo cluster.LSN) (volume.History, error) {
	recent := s.b.Recent()
	memory := func() volume.History {
		return volume.History{Past: history.Select("", q, recent, upTo).Past()} // what is kept is not known
	}
	ctx, cancel := context.WithTimeout(ctx, s.searchWait)
	defer cancel()
	select {
	case s.searches <- struct{}{}:
	case <-ctx.Done():
		return memory(), errSearches
	}
	type found struct {
		h   volume.History
		err error
	}
	answer := make(chan found, 1)
	go func() {
		defer func() { <-s.searches }()
		h, err := s.b.SearchHistory(ctx, q, recent, upTo)
		answer <- found{h, err}
	}()
	// It stops by itself when the time is over, unless the share hangs.
	hung := time.NewTimer(s.searchWait + 100*time.Millisecond)
	defer hung.Stop()
	select {
	case f := <-answer:
		return f.h, f.err
	case <-hung.C:
		return memory(), errSearches
	}
}

func (g *grpcServer) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	r, err := g.s.history(ctx, q)
	return unary(g.s, r, err)
}

// history answers GET /v1/history.
func (h *HTTP) history(w http.ResponseWriter, r *http.Request) {
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
	x, err := h.s.history(r.Context(), q)
	h.sendRead(w, x, err, func() any { return wire.HistoryBodyOf(x) })
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
