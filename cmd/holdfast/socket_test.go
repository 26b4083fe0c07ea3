// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// TestSocket: users of the server's host are known by its socket, in every protocol, and what they show counts instead.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	at := fmt.Sprintf("127.0.0.1:%d", freeBase(t))
	w := &world{t: t, dir: filepath.Join(dir, "volume"), endpoints: at, logs: &logs{}}
	daemon := newPerson(w, "daemon")
	w.do("", "init", "--volume", w.dir, "--server", "1="+at, "--policy", "strict")
	key := strings.Fields(w.do("", "key", "create", "ci", "--volume", w.dir))[0]
	path := filepath.Join(dir, "s")
	w.alone(t.TempDir(), "--unix", path)
	await(t, "the first term", func() bool { return w.try("", "status", "--timeout", "1s").code == 0 })
	w.endpoints = "unix://" + path
	if r := daemon.try("whoami"); !strings.Contains(r.out, "user:daemon (socket), of group:daemon") {
		t.Errorf("got %+v", r)
	}
	if r := daemon.try("acquire", "home/daemon/a"); r.code != 0 {
		t.Errorf("its own lock: %+v", r)
	}
	if r := daemon.try("acquire", "home/root/a"); r.code != 5 {
		t.Errorf("root's lock: %+v", r)
	}
	if r := w.try("", "whoami"); !strings.Contains(r.out, "user:root (socket)") || strings.Contains(r.out, "operator") {
		t.Errorf("got %+v", r)
	}
	overSocketHTTP(t, path, key)
	overSocketLines(t, path, key)
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{w.endpoints}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the end of the test
	if _, err := c.Acquire(t.Context(), "home/root/session", clientlib.AcquireOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Acquire(t.Context(), "home/daemon/session", clientlib.AcquireOptions{}); err == nil {
		t.Error("a session of root has daemon's lock")
	}
}

func overSocketHTTP(t *testing.T, path, key string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	for credential, want := range map[string]string{"": `"identity":"user:root"`, "Bearer " + key: `"identity":"service:ci"`, "Bearer hfk_x": "UNAUTHENTICATED"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", credential)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%.8s: %s, %v; want %s", credential, b, err, want)
		}
	}
}

func overSocketLines(t *testing.T, path, key string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for _, x := range [][2]string{{"LOCK,home/root/l,me", "SUCCESS"}, {"LOCK,service/ci/l,me", "DENIED"}, {"AUTH," + key, "SUCCESS"}, {"LOCK,service/ci/l,me", "SUCCESS"}, {"LOCK,home/root/l2,me", "DENIED"}} {
		if _, err := fmt.Fprintf(c, "%s\n", x[0]); err != nil {
			t.Fatal(err)
		}
		if said, err := r.ReadString('\n'); err != nil || strings.TrimSpace(said) != x[1] {
			t.Errorf("%.20s: %q, %v; want %s", x[0], said, err, x[1])
		}
	}
}
