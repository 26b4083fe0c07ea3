// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// cellService is the server of one of two cells. Names below pN/ are of cell N, and all others of cell 0.
type cellService struct {
	fake
	cell  uint32
	addrs *[2]string
	seen  chan string
}

func clusterOfCell(k uint32) string { return fmt.Sprintf("%032x", k+1) }

func (s *cellService) Status(ctx context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	r, err := s.fake.Status(ctx, q)
	r.ClusterId, r.Primary = clusterOfCell(s.cell), &pb.Primary{Id: 1, Client: s.addrs[s.cell]}
	r.Cell = &pb.Cell{
		SiteId: clusterOfCell(8), Cell: s.cell, Version: 1, Ranges: []*pb.CellRange{{Cell: 0}},
		Pins: []*pb.CellPin{{Prefix: "p0/", Cell: 0}, {Prefix: "p1/", Cell: 1}},
	}
	for k, addr := range s.addrs {
		r.Cells = append(r.Cells, &pb.CellServers{Cell: uint32(k), Clients: []string{addr}, ClusterId: clusterOfCell(uint32(k))})
	}
	return r, err
}

func (s *cellService) note(what string) { s.seen <- fmt.Sprintf("%s at %d", what, s.cell) }

func (s *cellService) Outcome(ctx context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	s.note("outcome")
	return s.fake.Outcome(ctx, q)
}

func (s *cellService) Cancel(ctx context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	s.note("cancel")
	return s.fake.Cancel(ctx, q)
}

func (s *cellService) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	s.note("acquire")
	return s.fake.Acquire(ctx, q)
}

// startCells returns the addresses of the servers of both cells, and what they are asked.
func startCells(t *testing.T) (addrs *[2]string, seen chan string) {
	t.Helper()
	addrs, seen = &[2]string{}, make(chan string, 99)
	for k := range addrs {
		addrs[k] = startService(t, &cellService{cell: uint32(k), addrs: addrs, seen: seen})
	}
	return addrs, seen
}

func wasSeen(seen chan string) (all []string) {
	for len(seen) > 0 {
		all = append(all, <-seen)
	}
	return all
}

// TestRequestOfASiteNeedsItsCell: any other cell does not know the request, and would say that it was not executed, and never will be.
func TestRequestOfASiteNeedsItsCell(t *testing.T) {
	addrs, seen := startCells(t)
	for _, verb := range []string{"outcome", "cancel"} {
		r := run("", addrs[0], verb, "cli-1", "7")
		if got := wasSeen(seen); r.code != 2 || got != nil || !strings.Contains(r.errs, "--lock") {
			t.Errorf("%s of a request of any cell: %+v, asked %v", verb, r, got)
		}
		run("", addrs[0], verb, "cli-1", "7", "--lock", "p1/a")
		if got := fmt.Sprint(wasSeen(seen)); got != "["+verb+" at 1]" {
			t.Errorf("%s of a request of cell 1: asked %v", verb, got)
		}
	}
}

// TestHistoryOfSeveralCellsIsRefused, or it would print an answer for each.
func TestHistoryOfSeveralCellsIsRefused(t *testing.T) {
	addrs, _ := startCells(t)
	for _, args := range [][]string{{"history", "-o", "json"}, {"history", "p", "--prefix", "-o", "json"}} {
		r := run("", addrs[0], args...)
		var one any
		if err := json.Unmarshal([]byte(r.out), &one); r.code != 2 || err != nil {
			t.Errorf("%v: code %d, %v: %s", args, r.code, err, r.out)
		}
	}
	if r := run("", addrs[0], "history", "p1/", "--prefix", "-o", "json"); r.code != 0 {
		t.Errorf("of one cell: %+v", r)
	}
}

// TestAcquireWithinARunOfASite does not wait for its own end.
func TestAcquireWithinARunOfASite(t *testing.T) {
	addrs, seen := startCells(t)
	for _, lock := range []string{"p0/a", "p1/a"} {
		var out, errs bytes.Buffer
		// The servers of cell 1 are those of the run, too: it found them as this command does.
		env := map[string]string{"HOLDFAST_LOCK": lock, "HOLDFAST_TOKEN": "17", "HOLDFAST_ENDPOINTS": addrs[0], "HOLDFAST_TOKEN_ENDPOINTS": addrs[0]}
		code := cli.Main([]string{"acquire", lock, "--wait", "60"}, cli.Env{Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] }})
		if got := wasSeen(seen); code != 1 || got != nil || !strings.Contains(errs.String(), "would wait for its own end") {
			t.Errorf("%s: code %d, asked %v: %s%s", lock, code, got, out.String(), errs.String())
		}
	}
}
