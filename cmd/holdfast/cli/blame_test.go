// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// pastReader has a history of grants, or none.
type pastReader struct {
	reader
	grants []*pb.PastGrant
	err    error
	asked  *pb.HistoryRequest
}

func (r *pastReader) History(_ context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	r.asked = q
	return &pb.HistoryResponse{Status: pb.Status_STATUS_OK, Grants: r.grants}, r.err
}

// TestBlameNamesHolders: the index names clients, and the history who they were.
func TestBlameNamesHolders(t *testing.T) {
	grant := func(token uint64, command string) *pb.PastGrant {
		return &pb.PastGrant{Token: token, Holder: &pb.Holder{User: "alice", Host: "h1", Pid: 9, Command: command}}
	}
	grants := []*pb.PastGrant{grant(30, "other.sh"), grant(20, "late.sh"), grant(10, "early.sh")}
	early, late := wire.BlamedPiece{Indexed: true, Token: 10, LSN: 11}, wire.BlamedPiece{Indexed: true, Token: 20, LSN: 21, Identity: "user:alice"}
	unknown, unindexed := wire.BlamedPiece{Indexed: true, Token: 5, LSN: 6, Identity: "user:bob"}, wire.BlamedPiece{}
	for name, x := range map[string]struct {
		pieces       []wire.BlamedPiece
		who          string
		after, token uint64
	}{
		"two":      {[]wire.BlamedPiece{late, early}, "alice on h1, late.sh (pid 9); alice on h1, early.sh (pid 9)", 11, 0},
		"one":      {[]wire.BlamedPiece{unindexed, early}, "-; alice on h1, early.sh (pid 9)", 11, 10},
		"not kept": {[]wire.BlamedPiece{unknown, early}, "user:bob; alice on h1, early.sh (pid 9)", 6, 0},
	} {
		b, r := &blamed{BlameBody: wire.BlameBody{Pieces: x.pieces}}, &pastReader{grants: grants}
		b.addGrants(t.Context(), r, "l")
		var who []string
		for i := range b.Pieces {
			who = append(who, b.who(&b.Pieces[i]))
		}
		if got := strings.Join(who, "; "); got != x.who || r.asked.GetAfterLsn() != x.after || r.asked.GetToken() != x.token || r.asked.GetLock() != "l" {
			t.Errorf("%s: got %q by %v, want %q", name, got, r.asked, x.who)
		}
	}
	// What cannot be found out keeps nobody from the rest.
	b, r := &blamed{BlameBody: wire.BlameBody{Message: "m", Pieces: []wire.BlamedPiece{late}}}, &pastReader{err: errors.New("no history")}
	if b.addGrants(t.Context(), r, "l"); b.who(&b.Pieces[0]) != "user:alice" || b.Message != "m; the history of lock l cannot be read, so who held it is not shown: no history" {
		t.Errorf("got %+v", b)
	}
	r.asked = nil
	if b.addGrants(t.Context(), r, ""); r.asked != nil {
		t.Errorf("a file without a lock: asked %v", r.asked)
	}
}
