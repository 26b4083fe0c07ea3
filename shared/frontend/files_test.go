// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// writer appends to files under one lock.
type writer struct {
	t     *testing.T
	b     *backend
	token cluster.Token
	next  cluster.RequestID
}

func newWriter(t *testing.T, b *backend) *writer {
	w := &writer{t: t, b: b}
	w.token = w.do(locktable.Request{Op: locktable.OpAcquire, TTL: time.Minute}).Token
	return w
}

func (w *writer) do(q locktable.Request) locktable.Outcome {
	w.t.Helper()
	w.next++
	q.Client, q.ID, q.Lock, q.Token = "writer", w.next, "l", w.token
	out, err := w.b.Do(w.t.Context(), &q)
	if err != nil || out.Status != cluster.StatusOK {
		w.t.Fatalf("%v of %q: %v %s, %v", q.Op, q.File, out.Status, out.Message, err)
	}
	return out
}

func (w *writer) append(file cluster.FileName, text string) {
	w.t.Helper()
	data := []byte(text)
	w.do(locktable.Request{Op: locktable.OpAppend, File: file, Data: data, CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))})
}

// rotate moves the file away and goes on with a new one.
func (w *writer) rotate(file cluster.FileName, to string) {
	w.t.Helper()
	if err := w.b.disk.Rename("files/"+string(file), "files/"+to); err != nil {
		w.t.Fatal(err)
	}
	w.do(locktable.Request{Op: locktable.OpRotate, File: file})
}

func (w *writer) op(op locktable.Op, file cluster.FileName) {
	w.t.Helper()
	w.do(locktable.Request{Op: op, File: file})
}

func TestReadFile(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("dir/f", "one\n")
	w.append("dir/f", "two\n")
	w.append("empty-soon", "x")
	w.rotate("empty-soon", "kept")
	// What stands behind the end is nobody's: it is not told.
	if err := b.disk.Write("files/dir/f", 8, []byte("foreign")); err != nil {
		t.Fatal(err)
	}
	c := dialGRPC(t, b)
	for _, test := range []struct {
		q    *pb.ReadFileRequest
		want string
		why  string // of a refusal
	}{
		{q: &pb.ReadFileRequest{File: "dir/f"}, want: "one\ntwo\n"},
		{q: &pb.ReadFileRequest{File: "dir/f", Generation: 1, Offset: 4}, want: "two\n"},
		{q: &pb.ReadFileRequest{File: "dir/f", Offset: 2, Limit: 3}, want: "e\nt"},
		{q: &pb.ReadFileRequest{File: "dir/f", Offset: 8}, want: ""},
		{q: &pb.ReadFileRequest{File: "empty-soon"}, want: ""},
		{q: &pb.ReadFileRequest{File: "dir/f", Offset: 9}, why: "OFFSET_MISMATCH offset 9 is after the end"},
		{q: &pb.ReadFileRequest{File: "dir/f", Offset: -1}, why: "INVALID_ARGUMENT offset -1 is negative"},
		{q: &pb.ReadFileRequest{File: "empty-soon", Generation: 1}, why: `INVALID_ARGUMENT file "empty-soon" is at generation 2`},
		{q: &pb.ReadFileRequest{File: "kept"}, why: `INVALID_ARGUMENT file "kept" is not bound`},
		{q: &pb.ReadFileRequest{File: "../x"}, why: "INVALID_ARGUMENT"},
	} {
		r, err := c.ReadFile(t.Context(), test.q)
		if err != nil {
			t.Errorf("%v: %v", test.q, err)
			continue
		}
		said := ""
		if r.Status != pb.Status_STATUS_OK {
			said = fmt.Sprintf("%s %s", wire.FromStatus(r.Status), r.Message)
		}
		if string(r.Data) != test.want || !strings.HasPrefix(said, test.why) || (said == "") != (test.why == "") {
			t.Errorf("%v: %q, %q", test.q, r.Data, said)
		}
		if test.why == "" && (r.Lsn == 0 || r.Epoch != 1 || r.Generation == 0 || r.Offset != test.q.Offset) {
			t.Errorf("%v: %v", test.q, r)
		}
	}
	list, err := c.ListFiles(t.Context(), &pb.ListFilesRequest{Limit: 1})
	if err != nil || len(list.Files) != 1 || list.Files[0].Name != "dir/f" || list.Files[0].End != 8 || list.Next != "dir/f" {
		t.Errorf("list: %v, %v", list, err)
	}
	list, err = c.ListFiles(t.Context(), &pb.ListFilesRequest{After: list.Next})
	if err != nil || len(list.Files) != 1 || list.Files[0].Name != "empty-soon" || list.Files[0].Generation != 2 || list.Next != "" {
		t.Errorf("the next page: %v, %v", list, err)
	}
}

// TestReadRefusesWrongBytes: what was appended last is compared with its sum, and a file
// that lost its end is not told as shorter.
func TestReadRefusesWrongBytes(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	w.append("f", "two\n")
	read := func() *pb.ReadFileResponse {
		r, err := service.New(b, service.Options{}).ReadFile(t.Context(), &pb.ReadFileRequest{File: "f"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, spoil := range []func() error{
		func() error { return b.disk.Write("files/f", 5, []byte("W")) },
		func() error { return b.disk.Truncate("files/f", 7) },
		func() error { return b.disk.Rename("files/f", "files/elsewhere") },
		func() error { return b.disk.Write("files/f", 0, []byte("one\ntwo\n")) }, // another inode
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if r := read(); r.Status != pb.Status_STATUS_STORAGE_UNAVAILABLE || len(r.Data) > 0 {
			t.Errorf("told %q, %v %s", r.Data, r.Status, r.Message)
		}
	}
}

// hanging is a file whose reads take for ever.
type hanging struct {
	serving.SharedFile
	over <-chan struct{}
}

func (h hanging) ReadAt([]byte, int64) (int, error) {
	<-h.over
	return 0, io.ErrUnexpectedEOF
}

// TestAVolumeThatHangsHoldsNobody: a read ends in time, and the server goes on.
func TestAVolumeThatHangsHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPrimary(t)
		w := newWriter(t, b)
		w.append("f", "one\n")
		over := make(chan struct{})
		defer close(over)
		b.spoil = func(f serving.SharedFile) serving.SharedFile { return hanging{f, over} }
		began := time.Now()
		r, err := service.New(b, service.Options{}).ReadFile(t.Context(), &pb.ReadFileRequest{File: "f"})
		if err != nil || r.Status != pb.Status_STATUS_STORAGE_UNAVAILABLE || time.Since(began) > 6*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(began), r, err)
		}
		w.append("f", "two\n")
	})
}

// tailer collects what a follow tells.
type tailer struct {
	t     *testing.T
	told  chan *pb.ReadFileResponse
	ended chan error
}

func follow(t *testing.T, b serving.Backend, q *pb.FollowFileRequest) *tailer {
	f := &tailer{t: t, told: make(chan *pb.ReadFileResponse), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		f.ended <- service.New(b, service.Options{}).FollowFile(ctx, q, func(r *pb.ReadFileResponse) error {
			select {
			case f.told <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(func() { stop(); <-f.ended })
	return f
}

// wants takes messages until they have said all of this; each begins where the one before ended.
func (f *tailer) wants(generation uint64, offset int64, text string) *pb.ReadFileResponse {
	f.t.Helper()
	for got := ""; ; {
		select {
		case r := <-f.told:
			got += string(r.Data)
			if r.Status != pb.Status_STATUS_OK || r.Generation != generation || r.Offset != offset || !strings.HasPrefix(text, got) {
				f.t.Fatalf("told %v, want %q at %d of generation %d", r, text, offset, generation)
			}
			if offset += int64(len(r.Data)); got == text {
				return r
			}
		case <-time.After(time.Minute):
			f.t.Fatalf("told %q, want %q", got, text)
		}
	}
}

// refused wants the follow to end with this status.
func (f *tailer) refused(status pb.Status, why string) {
	f.t.Helper()
	select {
	case r := <-f.told:
		if r.Status != status || !strings.Contains(r.Message, why) {
			f.t.Fatalf("told %v, want %v %s", r, status, why)
		}
	case <-time.After(time.Minute):
		f.t.Fatalf("it goes on, want %v %s", status, why)
	}
}

func TestFollowFile(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	start := follow(t, b, &pb.FollowFileRequest{File: "f", Offset: new(int64(0))})
	end := follow(t, b, &pb.FollowFileRequest{File: "f"})
	start.wants(1, 0, "one\n")
	end.wants(1, 4, "")
	w.append("other", "not of this file\n")
	w.append("f", "two\n")
	start.wants(1, 4, "two\n")
	// Whoever is slow still gets the end of a generation that was moved away.
	w.append("f", "three\n")
	w.op(locktable.OpSeal, "f")
	w.rotate("f", "kept")
	w.append("f", "four\n")
	for _, x := range []*tailer{start, end} {
		if x == end { // in one piece or in two
			x.wants(1, 4, "two\nthree\n")
		} else {
			x.wants(1, 8, "three\n")
		}
		var r *pb.ReadFileResponse
		for r = <-x.told; r.Generation == 1; r = <-x.told { // that it is sealed may be told, or not any more
			if len(r.Data) > 0 {
				t.Errorf("behind the end: %v", r)
			}
		}
		if r.Generation != 2 || r.Offset != 0 || !strings.HasPrefix("four\n", string(r.Data)) {
			t.Fatalf("behind the rotation: %v", r)
		}
		if len(r.Data) == 0 {
			x.wants(2, 0, "four\n")
		}
	}
	w.op(locktable.OpSeal, "f")
	if r := start.wants(2, 5, ""); !r.Sealed || r.End != 5 {
		t.Errorf("sealed: %v", r)
	}
	w.rotate("f", "kept2")
	start.wants(3, 0, "")
	w.op(locktable.OpUnbind, "f")
	start.refused(pb.Status_STATUS_INVALID_ARGUMENT, "not bound to a lock any more")
	follow(t, b, &pb.FollowFileRequest{File: "f"}).refused(pb.Status_STATUS_INVALID_ARGUMENT, "not bound")
	follow(t, b, &pb.FollowFileRequest{File: "other", Generation: 2}).refused(pb.Status_STATUS_INVALID_ARGUMENT, "is at generation 1")
	follow(t, b, &pb.FollowFileRequest{File: "other", Offset: new(int64(99))}).refused(pb.Status_STATUS_OFFSET_MISMATCH, "after the end")
	b.p.End(context.Canceled)
	follow(t, b, &pb.FollowFileRequest{File: "other"}).refused(pb.Status_STATUS_SECONDARY_MODE, "")
}

// meanwhile is a backend whose file changes hands right before one of the questions for its end.
type meanwhile struct {
	*backend
	asked  int // how many questions are left until then
	change func()
}

func (m *meanwhile) File(ctx context.Context, name cluster.FileName) (locktable.FileState, bool, serving.Reading, string, error) {
	if m.asked--; m.asked == 0 {
		m.change()
	}
	return m.backend.File(ctx, name)
}

// TestFollowOfAFileBoundAnew: another file that is bound under the name is not the one that is
// followed, and its bytes are not told as the next ones of that.
func TestFollowOfAFileBoundAnew(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	x := follow(t, &meanwhile{backend: b, asked: 2, change: func() {
		w.op(locktable.OpUnbind, "f")
		if err := b.disk.Rename("files/f", "files/elsewhere"); err != nil {
			t.Error(err)
		}
		w.append("f", "another file\n")
	}}, &pb.FollowFileRequest{File: "f", Offset: new(int64(0))})
	x.wants(1, 0, "one\n")
	w.append("f", "two\n")
	x.wants(1, 4, "two\n")
	x.refused(pb.Status_STATUS_INVALID_ARGUMENT, "not bound to a lock any more")
}

// TestFollowGoesOnInNoOtherFile: whoever comes back to a place, behind a connection that broke or
// page by page, knows its generation and offset. Of a file that was let go meanwhile and bound
// anew, no byte is told as the next one.
func TestFollowGoesOnInNoOtherFile(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	x := follow(t, b, &pb.FollowFileRequest{File: "f", Offset: new(int64(0))})
	at := x.wants(1, 0, "one\n")
	w.append("f", "two\n")
	w.op(locktable.OpUnbind, "f")
	if err := b.disk.Rename("files/f", "files/elsewhere"); err != nil {
		t.Fatal(err)
	}
	w.append("f", "ANOTHER FILE\n")
	again := follow(t, b, &pb.FollowFileRequest{File: "f", Generation: at.Generation, Offset: new(int64(4))})
	again.refused(pb.Status_STATUS_INVALID_ARGUMENT, "is at generation 2")
	r, err := service.New(b, service.Options{}).ReadFile(t.Context(), &pb.ReadFileRequest{File: "f", Generation: at.Generation, Offset: 4})
	if err != nil || r.Status != pb.Status_STATUS_INVALID_ARGUMENT {
		t.Errorf("the next page is %q of another one: %v, %v", r.GetData(), r.GetStatus(), err)
	}
	s := serveHTTP(t, b)
	var refused wire.Body
	if code, _ := s.call("GET", fmt.Sprintf("/v1/files/f?generation=%d&offset=4", at.Generation), "", &refused); code != 400 {
		t.Errorf("the next page over HTTP is of another one: %d %+v", code, refused)
	}
}

func TestHTTPFiles(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("dir/f", "one\n")
	w.append("dir/f", "two\n")
	s := serveHTTP(t, b)
	get := func(path, ranges string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ranges != "" {
			r.Header.Set("Range", ranges)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return resp, string(body)
	}
	for _, test := range []struct {
		path, ranges string
		code         int
		want         string
	}{
		{"/v1/files/dir/f", "", 200, "one\ntwo\n"},
		{"/v1/files/dir/f?offset=4&generation=1", "", 200, "two\n"},
		{"/v1/files/dir/f?offset=2&limit=3", "", 200, "e\nt"},
		{"/v1/files/dir/f?offset=8", "", 200, ""},
		{"/v1/files/dir/f", "bytes=-4", 206, "two\n"},
		{"/v1/files/dir/f", "bytes=1-2", 206, "ne"},
		{"/v1/files/dir/f?offset=9", "", 412, "OFFSET_MISMATCH"},
		{"/v1/files/dir/f?offset=-1", "", 400, "INVALID_ARGUMENT"},
		{"/v1/files/dir/f?generation=2", "", 400, "is at generation 1"},
		{"/v1/files/dir/f?follow=true&limit=1", "", 400, "has no limit"},
		{"/v1/files/none", "", 400, "not bound"},
	} {
		resp, body := get(test.path, test.ranges)
		x := resp.Header
		if resp.StatusCode != test.code || test.code < 300 && body != test.want || !strings.Contains(body, test.want) {
			t.Errorf("%s %s: %d %q", test.path, test.ranges, resp.StatusCode, body)
		}
		if test.code < 300 && (x.Get("Holdfast-Generation") != "1" || x.Get("Holdfast-End") != "8" || x.Get("Holdfast-Lsn") == "" || x.Get("Content-Type") != "application/octet-stream") {
			t.Errorf("%s: %v", test.path, x)
		}
	}
	var list wire.FilesBody
	if code, _ := s.call("GET", "/v1/files?prefix=dir/", "", &list); code != 200 || len(list.Files) != 1 || list.Files[0].End != 8 || list.Files[0].Lock != "l" {
		t.Errorf("list: %d %+v", code, list)
	}
	code, body := s.post(fmt.Sprintf("/v1/append?lock=l&token=%d&file=dir/f&expected_offset=4", w.token), "three\n")
	if code != 412 || body.Status != "OFFSET_MISMATCH" || body.Offset != 8 || body.File != "dir/f" {
		t.Errorf("append elsewhere: %d %+v", code, body)
	}
	s.ok(fmt.Sprintf("/v1/append?lock=l&token=%d&file=dir/f&expected_offset=8", w.token), "three\n")
	s.ok("/v1/seal", fmt.Sprintf(`{"lock":"l","token":%d,"file":"dir/f"}`, w.token))
	if code, body := s.post(fmt.Sprintf("/v1/append?lock=l&token=%d&file=dir/f", w.token), "x"); code != 409 || body.Status != "FILE_SEALED" || body.Offset != 14 {
		t.Errorf("append to a sealed file: %d %+v", code, body)
	}
}

// TestHTTPFileThatGrows: the tag is of the generation, so that a download goes on; a file that
// has grown is not unmodified.
func TestHTTPFileThatGrows(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	s := serveHTTP(t, b)
	get := func(header http.Header) (tag, text string, code int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/files/f", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Get("Etag"), string(body), resp.StatusCode
	}
	tag, _, _ := get(http.Header{})
	w.append("f", "two\n")
	if _, text, code := get(http.Header{"If-None-Match": {tag}}); code != 200 || text != "one\ntwo\n" {
		t.Errorf("what is new: %d %q", code, text)
	}
	if _, text, code := get(http.Header{"If-Range": {tag}, "Range": {"bytes=4-"}}); code != 206 || text != "two\n" {
		t.Errorf("the rest: %d %q", code, text)
	}
}

// TestHTTPFollow follows through a replica, which passes on what the primary sends.
func TestHTTPFollow(t *testing.T) {
	b := startPrimary(t)
	w := newWriter(t, b)
	w.append("f", "one\n")
	s := serveHTTP(t, b)
	replica := answering(locktable.Outcome{Status: cluster.StatusSecondaryMode})
	replica.self, replica.members[0].Client = 2, s.addr
	replica.elect(1, 1)
	other := serveHTTP(t, replica)
	resp, err := http.Get(other.url + "/v1/files/f?follow=true&offset=0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Holdfast-Generation") != "1" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	expect := func(text string) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != text {
			t.Fatalf("read %q, %v, want %q", got, err, text)
		}
	}
	expect("one\n")
	w.append("f", "two\n")
	expect("two\n")
	w.rotate("f", "kept")
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("behind the end: %q, %v", rest, err)
	}
	if why := resp.Trailer.Get("Holdfast-Ended"); why != "rotated: generation 2 begins" {
		t.Errorf("ended by %q", why)
	}
	if resp, err := http.Get(other.url + "/v1/files/f"); err != nil || resp.StatusCode != 200 || resp.Header.Get("Holdfast-Generation") != "2" {
		t.Errorf("read through a replica: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
}
