// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// doubtful is a service that never answers whether it executed the first append.
type doubtful struct {
	fake
	// executes says whether it did.
	executes bool
	// forgets is set if a cancel does not find out either.
	forgets bool
	// loses is set if the file was quarantined before the append was in it.
	loses bool

	mu    sync.Mutex
	first uint64 // the request
	asked bool   // a cancel came
	file  strings.Builder
	early bool // something else was asked for before the cancel
}

func (d *doubtful) OpenClient(context.Context, *pb.OpenClientRequest) (*pb.Answer, error) {
	a := ok("", 0)
	a.ClientId = "@7"
	return a, nil
}

func (d *doubtful) FileAppend(_ context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == 0 {
		if d.first = q.GetRequestId(); d.executes {
			d.file.Write(q.GetData())
		}
	}
	if q.GetRequestId() == d.first {
		return refused(pb.Status_STATUS_UNKNOWN, q.GetLock(), "the term ended"), nil
	}
	d.early = d.early || !d.asked
	d.file.Write(q.GetData())
	a := ok(q.GetLock(), q.GetToken())
	a.ClientId, a.RequestId = q.GetClientId(), q.GetRequestId()
	a.Receipt = &pb.Receipt{File: q.GetFile(), Length: int64(len(q.GetData())), Crc32C: q.GetCrc32C(), Lsn: 43, Token: q.GetToken(), Epoch: 3, Generation: 1}
	return a, nil
}

func (d *doubtful) Cancel(_ context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = true
	switch {
	case q.GetRequestId() != d.first:
		return refused(pb.Status_STATUS_CANCELLED, "", ""), nil
	case d.loses:
		a := refused(pb.Status_STATUS_FILE_QUARANTINED, "a", "changed from outside")
		a.Committed, a.Receipt = true, &pb.Receipt{File: "log", Length: int64(d.file.Len()), Lsn: 42, Token: 17, Epoch: 3, Generation: 1}
		return a, nil
	case d.forgets:
		return refused(pb.Status_STATUS_STALE_REQUEST, "", ""), nil
	case !d.executes:
		return refused(pb.Status_STATUS_CANCELLED, "", ""), nil
	}
	a := ok("a", 17)
	a.Receipt = &pb.Receipt{File: "log", Length: int64(d.file.Len()), Lsn: 42, Token: 17, Epoch: 3, Generation: 1}
	return a, nil
}

// What became of an append is found out before its lines are appended again.
func TestStreamSettlesADoubt(t *testing.T) {
	for name, x := range map[string]struct {
		d          *doubtful
		code       int
		file, errs string
	}{
		"executed":     {d: &doubtful{executes: true}, file: "one\ntwo\n"},
		"not executed": {d: &doubtful{}, file: "one\ntwo\n"},
		"forgotten": {d: &doubtful{forgets: true, executes: true}, code: 4, file: "one\ntwo\n",
			errs: "nothing of the standard input was certainly appended to log; it is not known of the next 8 bytes"},
		"lost": {d: &doubtful{loses: true, executes: true}, code: 5, file: "one\ntwo\n",
			errs: "nothing of the standard input was certainly appended to log; it is not known of the next 8 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run("one\ntwo\n", startService(t, x.d), "append", "a", "log", "--lines", "--timeout", "300ms")
			if r.code != x.code || r.out != "" || !strings.Contains(r.errs, x.errs) {
				t.Errorf("got %+v, want code %d and %q", r, x.code, x.errs)
			}
			x.d.mu.Lock()
			defer x.d.mu.Unlock()
			if x.d.file.String() != x.file || x.d.early || !x.d.asked {
				t.Errorf("the file is %q, asked before %v, %v, want %q", x.d.file.String(), x.d.early, x.d.asked, x.file)
			}
		})
	}
}

// A stream that ends early says how much is in the file.
func TestStreamSaysHowFarItCame(t *testing.T) {
	addr := startService(t, &doubtful{first: 1 << 60})
	long := "one\ntwo\n" + strings.Repeat("x", 1<<20) + "\n"
	r := run(long, addr, "append", "a", "log", "--lines")
	for _, want := range []string{"line 3 of the standard input has more than 1048576 bytes", "the first 8 bytes of the standard input (2 lines) are certainly in log", "tail -c +9 INPUT | holdfast append --split a log"} {
		if r.code != 2 || !strings.Contains(r.errs, want) {
			t.Errorf("got %+v, want code 2 and %q", r, want)
		}
	}
	r = run(long, addr, "append", "a", "log", "--lines", "-o", "json")
	if r.code != 2 || !strings.Contains(r.out, `"status":"TOO_LARGE"`) || !strings.Contains(r.out, `"lines":2,"bytes":8`) {
		t.Errorf("got %+v", r)
	}
	r = run(long, addr, "append", "a", "log", "--lines", "--split", "-o", "json")
	if r.code != 0 || !strings.Contains(r.out, `"length":1048585,`) || !strings.Contains(r.out, `"lines":3,"batches":3`) {
		t.Errorf("got %+v", r)
	}
	const nothing = `{"status":"OK","lock":"a","file":"log","lines":0,"batches":0}` + "\n"
	if r = run("", addr, "append", "a", "log", "--lines", "-o", "json"); r.code != 0 || r.out != nothing {
		t.Errorf("of an empty input: %+v, want %s", r, nothing)
	}
}
