// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// client returns a client of the cluster.
func client(t *testing.T, c *cluster.Cluster) *clientlib.Client {
	t.Helper()
	x, err := clientlib.New(clientlib.Options{Endpoints: c.Endpoints(), Budget: cluster.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() }) //nolint:errcheck // the end of the test
	return x
}

// acquire acquires a lock until the end of the test.
func acquire(t *testing.T, c *clientlib.Client, lock string, o clientlib.AcquireOptions) *clientlib.Lock {
	t.Helper()
	l, err := c.Acquire(t.Context(), clientlib.LockName(lock), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, l *clientlib.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// scene makes locks of all kinds: held, waited for, shared, with files, with a past.
func scene(t *testing.T, c *cluster.Cluster) *clientlib.Client {
	t.Helper()
	x := client(t, c)
	for range 3 {
		release(t, acquire(t, x, "backup/nightly", clientlib.AcquireOptions{}))
	}
	first := acquire(t, x, "backup/nightly", clientlib.AcquireOptions{TTL: 30 * time.Second, Metadata: "copying volume 3 of 8\nuntil about 04:30"})
	if _, err := first.Append(t.Context(), "backup/nightly.log", []byte("begins\n")); err != nil {
		t.Fatal(err)
	}
	acquire(t, x, "deploy/web", clientlib.AcquireOptions{})
	for range 2 {
		acquire(t, client(t, c), "index/readers", clientlib.AcquireOptions{Shared: true})
	}
	waiter, waiting := client(t, c), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(waiting)
		waiter.Acquire(ctx, "backup/nightly", clientlib.AcquireOptions{Wait: clientlib.Forever}) //nolint:errcheck // it waits until the end
	}()
	t.Cleanup(func() { cancel(); <-waiting })
	cluster.Await(t, cluster.Patience, "a waiter", func() bool {
		out, err := c.Run("show", "backup/nightly")
		return err == nil && strings.Contains(out, "waiting 1")
	})
	return x
}

// TestViews shows all views at a primary and at a replica, and sees them change without being loaded again.
func TestViews(t *testing.T) {
	c := start(t)
	x := scene(t, c)
	primary := c.AwaitPrimary(cluster.Patience)
	for _, s := range c.Servers() {
		name := "replica"
		if s == primary {
			name = "primary"
		} else if s.Member.ID == 3 {
			continue
		}
		t.Run(name, func(t *testing.T) { views(t, x, "http://"+s.Member.Client+"/", name) })
	}
}

func views(t *testing.T, c *clientlib.Client, url, name string) {
	v := open(t, desk(), url)
	v.until("a healthy cluster", `document.querySelector("[data-health=healthy]")`)
	v.shows("Server 3")
	v.until("what each server says of its volume", `[...document.querySelectorAll("[data-server]")].every((s) => s.innerText.includes("Space left") && s.innerText.includes("Version"))`)
	v.until("a live connection", `document.getElementById("connection").dataset.state === "live"`)
	v.shot("cluster")
	v.clicks(`nav a[data-view=locks]`)
	v.shows("backup/nightly")
	v.shows("index/readers")
	v.until("a page of its own for each lock", `document.querySelectorAll("tbody tr").length >= 3`)
	v.shot("locks")
	mark := fmt.Sprintf("since/%s", name)
	eval[int](v, "window.mark = 1")
	l := acquire(t, c, mark, clientlib.AcquireOptions{Metadata: "made just now"})
	v.shows(mark)
	seenByWatch(v, c, "by-watch/"+name)
	v.clicks(fmt.Sprintf(`a[data-key="lock %s"]`, mark))
	v.until("the lock to be held", `document.querySelector("[data-state=held]")`)
	v.shows("made just now")
	v.shows("its holder is alive")
	release(t, l)
	v.until("the lock to be free", `document.querySelector("[data-state=free]")`)
	v.shows("released")
	v.until("to be told of it", `document.getElementById("said").textContent.includes("free")`)
	v.goes("#/lock/" + "backup%2Fnightly")
	v.shows("Waiting")
	v.shows("copying volume 3 of 8")
	v.until("a line of four grants", `document.querySelectorAll("ol.line li").length === 4`)
	v.until("the bars of the line to have a place", `[...document.querySelectorAll("ol.line .bar")].every((b) => b.getBoundingClientRect().width >= 1)`)
	v.shot("lock")
	// What is new does not take from its visitor what he reads or selects.
	heard := `[...document.querySelectorAll("dt")].find((e) => e.innerText === "Held for").nextSibling.innerText`
	was := eval[string](v, heard)
	eval[bool](v, `getSelection().selectAllChildren(document.querySelector("pre.said")), document.querySelector("pre.said").mark = true`)
	v.until("the view to be new", fmt.Sprintf("%s !== %s", heard, quoted(was)))
	if !eval[bool](v, `document.querySelector("pre.said").mark === true && getSelection().toString().includes("volume 3 of 8")`) {
		t.Error("the selection is lost where nothing changed")
	}
	v.goes("#/lock/" + "index%2Freaders")
	v.until("two holders", `document.querySelectorAll(".holder").length === 2`)
	v.goes("#/files")
	v.shows("backup/nightly.log")
	v.shot("files")
	if !eval[bool](v, "window.mark === 1") {
		t.Error("the page was loaded again")
	}
}

// seenByWatch makes locks that the list shows before it would be read again without an event: one in a few, for the machine may be busy.
func seenByWatch(v *tab, c *clientlib.Client, prefix string) {
	v.t.Helper()
	for i := range 5 {
		lock := fmt.Sprintf("%s/%d", prefix, i)
		defer release(v.t, acquire(v.t, c, lock, clientlib.AcquireOptions{}))
		if v.becomes(2*time.Second, fmt.Sprintf(`document.querySelector("main").innerText.includes(%s)`, quoted(lock))) {
			return
		}
	}
	v.t.Error("no new lock is shown within two seconds")
}
