// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listening serves a trial of a directory; the returned function waits for its end.
func listening(t *testing.T, dir string) (addr string, wait func() (*Report, error)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		r   *Report
		err error
	}
	ended := make(chan result, 1)
	go func() {
		r, err := Listen(t.Context(), l, dir, Options{Holder: []string{"/proc/self/exe"}})
		ended <- result{r, err}
	}()
	return l.Addr().String(), func() (*Report, error) {
		x := <-ended
		return x.r, x.err
	}
}

func TestTwoHosts(t *testing.T) {
	t.Setenv(holderVariable, "1")
	dir := t.TempDir()
	addr, wait := listening(t, dir)
	mine, err := ExamineWith(t.Context(), dir, addr, Options{Rounds: 10, Holder: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := wait()
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Report{"caller": mine, "listener": theirs} {
		if r.Verdict == Refuse || r.Rounds != 10 || r.Staleness != "0s" {
			t.Errorf("%s: got %s after %d rounds, staleness %q", name, r.Verdict, r.Rounds, r.Staleness)
		}
		for _, check := range checks() {
			if v := verdicts(r, check); len(v) != 1 || v[0] != OK {
				t.Errorf("%s: %s: got %v: %+v", name, check, v, r.Findings)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestTwoHostsWithTwoDirectories(t *testing.T) {
	addr, wait := listening(t, t.TempDir())
	mine, err := ExamineWith(t.Context(), t.TempDir(), addr, Options{Rounds: 10})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Report{mine, theirs} {
		if v := verdicts(r, "same directory"); r.Verdict != Refuse || len(v) != 1 || v[0] != Refuse {
			t.Errorf("got %s: %+v", r.Verdict, r.Findings)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ExamineWith(t.Context(), t.TempDir(), addr, Options{}); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v", err)
	}
}

// TestListenerRefuses meets callers that are no doctors of this version.
func TestListenerRefuses(t *testing.T) {
	dir := t.TempDir()
	addr, wait := listening(t, dir)
	say := func(text string) welcome {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // nothing is in flight
		if _, err := fmt.Fprintln(conn, text); err != nil {
			t.Fatal(err)
		}
		var w welcome
		if err := json.NewDecoder(conn).Decode(&w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	for _, first := range []string{"GET / HTTP/1.1", `{"holdfast_doctor":2}`, `{}`} {
		if w := say(first); w.Error == "" || w.Dir != "" {
			t.Errorf("%s: got %+v", first, w)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("strangers made %v (%v)", left, err)
	}
	// A proper hello, and then something that no probe asks for.
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	if _, err := fmt.Fprintln(conn, `{"holdfast_doctor":1}`+"\n"+`{"call":{"op":"get","name":"../../etc/passwd"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(); err == nil || !strings.Contains(err.Error(), "bad name") {
		t.Errorf("got %v", err)
	}
	if left, err := filepath.Glob(dir + "/.*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestCallerRefuses meets a listener that names a directory of its own choice.
func TestCallerRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nobody is waiting
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, `{"holdfast_doctor":1,"dir":"../../etc"}`) //nolint:errcheck // the test sees
		}
	}()
	if _, err := ExamineWith(t.Context(), t.TempDir(), l.Addr().String(), Options{}); !errors.Is(err, errNotTrial) {
		t.Errorf("got %v", err)
	}
}

// FuzzDecodeRequest: what is accepted stays inside the directory of the trial
// and within its bounds, and reads the same when it is written again.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"call":{"op":"put","name":"names/1","data":"YWJj"}}`))
	f.Add([]byte(`{"call":{"op":"rename","name":"race/1-1","to":"race/1"}}`))
	f.Add([]byte(`{"goodbye":{"findings":[],"rounds":3,"staleness":"0s"}}`))
	f.Add([]byte(`{"call":{"op":"get","name":"../x"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		q, err := decodeRequest(line)
		if err != nil {
			return
		}
		if q.Call == nil {
			return
		}
		for _, n := range []string{q.Call.Name, q.Call.To} {
			if n != "" && (!filepath.IsLocal(n) || strings.Contains(n, "..") && filepath.Clean(n) != n) {
				t.Errorf("the name %q was accepted", n)
			}
		}
		if len(q.Call.Data) > maxData || q.Call.Offset < 0 || q.Call.Offset > maxOffset {
			t.Errorf("accepted: %d bytes at %d", len(q.Call.Data), q.Call.Offset)
		}
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeRequest(b); err != nil || again.Call.String() != q.Call.String() {
			t.Errorf("%s was read as %v, %v", b, again.Call, err)
		}
	})
}
