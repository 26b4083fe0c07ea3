// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// memory is a service that remembers what was appended under which request ID.
type memory struct {
	fake
	mu *struct {
		sync.Mutex
		done map[uint64]*pb.Answer
		file bytes.Buffer
		// doubt is the request that is executed, and not answered.
		doubt uint64
	}
}

func newMemory() memory {
	m := memory{}
	m.mu = new(struct {
		sync.Mutex
		done  map[uint64]*pb.Answer
		file  bytes.Buffer
		doubt uint64
	})
	m.mu.done = map[uint64]*pb.Answer{}
	return m
}

func (m memory) Acquire(_ context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	return ok(q.GetLock(), 17), nil
}

func (m memory) FileAppend(_ context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := int64(m.mu.file.Len())
	if q.ExpectedOffset != nil && q.GetExpectedOffset() != end {
		a := refused(pb.Status_STATUS_OFFSET_MISMATCH, q.GetLock(), "")
		a.Receipt = &pb.Receipt{File: q.GetFile(), Offset: end, Generation: 1}
		return a, nil
	}
	if m.mu.done[q.GetRequestId()] == nil {
		a := ok(q.GetLock(), q.GetToken())
		a.ClientId, a.RequestId = q.GetClientId(), q.GetRequestId()
		sum := crc32.Checksum(q.GetData(), crc32.MakeTable(crc32.Castagnoli))
		a.Receipt = &pb.Receipt{File: q.GetFile(), Offset: end, Length: int64(len(q.GetData())), Crc32C: sum, Lsn: 42, Token: q.GetToken(), Epoch: 3, Generation: 1}
		m.mu.file.Write(q.GetData())
		m.mu.done[q.GetRequestId()] = a
	}
	if q.GetRequestId() == m.mu.doubt {
		return nil, &wire.Error{Status: cluster.StatusUnknown, Message: "the term ended"}
	}
	return m.mu.done[q.GetRequestId()], nil
}

func (m memory) Outcome(_ context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &pb.OutcomeResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50, State: pb.RequestState_REQUEST_STATE_NOT_SEEN}
	if a := m.mu.done[q.GetRequestId()]; a != nil {
		r.State, r.Outcome = pb.RequestState_REQUEST_STATE_EXECUTED, a
	}
	return r, nil
}

// text is what the file holds.
func (m memory) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.file.String()
}

// TestRepeatOfAnAppendIsOfTheSameData: a request ID that was used for other data, or to append
// elsewhere, is refused, as at every door of the service.
func TestRepeatOfAnAppendIsOfTheSameData(t *testing.T) {
	m := newMemory()
	addr := startService(t, m)
	for _, c := range []struct {
		name, data string
		flags      []string
		code       int
		says       string
	}{
		{"the first", "one line\n", nil, 0, "9 bytes at offset 0"},
		{"the same", "one line\n", nil, 0, "(by an earlier run)"},
		{"the same, at its offset", "one line\n", []string{"--at", "0"}, 0, "(by an earlier run)"},
		{"the same, in pieces", "one line\n", []string{"--split"}, 0, "(by an earlier run)"},
		{"longer", "one line\nand one more\n", nil, 2, "appended other data, 9 bytes at offset 0 of log"},
		{"other, as long", "two line\n", nil, 2, "appended other data"},
		{"shorter", "one", nil, 2, "appended other data"},
		{"shorter, in pieces", "one", []string{"--split"}, 2, "appended other data"},
		{"other and longer, in pieces", "two line\nand one more\n", []string{"--split"}, 2, "appended other data"},
		{"elsewhere", "one line\n", []string{"--at", "9"}, 2, "appended other data"},
	} {
		args := append([]string{"append", "-v", "a", "log", "--client-id", "c1", "--request-id", "1"}, c.flags...)
		r := run(c.data, addr, args...)
		if r.code != c.code || !strings.Contains(r.out+r.errs, c.says) {
			t.Errorf("%s: got %+v, want code %d and %q", c.name, r, c.code, c.says)
		}
		if got := m.text(); got != "one line\n" {
			t.Fatalf("%s: the file holds %q", c.name, got)
		}
	}
}

// TestRepeatOfASplitAppendThatGrew, again and again: the last piece of each run was shorter.
// What is new is appended, and what is old is not.
func TestRepeatOfASplitAppendThatGrew(t *testing.T) {
	m := newMemory()
	addr := startService(t, m)
	log := ""
	for i, more := range []int{100, 1 << 19, 0, 29, 1 << 20, 0, 3 << 19} {
		log += strings.Repeat(fmt.Sprintf("%15d\n", i), more/16+1)
		r := run(log, addr, "append", "-v", "a", "log", "--split", "--client-id", "c1", "--request-id", "1")
		if r.code != 0 || m.text() != log {
			t.Fatalf("run %d: %d bytes in the file, want %d: %+v", i, len(m.text()), len(log), r)
		}
		if want := fmt.Sprintf("log: %d bytes at offset 0", len(log)); !strings.HasPrefix(r.out, want) {
			t.Errorf("run %d says %q, want %q", i, r.out, want)
		}
	}
}

// TestPiecesGoBehindEachOther, with --at as well.
func TestPiecesGoBehindEachOther(t *testing.T) {
	m := newMemory()
	data := strings.Repeat("0123456789abcde\n", 1<<20/16*5/2)
	r := run(data, startService(t, m), "append", "-v", "a", "log", "--split", "--at", "0")
	if r.code != 0 || m.text() != data {
		t.Errorf("%d of %d bytes: %+v", len(m.text()), len(data), r)
	}
}

// TestUnknownPieceIsNamed: the request that nobody answered, and the one to repeat with, from
// which the others are counted.
func TestUnknownPieceIsNamed(t *testing.T) {
	data := strings.Repeat("0123456789abcde\n", 1<<20/16*5/2)
	for _, ids := range [][]string{nil, {"--client-id", "c1", "--request-id", "1"}} {
		m := newMemory()
		m.mu.doubt = 2
		addr := startService(t, m)
		args := append([]string{"append", "-v", "a", "log", "--split", "--timeout", "50ms"}, ids...)
		r := run(data, addr, args...)
		_, behind, _ := strings.Cut(r.errs, "--client-id ")
		client, _, _ := strings.Cut(behind, " ")
		want := []string{"after 1 pieces, up to offset 1048576: ", "--client-id " + client + " --request-id 1:", "holdfast outcome " + client + " 2\n"}
		for _, want := range want {
			if r.code != 4 || !strings.Contains(r.errs, want) {
				t.Errorf("%v: got %+v, want code 4 and %q", ids, r, want)
			}
		}
		m.mu.Lock()
		m.mu.doubt = 0
		m.mu.Unlock()
		r = run(data, addr, "append", "-v", "a", "log", "--split", "--client-id", client, "--request-id", "1")
		if r.code != 0 || m.text() != data {
			t.Errorf("%v: %d bytes of %d after the repeat: %+v", ids, len(m.text()), len(data), r)
		}
		if r = run("", addr, "outcome", client, "2"); !strings.HasPrefix(r.out, "executed") {
			t.Errorf("%v: outcome %+v", ids, r)
		}
	}
}
