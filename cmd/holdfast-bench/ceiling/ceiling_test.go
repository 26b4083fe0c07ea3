// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

func TestMain(m *testing.M) {
	helper.Main(map[string]helper.Func{Kind: Help})
	os.Exit(m.Run())
}

// TestEveryCallIsAnswered: many callers on one connection, and on one each, and the end of the server.
func TestEveryCallIsAnswered(t *testing.T) {
	const callers, calls = 20, 50
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, connections := range []int{1, callers} {
		c, err := s.Connect(t.Context(), connections)
		if err != nil {
			t.Fatal(err)
		}
		var calling sync.WaitGroup
		for i := range callers {
			calling.Go(func() {
				l, err := c.Locker(t.Context(), i, bench.Alone)
				for range calls {
					if err == nil {
						err = errors.Join(l.Acquire(t.Context(), ""), l.(bench.Appender).Append(t.Context(), "", make([]byte, 5000)), l.Release(t.Context()))
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		calling.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := s.Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locker(t.Context(), 0, bench.Alone)
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.Acquire(context.Background(), ""); err == nil {
		t.Error("an answer without a server")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Locker(t.Context(), 0, bench.Queue); err == nil {
		t.Error("a contended lock without a lock service")
	}
}

// TestLog: what is committed stands in the file, and a full log begins again.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	one := appendRecord(nil, 1, bytes.Repeat([]byte{1}, 600<<10))
	two := appendRecord(nil, 2, bytes.Repeat([]byte{2}, 500<<10))
	if err := errors.Join(l.commit(one), l.commit(two), l.close()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || len(got) != 1<<20 || !bytes.Equal(got[:len(two)], two) || !bytes.Equal(got[len(two):len(one)], one[len(two):]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := l.commit(make([]byte, 1<<20+1)); err == nil {
		t.Error("a batch that is larger than the log")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, 7, []byte("body")))
	f.Add(appendFrame(appendFrame(nil, 1, nil), 2, []byte("x")))
	f.Add(appendFrame(nil, 7, []byte("torn"))[:10])
	f.Add(binary.LittleEndian.AppendUint32(nil, maxBody+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		var again, body []byte
		for {
			number, got, err := readFrame(r, body)
			if err != nil {
				if err == io.EOF && !bytes.Equal(again, b) {
					t.Fatalf("it ended between two frames, and %x are not %x", again, b)
				}
				return
			}
			again = appendFrame(again, number, got)
			if !bytes.HasPrefix(b, again) {
				t.Fatalf("frames %x of %x", again, b)
			}
			body = got
		}
	})
}
