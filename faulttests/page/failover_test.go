// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// TestFailover kills the primary while pages at another server show the cluster, and a list of locks. They show the next primary, and
// what happens under it, without being loaded again.
func TestFailover(t *testing.T) {
	c := start(t)
	x := client(t, c)
	acquire(t, x, "before", clientlib.AcquireOptions{TTL: time.Minute})
	first := c.AwaitPrimary(cluster.Patience)
	other := c.Server(first.Member.ID%3 + 1)
	url := "http://" + other.Member.Client + "/"
	overview, list := open(t, desk(), url), open(t, desk(), url+"#/locks")
	overview.until("the first primary", fmt.Sprintf(`document.querySelector("[data-server='%d'] .role").textContent === "primary"`, first.Member.ID))
	list.shows("before")
	eval[int](overview, "window.mark = 1")
	eval[int](list, "window.mark = 1")
	first.Kill()
	overview.until("another primary", fmt.Sprintf(`[...document.querySelectorAll("[data-server]:not([data-server='%d']) .role")].some((r) => r.textContent === "primary")`, first.Member.ID))
	overview.until("the dead one to be shown as such", fmt.Sprintf(`document.querySelector("[data-server='%d']").innerText.includes("does not answer")`, first.Member.ID))
	overview.until("a cluster that needs attention", `document.querySelector("[data-health=degraded]")`)
	overview.until("to be told of it", `document.getElementById("said").textContent.includes("is primary now")`)
	overview.shot("degraded")
	acquire(t, x, "after the failover", clientlib.AcquireOptions{TTL: time.Minute})
	list.shows("after the failover")
	list.until("a live connection", `document.getElementById("connection").dataset.state === "live"`)
	first.Start()
	overview.until("a healthy cluster", `document.querySelector("[data-health=healthy]")`)
	if !eval[bool](overview, "window.mark === 1") || !eval[bool](list, "window.mark === 1") {
		t.Error("a page was loaded again")
	}
}

// TestOwnServerDies kills the server that a page is from. The page says so and has links to the others, and goes on when it is back.
func TestOwnServerDies(t *testing.T) {
	c := start(t)
	x := client(t, c)
	acquire(t, x, "kept", clientlib.AcquireOptions{TTL: 10 * time.Minute})
	own := c.Server(2)
	v := open(t, desk(), "http://"+own.Member.Client+"/#/locks")
	v.shows("kept")
	v.until("to know the servers", `document.getElementById("connection-text").textContent === "Live at server 2"`)
	eval[int](v, "window.mark = 1")
	own.Kill()
	v.until("a lost connection", `document.getElementById("connection").dataset.state === "down"`)
	v.shot("down")
	v.until("what was known to stay", `document.getElementById("view").innerText.includes("kept")`)
	links := eval[[]string](v, `[...document.querySelectorAll("#connection a")].map((a) => a.href)`)
	var want []string
	for _, s := range c.Servers() {
		if s != own {
			want = append(want, "http://"+s.Member.Client+"/#/locks")
		}
	}
	if strings.Join(links, " ") != strings.Join(want, " ") {
		t.Errorf("links to %q, want %q", links, want)
	}
	own.Start()
	v.until("a live connection", `document.getElementById("connection").dataset.state === "live"`)
	acquire(t, x, "made afterwards", clientlib.AcquireOptions{TTL: time.Minute})
	v.shows("made afterwards")
	if !eval[bool](v, "window.mark === 1") {
		t.Error("the page was loaded again")
	}
}
