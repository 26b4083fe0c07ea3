// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// TestBreakByKeyboard finds a lock and breaks it without a mouse: with a grace first, and then at once.
func TestBreakByKeyboard(t *testing.T) {
	c := start(t)
	x := client(t, c)
	held := acquire(t, x, "stuck/job", clientlib.AcquireOptions{TTL: 5 * time.Minute})
	v := open(t, desk(), "http://"+c.Server(2).Member.Client+"/")
	v.until("a view", `document.querySelector("h1")`)
	v.tabs(`a[data-view=locks]`)
	v.presses(kb.Enter)
	v.shows("stuck/job")
	v.tabs("#prefix")
	v.presses("stuck")
	v.until("what was typed", `location.hash === "#/locks/stuck"`)
	v.tabs(`a[data-key="lock stuck/job"]`)
	v.presses(kb.Enter)
	v.until("the lock to be held", `document.querySelector("[data-state=held]")`)
	breaks := func(grace string) {
		t.Helper()
		v.tabs(`button.danger[data-key^="break "]`)
		v.presses(kb.Enter)
		v.until("the dialog", `document.getElementById("break").open && document.activeElement.id === "break-reason"`)
		v.presses(kb.Enter)
		v.until("nothing without a reason", `document.getElementById("break").open && document.getElementById("break-said").textContent === ""`)
		v.presses("its host is gone")
		v.tabs("#break-sure")
		v.presses(" ")
		v.tabs("#break-grace")
		v.presses(grace)
		v.shot("break-" + grace)
		v.tabs("#break-do")
		v.presses(kb.Enter)
	}
	breaks("1") // one of the times that begin with it
	v.until("the holder to be asked", `document.getElementById("break-said").textContent.startsWith("The holder was asked to let go.")`)
	v.until("the focus to be at what closes", `document.activeElement.id === "break-close"`)
	v.shows("Asked to let go") // behind the dialog, the button that opened it is another one by now
	v.presses(kb.Enter)
	v.until("the focus to be back", `document.activeElement.dataset.key?.startsWith("break ")`)
	v.presses(kb.Enter)
	v.until("the dialog", `document.getElementById("break").open`)
	v.presses(kb.Escape)
	cluster.Await(t, cluster.Patience, "the holder to be told", func() bool { return held.State().Asked != nil })
	breaks("n") // none
	v.until("it to be broken", `document.getElementById("break-said").textContent === "The lock was broken."`)
	v.shot("broken")
	v.presses(kb.Escape)
	v.until("the dialog to be closed", `!document.getElementById("break").open`)
	v.until("the lock to be free", `document.querySelector("[data-state=free]")`)
	v.shows("broken")
	v.shows("its host is gone")
	select {
	case <-held.Context().Done():
	case <-time.After(cluster.Patience):
		t.Error("the holder goes on")
	}
	if err := held.Release(t.Context()); err == nil || errors.Is(err, t.Context().Err()) {
		t.Errorf("a broken lock is released: %v", err)
	}
}

// tabs presses the tabulator until something has the focus, which has to be seen.
func (x *tab) tabs(selector string) {
	x.t.Helper()
	for range 60 {
		x.presses(kb.Tab)
		if !eval[bool](x, fmt.Sprintf("Boolean(document.activeElement?.matches(%s))", quoted(selector))) {
			continue
		}
		seen := eval[string](x, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle + " " + s.outlineWidth; })()`)
		if strings.HasPrefix(seen, "none") || strings.HasSuffix(seen, " 0px") {
			x.t.Errorf("that %s has the focus is not seen: %s", selector, seen)
		}
		return
	}
	x.t.Fatalf("no tabulator leads to %s: the focus is at %s", selector, eval[string](x, "document.activeElement.outerHTML"))
}
