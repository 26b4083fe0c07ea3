// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// happened is when everything happened that the fake tells of.
func happened() time.Time { return time.UnixMilli(1_700_000_000_123) }

// story is one event of each kind.
func story(lock string) []*pb.Event {
	h := &pb.Holder{Host: "h1", Pid: 99, Command: "backup"}
	all := []*pb.Event{
		{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: lock, Token: 51, ClientId: "@9", RequestId: 1, TtlMs: 30_000, Holder: h, Metadata: "at h1"},
		{Kind: pb.EventKind_EVENT_KIND_ENQUEUE, Lock: lock, ClientId: "@10", RequestId: 1, WaitMs: -1, Holder: &pb.Holder{Host: "h2", Pid: 5, Command: "sync"}},
		{Kind: pb.EventKind_EVENT_KIND_ENQUEUE, Lock: lock, ClientId: "c1", RequestId: 3, WaitMs: 5000},
		{Kind: pb.EventKind_EVENT_KIND_WAIT_TIMEOUT, Lock: lock, ClientId: "c1", RequestId: 3},
		{Kind: pb.EventKind_EVENT_KIND_CANCEL, Lock: lock, ClientId: "@10", RequestId: 1},
		{Kind: pb.EventKind_EVENT_KIND_BIND, Lock: lock, Token: 51, ClientId: "@9", File: "log", Generation: 1},
		{Kind: pb.EventKind_EVENT_KIND_APPEND, Lock: lock, Token: 51, ClientId: "@9", File: "log", Generation: 1, Offset: 100, Length: 6, Crc32C: 5},
		{Kind: pb.EventKind_EVENT_KIND_QUARANTINE, File: "log", Generation: 1, Reason: "foreign bytes at offset 7"},
		{Kind: pb.EventKind_EVENT_KIND_ROTATE, Lock: lock, Token: 51, ClientId: "@9", File: "log", Generation: 2},
		{Kind: pb.EventKind_EVENT_KIND_UNBIND, Lock: lock, Token: 51, ClientId: "@9", File: "log", Generation: 2},
		{Kind: pb.EventKind_EVENT_KIND_METADATA, Lock: lock, Token: 51, ClientId: "@9", Metadata: "at h2"},
		{Kind: pb.EventKind_EVENT_KIND_DOWNGRADE, Lock: lock, Token: 51, ClientId: "@9"},
		{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: lock, Token: 62, ClientId: "@11", RequestId: 1, TtlMs: 30_000, Mode: pb.Mode_MODE_SHARED},
		{Kind: pb.EventKind_EVENT_KIND_ASK, Lock: lock, Token: 51, ClientId: "c1", WaitMs: 1000, Actor: "ann@h9", Reason: "new disks"},
		{Kind: pb.EventKind_EVENT_KIND_BREAK, Lock: lock, Token: 51, ClientId: "c1", Actor: "ann@h9", Reason: "new disks"},
		{Kind: pb.EventKind_EVENT_KIND_EXPIRE, Lock: lock, Token: 51},
		{Kind: pb.EventKind_EVENT_KIND_RELEASE, Lock: lock, Token: 51, ClientId: "@9", RequestId: 2},
		{Kind: pb.EventKind_EVENT_KIND_FORCE_CLEAR},
		{Kind: pb.EventKind_EVENT_KIND_HANDED_OVER, Reason: "told to stop"},
		{Kind: pb.EventKind_EVENT_KIND_TERM, ServerId: 2},
	}
	for i, e := range all {
		e.Lsn, e.Epoch, e.UnixMs = uint64(51+i), 3, happened().UnixMilli()
	}
	return all
}

// Watch tells the state, in two pieces, and then of everything once; behind an LSN
// that it does not know any more, it says so.
func (fake) Watch(q *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	lock := q.GetLock()
	if lock == "" {
		lock = q.GetPrefix() + "a"
	}
	say := func(r *pb.WatchResponse) {
		r.Status, r.Epoch = pb.Status_STATUS_OK, 3
		stream.Send(r) //nolint:errcheck // then nobody is there
	}
	events := story(lock)
	if after := q.AfterLsn; after == nil || *after < 50 {
		x := &pb.Reset{Locks: []*pb.Lock{lockOf(lock), {Name: lock + "/b", QueueLength: 1}}}
		if after != nil {
			x.Reason = fmt.Sprintf("the events after LSN %d are not kept here any more", *after)
		}
		say(&pb.WatchResponse{Lsn: 50, Reset_: x})
		say(&pb.WatchResponse{Lsn: 50, Reset_: &pb.Reset{Part: 1, Last: true, Reason: x.Reason}})
	} else {
		events = events[*after-50:]
	}
	if q.GetBookmarkMs() > 0 {
		say(&pb.WatchResponse{Lsn: 50})
	}
	for _, e := range events {
		wanted := len(q.GetKinds()) == 0 && e.Kind != pb.EventKind_EVENT_KIND_APPEND
		for _, k := range q.GetKinds() {
			wanted = wanted || k == e.Kind
		}
		if wanted {
			say(&pb.WatchResponse{Lsn: e.Lsn, Events: []*pb.Event{e}})
		}
	}
	<-stream.Context().Done()
	return nil
}

// The JSON is that of the HTTP front end.
func TestWatchInJSON(t *testing.T) {
	r := run("", startFake(t), "watch", "a/b", "-o", "json", "--until", "append", "--bookmark", "1s")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || len(lines) != 3+7 {
		t.Fatalf("%+v", r)
	}
	for i, e := range story("a/b")[:7] {
		want, err := json.Marshal(wire.EventBodyOf(e))
		if err != nil || lines[3+i] != string(want) {
			t.Errorf("got  %s\nwant %s", lines[3+i], want)
		}
	}
	for i, want := range []string{`{"kind":"reset","lsn":0,`, `{"kind":"reset","lsn":50,`, `{"kind":"bookmark","lsn":50,`} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
}

// What happens is told at once, and when nobody reads any more the command ends, also
// if nothing happens.
func TestWatchInAPipe(t *testing.T) {
	addr := startFake(t)
	for _, args := range [][]string{{"watch", "a"}, {"watch", "a", "--after", "70"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- cli.Main(args, cli.Env{Stdin: strings.NewReader(""), Stdout: w, Stderr: &errs, Getenv: endpointsAt(addr)})
		}()
		if len(args) == 2 {
			lines := bufio.NewReader(r)
			for range 5 {
				if _, err := lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.Close()
		select {
		case code := <-ended:
			if code != 0 || errs.Len() > 0 {
				t.Errorf("%v: code %d, %s", args, code, errs.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v does not end", args)
		}
		w.Close()
	}
}

// failing is an output that breaks.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWatchWithoutOutput(t *testing.T) {
	addr := startFake(t)
	var errs bytes.Buffer
	code := cli.Main([]string{"watch"}, cli.Env{Stdin: strings.NewReader(""), Stdout: failing{}, Stderr: &errs, Getenv: endpointsAt(addr)})
	if code != 5 || !strings.Contains(errs.String(), "short write") {
		t.Errorf("code %d, %s", code, errs.String())
	}
}
