// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

var (
	binaryToTest = flag.String("page.binary", "", "the holdfast binary to test; empty = build it")
	shots        = flag.String("page.shots", "", "a directory that gets pictures of the views")
	pace         = flag.Bool("page.pace", false, "fail where the page halts; wants a machine that does nothing else")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run builds the binary once for all tests.
func run(m *testing.M) int {
	if *binaryToTest == "" {
		dir, err := os.MkdirTemp("", "holdfast-page")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory
		if *binaryToTest, err = cluster.Build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// start starts three servers, after it has looked for a browser.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	chromium(t)
	c := cluster.Start(t, cluster.Options{Binary: *binaryToTest})
	c.AwaitReplicas(cluster.Patience)
	return c
}

// chromium is where a Chromium lies.
func chromium(t *testing.T) string {
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

// look is how a browser shows pages.
type look struct {
	width, height int64
	dark          bool
	// name begins the names of pictures.
	name string
}

// The looks that all views are tried in.
func desk() look  { return look{1280, 800, false, "light"} }
func night() look { return look{1280, 800, true, "dark"} }
func phone() look { return look{360, 740, false, "phone"} }

// tab is a tab of a browser. What goes wrong in its scripts, or is against the policy of the page, fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
	at  look
	mu  sync.Mutex
	bad []string // what must not happen
}

// open starts a browser, and shows a page.
func open(t *testing.T, at look, url string) *tab {
	t.Helper()
	flags := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	x := &tab{t: t, ctx: ctx, at: at}
	t.Cleanup(x.judge)
	if err := chromedp.Listen(ctx, x.heard); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if at.dark {
		scheme = "dark"
	}
	command(x, log.Enable, cdp.Empty{})
	command(x, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	command(x, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: at.width, Height: at.height, DeviceScaleFactor: 1, Mobile: at.width < 500})
	do(x, chromedp.Navigate(url))
	return x
}

// command sends a command of the protocol.
func command[P any](x *tab, c cdp.Command[P, cdp.Empty], params P) {
	x.t.Helper()
	if _, err := chromedp.Call(x.ctx, c, params); err != nil {
		x.t.Fatal(err)
	}
}

// heard takes in what the browser says of the page.
func (x *tab) heard(event any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		x.bad = append(x.bad, "exception: "+said(e.ExceptionDetails.Exception, e.ExceptionDetails.Text))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError && len(e.Args) > 0 {
			x.bad = append(x.bad, "console: "+said(e.Args[0], ""))
		}
	case *log.EventEntryAdded:
		// Servers that do not answer or refuse are what tests do.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			x.bad = append(x.bad, fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
		}
	}
}

// judge fails the test if something happened that must not, and keeps a picture of a failure.
func (x *tab) judge() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, bad := range x.bad {
		x.t.Error(bad)
	}
}

// said is what an object says of itself.
func said(o *runtime.RemoteObject, text string) string {
	if o != nil {
		text += " " + o.Description
	}
	return text
}

// do has the browser do something.
func do[T any](x *tab, action chromedp.Action[T]) T {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, 2*cluster.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		x.t.Fatal(err)
	}
	return v
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](x *tab, script string) T {
	x.t.Helper()
	return do(x, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// until waits until an expression is true.
func (x *tab) until(what, script string) {
	x.t.Helper()
	if !x.becomes(cluster.Patience, script) {
		x.shot("failure")
		x.t.Fatalf("waited for %s: %s\nthe page shows: %s", what, script, eval[string](x, "document.body.innerText"))
	}
}

// becomes waits until an expression is true, and reports whether it was in time.
func (x *tab) becomes(limit time.Duration, script string) bool {
	x.t.Helper()
	return cluster.Poll(x.t.Context(), limit, func() bool { return eval[bool](x, "Boolean("+script+")") })
}

// shows waits until the view has a text.
func (x *tab) shows(text string) {
	x.t.Helper()
	x.until("the page to show "+text, fmt.Sprintf("document.getElementById('view').innerText.includes(%s)", quoted(text)))
}

// goes shows another view.
func (x *tab) goes(hash string) {
	x.t.Helper()
	eval[string](x, fmt.Sprintf("location.hash = %s", quoted(hash)))
}

// types puts text into a field.
func (x *tab) types(selector, text string) {
	x.t.Helper()
	eval[bool](x, fmt.Sprintf(`(() => { const e = document.querySelector(%s); e.focus(); e.value = ""; return e.dispatchEvent(new Event("input")); })()`, quoted(selector)))
	if text != "" {
		x.presses(text)
	}
}

// shot takes a picture of the view where pictures are wanted.
func (x *tab) shot(name string) {
	x.t.Helper()
	if *shots == "" {
		return
	}
	png := do(x, chromedp.CaptureScreenshot())
	file := filepath.Join(*shots, strings.ReplaceAll(x.t.Name(), "/", "-")+"-"+x.at.name+"-"+name+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		x.t.Error(err)
	}
}

// quoted is text as a literal of JavaScript.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// clicks clicks at an element once it is there.
func (x *tab) clicks(selector string) {
	x.t.Helper()
	do(x, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// presses presses keys, whatever has the focus.
func (x *tab) presses(keys string) {
	x.t.Helper()
	do(x, chromedp.KeyEvent(keys))
}

// expects takes out of what went wrong what a test did on purpose.
func (x *tab) expects(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bad = slices.DeleteFunc(x.bad, func(bad string) bool { return strings.Contains(bad, text) })
}
