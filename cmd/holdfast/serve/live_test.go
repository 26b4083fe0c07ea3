// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A change whose certificates are not good changes nothing; another one all of it.
func TestLiveSettingsChangeTogether(t *testing.T) {
	cert, key := selfSigned(t, "a", x509.ExtKeyUsageServerAuth)
	_, otherKey := selfSigned(t, "b", x509.ExtKeyUsageServerAuth)
	dir := t.TempDir()
	for name, b := range map[string][]byte{"cert": cert, "key": key, "other": otherKey} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := NewLive(Live{PerAddress: 3})
	next := Live{PerAddress: 4, HistoryBytes: 5 << 20, TLSFiles: TLSFiles{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "other")}}
	if err := s.Change(next, []string{"bind"}); err == nil || s.perAddress() != 3 || len(s.Restart()) != 0 || s.tlsFiles() != (TLSFiles{}) {
		t.Errorf("a key of another certificate: %v, and now %+v", err, s.now.Load())
	}
	if total, age := s.historyBounds(); total != 256<<20 || age != 90*24*time.Hour {
		t.Errorf("the bounds of the history are %d and %v", total, age)
	}
	next.TLSFiles.Key = filepath.Join(dir, "key")
	if err := s.Change(next, []string{"bind"}); err != nil || s.perAddress() != 4 || !slices.Equal(s.Restart(), []string{"bind"}) || s.tlsFiles() != next.TLSFiles {
		t.Errorf("%v, and now %+v", err, s.now.Load())
	}
	if total, _ := s.historyBounds(); total != 5<<20 {
		t.Errorf("the history has %d bytes", total)
	}
	if s.Change(Live{}, nil) != nil || s.perAddress() != ConnectionsPerAddress {
		t.Errorf("the default is %d", s.perAddress())
	}
}

// Other files are looked at with the next look, and what is not named any more is not shown any more.
func TestOutsideFollowsTheSettings(t *testing.T) {
	o, put := outsideFiles(t)
	cert, key := selfSigned(t, "a", x509.ExtKeyUsageServerAuth)
	put(cert, key, cert)
	named := o.files()
	var now TLSFiles
	o.files = func() TLSFiles { return now }
	at := time.Now()
	for _, x := range []struct {
		files        TLSFiles
		leaf, client bool
	}{
		{TLSFiles{}, false, false}, {named, true, true}, {TLSFiles{Cert: named.Cert, Key: named.Key}, true, false},
		{TLSFiles{ClientCA: named.ClientCA}, false, true}, {TLSFiles{}, false, false}, {named, true, true},
	} {
		now = x.files
		at = at.Add(lookEvery)
		if _, err := o.look(at); err != nil {
			t.Errorf("%+v: %v", x.files, err)
		}
		if (o.leaf != nil) != x.leaf || (o.clients != nil) != x.client {
			t.Errorf("%+v: a certificate %v, authorities %v", x.files, o.leaf != nil, o.clients != nil)
		}
	}
}

// Requests come by the data directory, one after the other; one that says nothing, or something else, causes nothing.
func TestReloadByDataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40)) // longer than the path of a socket may be
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := AskReload(t.Context(), dir); !errors.Is(err, ErrNoControl) {
		t.Errorf("without a server: %v", err)
	}
	reloads := 0
	opt := &Options{DataDir: dir, Server: 1, Log: zerolog.New(t.Output()), Reload: func() Reloaded {
		reloads++
		return Reloaded{Changed: []string{"log-level"}, Restart: []string{"bind"}}
	}}
	for run := range 2 { // the second finds the socket of the first
		var p process
		if err := p.lock(opt); err != nil {
			t.Fatal(err)
		}
		path, done, err := short(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket: %v, %v", info, err)
		}
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("stop\n")); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("another request is answered: %d, %v", n, err)
		}
		done()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r, err := AskReload(ctx, dir)
			cancel()
			if err != nil || !slices.Equal(r.Changed, []string{"log-level"}) || !slices.Equal(r.Restart, []string{"bind"}) || r.Error != "" {
				t.Errorf("run %d: %+v, %v", run, r, err)
			}
		}
		p.unlock()
		if _, err := AskReload(t.Context(), dir); !errors.Is(err, ErrNoControl) {
			t.Errorf("after the end: %v", err)
		}
	}
	if reloads != 4 {
		t.Errorf("%d reloads", reloads)
	}
}

// A server is asked in plain text by the names that it is told, by its host's and by its address; by others it says how to tell it.
func TestNamesOfAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, false)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	full := host
	if !strings.Contains(host, ".") { // else it is not looked up
		full += ".cell.example.org"
	}
	answer := make(chan struct{})
	canonical := func(context.Context, string) (string, error) { // the DNS is slow
		<-answer
		return full + ".", nil
	}
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Names: []string{"lb.example.org"}, canonical: canonical, Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)})
	}()
	defer http.DefaultClient.CloseIdleConnections()
	await(t, m, 0, ended)
	ask := func(name string) (code int, said string) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+m.Client+"/v1/open", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		q.Host = name + ":7601"
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close() //nolint:errcheck // it is only read
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	for name, code := range map[string]int{"lb.example.org": 200, strings.ToUpper(host): 200, "localhost": 200, "127.0.0.1": 200, "evil.example": 403, host + ".evil.example": 403} {
		if got, said := ask(name); got != code || (code == 403) != strings.Contains(said, "--names "+strings.ToLower(name)) {
			t.Errorf("%s: %d %s", name, got, said)
		}
	}
	close(answer)
	for limited, cancel := context.WithTimeout(t.Context(), time.Minute); ; {
		if code, said := ask(full); code == 200 || limited.Err() != nil {
			if cancel(); code != 200 {
				t.Errorf("%s, the name with its domain: %d %s", full, code, said)
			}
			break
		}
	}
	stop(errors.New("a signal"))
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
