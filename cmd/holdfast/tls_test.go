// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// recorder is a dialer that notes what each of its connections begins with.
type recorder struct {
	mu   sync.Mutex
	said []byte
}

func (r *recorder) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &recorded{Conn: c, r: r}, nil
}

type recorded struct {
	net.Conn
	r     *recorder
	spoke bool
}

func (c *recorded) Write(b []byte) (int, error) {
	if !c.spoke && len(b) > 0 {
		c.r.mu.Lock()
		c.r.said = append(c.r.said, b[0])
		c.r.mu.Unlock()
	}
	c.spoke = true
	return c.Conn.Write(b)
}

// wants wants at least so many connections, all of which began with this byte.
func (r *recorder) wants(t *testing.T, what string, least int, first byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.said) < least || strings.Trim(string(r.said), string(rune(first))) != "" {
		t.Errorf("%s: connections began with %q", what, r.said)
	}
}

const handshake = 0x16

// TestClientsOverTLS: a running cluster gets an authority, and then every way of a client to its servers is TLS: those
// of the library, for sessions and for streams, and those of commands.
func TestClientsOverTLS(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	plain := w.endpoints
	if r := w.try("", "join", "--volume", w.dir); r.code == 0 || !strings.Contains(r.errs, "secure offer") {
		t.Errorf("join of a volume without an authority: %+v", r)
	}
	before, err := clientlib.New(clientlib.Options{Endpoints: []string{w.dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // the end of the test
	overLibrary(t, before)
	w.do("", "secure", "offer", "--volume", w.dir)
	w.endpoints = w.dir // at once: a command waits until the servers have seen it
	w.do("", "acquire", "by-path", "--ttl", "1m")
	text := strings.TrimSpace(w.do("", "join", "--volume", w.dir))
	for _, endpoints := range []string{w.dir, text} {
		w.endpoints = endpoints
		w.do("", "status")
		w.do("", "show", "by-path")
		w.do("line\n", "append", "log", "file.txt")
		w.do("", "run", "in-run", "--", "sh", "-c", `test "$HOLDFAST_ENDPOINTS" = "`+endpoints+`" && `+os.Getenv(binaryEnv)+` renew in-run`)
		r := &recorder{}
		c, err := clientlib.New(clientlib.Options{Endpoints: []string{endpoints}, Dialer: r.dial})
		if err != nil {
			t.Fatal(err)
		}
		overLibrary(t, c)
		c.Close() //nolint:errcheck // it was used
		r.wants(t, "the library", 2, handshake)
		r = &recorder{}
		caller, err := remote.New(remote.Options{Endpoints: []string{endpoints}, Dial: r.dial})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Read(t.Context(), caller, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
			return s.Status(ctx, &pb.StatusRequest{})
		}); err != nil {
			t.Error(err)
		}
		other, err := caller.Other(w.servers[2].Client)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Read(t.Context(), other, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
			return s.Status(ctx, &pb.StatusRequest{Local: true})
		}); err != nil {
			t.Error(err)
		}
		caller.Close() //nolint:errcheck // it was used
		other.Close()  //nolint:errcheck // it was used
		r.wants(t, "a command", 2, handshake)
	}
	overLibrary(t, before) // it goes on
	w.do("", "secure", "rotate", "ca", "--volume", w.dir)
	overLibrary(t, before)
	for _, endpoints := range []string{w.dir, text, strings.TrimSpace(w.do("", "join", "--volume", w.dir))} { // at once: the servers have the new authority
		w.endpoints = endpoints
		w.do("", "show", "by-path")
	}
	w.do("", "secure", "require", "--clients", "--volume", w.dir)
	if r := w.do("", "secure", "status", "--volume", w.dir); !strings.Contains(r, "clients of other hosts are served over TLS only") {
		t.Error(r)
	}
	overLibrary(t, before)
	w.endpoints = plain
	w.do("", "show", "by-path")
}

// overLibrary uses a session and a stream.
func overLibrary(t *testing.T, c *clientlib.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := c.Acquire(ctx, "own", clientlib.AcquireOptions{Wait: clientlib.Forever})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Watch(ctx, clientlib.WatchOptions{Lock: "own"}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestWhatRefusesTLS: each way in which a client and a server do not fit has an error that says what it is.
func TestWhatRefusesTLS(t *testing.T) {
	w, other := startDev(t), startDev(t)
	w.primary(0)
	other.primary(0)
	w.do("", "secure", "offer", "--volume", w.dir)
	other.do("", "secure", "offer", "--volume", other.dir)
	text, foreign := strings.TrimSpace(w.do("", "join", "--volume", w.dir)), strings.TrimSpace(other.do("", "join", "--volume", other.dir))
	theirs, _, _ := strings.Cut(foreign, "/?pin=")
	_, pin, _ := strings.Cut(text, "/?pin=")
	bare := startDev(t)
	bare.primary(0)
	if r := bare.try("", "secure", "require", "--clients", "--volume", bare.dir); r.code == 0 || !strings.Contains(r.errs, "holdfast secure offer makes one") {
		t.Errorf("required without an authority: %+v", r)
	}
	for name, x := range map[string]struct{ endpoints, want string }{
		"a wrong pin":              {theirs + "/?pin=" + pin, "has the pin of the join string"},
		"a server without TLS":     {"holdfast://" + bare.endpoints + "/?pin=" + pin, "serves none"},
		"a join string cut off":    {text[:len(text)-1], "43 characters"},
		"a path that is no volume": {"/nowhere/at/all", "is the share mounted?"},
	} {
		w.endpoints = x.endpoints
		for _, args := range [][]string{{"status", "--timeout", "3s"}, {"run", "a", "--timeout", "3s", "--", "true"}} {
			if r := w.try("", args...); r.code == 0 || !strings.Contains(r.errs, x.want) {
				t.Errorf("%s: holdfast %s: %+v, want %q", name, args[0], r, x.want)
			}
		}
	}
}
