// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// pieces are what a blame tells, in words.
func pieces(r *pb.BlameFileResponse) string {
	var b strings.Builder
	for _, p := range r.Pieces {
		who := "nobody"
		if p.Lsn != 0 {
			who = fmt.Sprintf("%s/%d", p.ClientId, p.RequestId)
		}
		fmt.Fprintf(&b, "[%d:+%d] %s ", p.Offset, p.Length, who)
	}
	return strings.TrimSpace(b.String())
}

func TestBlameFile(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	w.append("f", "two two\n")
	w.append("f", "three\n")
	w.append("g", "x\n")
	c := dialGRPC(t, b)
	blame := func(q *pb.BlameFileRequest) *pb.BlameFileResponse {
		t.Helper()
		r, err := c.BlameFile(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, test := range []struct {
		q    *pb.BlameFileRequest
		want string
		next int64
	}{
		{&pb.BlameFileRequest{File: "f"}, "[0:+4] writer/2 [4:+8] writer/3 [12:+6] writer/4", 0},
		{&pb.BlameFileRequest{File: "f", Offset: 5, Length: 1}, "[4:+8] writer/3", 0},
		{&pb.BlameFileRequest{File: "f", Offset: 11, Length: 2}, "[4:+8] writer/3 [12:+6] writer/4", 0},
		{&pb.BlameFileRequest{File: "f", Limit: 2}, "[0:+4] writer/2 [4:+8] writer/3", 12},
		{&pb.BlameFileRequest{File: "f", Offset: 12, Limit: 2}, "[12:+6] writer/4", 0},
		{&pb.BlameFileRequest{File: "f", Offset: 99}, "", 0},
	} {
		if r := blame(test.q); pieces(r) != test.want || r.Next != test.next || r.Status != pb.Status_STATUS_OK || r.Generation != 1 {
			t.Errorf("%v: %s, next %d, %v", test.q, pieces(r), r.Next, r)
		}
	}
	w.rotate("f", "kept")
	w.append("f", "four\n")
	if r := blame(&pb.BlameFileRequest{File: "f"}); pieces(r) != "[0:+5] writer/7" || r.Generation != 2 {
		t.Errorf("after a rotation: %v", r)
	}
	if r := blame(&pb.BlameFileRequest{File: "f", Generation: 1, Offset: 4}); pieces(r) != "[4:+8] writer/3 [12:+6] writer/4" || r.Generation != 1 {
		t.Errorf("the generation before: %v", r)
	}
	for _, q := range []*pb.BlameFileRequest{{File: "f", Generation: 3}, {File: "none"}, {File: "../x"}, {File: "f", Offset: -1}} {
		if r := blame(q); r.Status != pb.Status_STATUS_INVALID_ARGUMENT || r.Message == "" {
			t.Errorf("%v: %v", q, r)
		}
	}
	var body wire.BlameBody
	if code, _ := serveHTTP(t, b).call("GET", "/v1/blame/f?offset=2&length=1", "", &body); code != 200 || len(body.Pieces) != 1 || !body.Pieces[0].Indexed || body.Pieces[0].Time == 0 || body.Pieces[0].Token != uint64(w.token) {
		t.Errorf("%d %+v", code, body)
	}
	// What the index lost nobody wrote.
	if err := index.Remove(b.disk.Host(9, volumetest.ProfileLocal())); err != nil {
		t.Fatal(err)
	}
	if r := blame(&pb.BlameFileRequest{File: "f"}); pieces(r) != "[0:+5] nobody" {
		t.Errorf("without an index: %v", r)
	}
	w.op(locktable.OpUnbind, "g")
	if r := blame(&pb.BlameFileRequest{File: "g"}); r.Status != pb.Status_STATUS_INVALID_ARGUMENT {
		t.Errorf("a file that is not bound: %v", r)
	}
}
