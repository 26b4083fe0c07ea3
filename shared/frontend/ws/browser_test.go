// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
)

// browser is where a Chromium lies.
func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes seconds: not in short mode")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium here: install chromium to have a real browser try the page")
	return ""
}

// show has a browser without a window show a page until the test ends.
func show(t *testing.T, binary, page string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), page)
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	// It starts others, which end with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		c.Wait()                                      //nolint:errcheck // it was told to end
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL) //nolint:errcheck // nobody may be left
	})
}

// pages is a web server of its own origin with the example page, and what that reports.
func pages(t *testing.T) (*httptest.Server, <-chan string) {
	reports := make(chan string, 100)
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir("../../../clients/javascript")))
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		reports <- string(b)
	})
	mux.HandleFunc("GET /both", func(w http.ResponseWriter, r *http.Request) {
		for _, page := range r.URL.Query()["page"] {
			fmt.Fprintf(w, "<iframe src=%q></iframe>\n", page)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s, reports
}

// reading waits for what a page reports, in any order.
func reading(t *testing.T, reports <-chan string) (wait func(want string)) {
	var heard []string
	return func(want string) {
		t.Helper()
		over := time.After(time.Minute)
		for {
			for i, x := range heard {
				if strings.HasPrefix(x, want) {
					heard = append(heard[:i:i], heard[i+1:]...)
					return
				}
			}
			select {
			case x := <-reports:
				heard = append(heard, x)
			case <-over:
				t.Fatalf("the page did not say %q, but %q", want, heard)
			}
		}
	}
}

// TestBrowser has a real browser show the example of clients/javascript. The page waits behind another
// holder, loses its connection meanwhile, is granted the lock by push, appends, watches and
// releases. A page of an origin that nobody let in gets nowhere.
func TestBrowser(t *testing.T) {
	binary := browser(t)
	b := startPrimary(t)
	good, reports := pages(t)
	evil, stolen := pages(t)
	refused := make(chan string, 100)
	first := open(t, b, Options{Pages: origins.New([]string{good.URL})}) // of pages alone
	second := open(t, b.replica(), Options{Pages: origins.New([]string{good.URL})})
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") == evil.URL {
			defer func() { refused <- r.Header.Get("Sec-Fetch-Site") }()
		}
		first.ServeHTTP(w, r)
	}))
	defer gate.Close()
	holder := open(t, b, Options{}).dial()
	held := holder.ok(`{"op":"acquire","lock":"page","ttl":"1m"}`)

	page := func(at *httptest.Server) string {
		return at.URL + "/example.html?" + url.Values{
			"ws":   {"ws://" + strings.TrimPrefix(gate.URL, "http://") + Path, "ws://" + second.addr + Path},
			"lock": {"page"}, "report": {"/report"},
		}.Encode()
	}
	show(t, binary, good.URL+"/both?"+url.Values{"page": {page(good), page(evil)}}.Encode())
	wait := reading(t, reports)
	wait("event reset")
	wait("own OK")
	wait("event enqueue")
	// The connection is cut while it waits: it comes back at the other server.
	for _, x := range first.connections() {
		x.cut()
	}
	eventually(t, "it comes back", func() bool { return len(second.connections()) > 0 })
	queue := b.held(t, "page")
	if queue.QueueLength != 1 {
		t.Errorf("%d wait", queue.QueueLength)
	}
	holder.ok(fmt.Sprintf(`{"op":"release","lock":"page","token":%d}`, held.Token))
	wait("granted OK")
	wait("appended OK at 0")
	wait("released OK")
	for range 2 {
		wait("event release") // the holder's, and its own
	}
	if got := b.file(t, "page.log"); got != "a line from a page\n" {
		t.Errorf("the file holds %q", got)
	}
	select {
	case <-refused:
	case <-time.After(time.Minute):
		t.Error("the other page never tried")
	}
	select {
	case x := <-stolen:
		t.Errorf("a page of another origin said %q", x)
	default:
	}
}
