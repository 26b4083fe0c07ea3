// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// searchWait bounds what an answer waits for the files of the volume.
	searchWait = 1500 * time.Millisecond
	// searches is how many read the volume at a time. One that hangs keeps its place.
	searches = 2
)

// historyQuery returns the query that a request asks for. Its errors are for the client.
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

// History lists the live grants that match a query, and those that ended, newest first. Where
// the files of the volume could not be read, it answers from memory and says so.
func (s *Service) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	x, err := historyQuery(q)
	if err != nil {
		return &pb.HistoryResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}, nil
	}
	allowed := s.permission(ctx)
	if x.Lock != "" {
		err = allowed.admit(ctx, access.Read, string(x.Lock), "")
	} else {
		err = allowed.admitPrefix(ctx, access.Read, x.Prefix)
	}
	if err != nil {
		status, message := answerTo(err)
		return &pb.HistoryResponse{Status: status, Message: message}, nil
	}
	if why, _ := s.own.Refuses(x.Lock, ""); why != "" {
		return &pb.HistoryResponse{Status: pb.Status(cluster.StatusWrongCell), Message: why}, nil
	}
	// The table comes first: everything that it says to have ended by then is in memory
	// or in the files when they are read. What ended since is left out, because it is
	// among the live ones.
	live, more, reading, err := s.held(ctx, &x)
	if err != nil {
		return nil, err
	}
	r := &pb.HistoryResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = checkFreshness(reading, false, 0); r.Status != pb.Status_STATUS_OK {
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
		notes = append(notes, fmt.Sprintf("the files of the volume were not read, so this is only what the server has in memory: %v", err))
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

func fillHistory(r *pb.HistoryResponse, h *historydir.Result) {
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
func (s *Service) held(ctx context.Context, q *history.Query) (live []locktable.Grant, more bool, reading serving.Reading, err error) {
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
	reading, err = s.b.Read(ctx, func(v serving.View) {
		switch {
		case q.Before != 0: // live ones stand on the first page
		case q.Lock != "" && q.Token != 0:
			if g, ok := v.Table.Live(q.Lock, q.Token); ok {
				look(&g)
			}
		case q.Lock != "":
			if l, ok := v.Table.Lock(q.Lock); ok {
				eachGrant(v, &l, look)
			}
		default:
			for l := range v.Table.Locks(q.Prefix, "") {
				if !eachGrant(v, &l, look) {
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

// eachGrant calls look with the grants of a lock, with an empty one if it is free, until look
// returns false. It reports whether look never did.
func eachGrant(v serving.View, l *locktable.LockView, look func(*locktable.Grant) bool) bool {
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

// errSearches is returned where too many searches run, or the volume hangs.
var errSearches = errors.New("history search busy or volume not responding: retry")

// search looks through memory and files. With an error, the result is what memory has.
func (s *Service) search(ctx context.Context, q history.Query, upTo cluster.LSN) (historydir.Result, error) {
	recent := s.b.Recent()
	memory := func() historydir.Result {
		return historydir.Result{Past: history.Select("", q, recent, upTo).Past()} // what is kept is not known
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.SearchWait)
	defer cancel()
	select {
	case s.searches <- struct{}{}:
	case <-ctx.Done():
		return memory(), errSearches
	}
	type found struct {
		h   historydir.Result
		err error
	}
	answer := make(chan found, 1)
	go func() {
		defer func() { <-s.searches }()
		h, err := s.b.SearchHistory(ctx, q, recent, upTo)
		answer <- found{h, err}
	}()
	// It stops by itself when the time is over, unless the volume hangs.
	hung := time.NewTimer(s.opt.SearchWait + 100*time.Millisecond)
	defer hung.Stop()
	select {
	case f := <-answer:
		return f.h, f.err
	case <-hung.C:
		return memory(), errSearches
	}
}
