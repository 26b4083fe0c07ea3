// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// contrast lists the texts that are hard to read, as WCAG 2.2 counts it (1.4.3): less than 4.5, or than 3 for large ones.
const contrast = `(() => {
	const parts = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
	const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const back = (e) => { const own = []; for (; e; e = e.parentElement) own.push(parts(getComputedStyle(e).backgroundColor)); return own.reverse().reduce((b, a) => over(a, b), [255, 255, 255, 1]); };
	const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const bad = [];
	let texts = 0;
	const root = document.querySelector("dialog[open]") ?? document.body;
	const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode());) {
		const e = n.parentElement, s = getComputedStyle(e);
		if (!n.data.trim() || !e.checkVisibility({ visibilityProperty: true }) || e.closest(".unseen, .skip, noscript")) continue;
		texts++;
		const b = back(e), f = over(parts(s.color), b), [x, y] = [light(f), light(b)].sort((p, q) => q - p);
		const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && Number(s.fontWeight) >= 700;
		const ratio = (x + 0.05) / (y + 0.05);
		if (ratio < (large ? 3 : 4.5)) bad.push(n.data.trim().slice(0, 40) + ": " + ratio.toFixed(2));
	}
	return texts < 5 ? ["only " + texts + " texts"] : bad;
})()`

// structure lists what is missing for who does not see the page.
const structure = `(() => {
	const bad = [];
	const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.innerText?.trim();
	for (const e of document.querySelectorAll("button, a[href], input, select, meter, dialog, nav")) if (e.checkVisibility() && !named(e)) bad.push("no name: " + e.outerHTML.slice(0, 100));
	for (const role of ["header", "nav", "main"]) if (document.querySelectorAll(role).length !== 1) bad.push("no one " + role);
	if (document.querySelectorAll("main h1").length !== 1) bad.push("no one h1");
	let level = 0;
	for (const h of document.querySelectorAll("main h1, main h2, main h3")) { const l = Number(h.tagName[1]); if (l > level + 1) bad.push("a level is left out at " + h.innerText); level = l; }
	for (const e of document.querySelectorAll("[aria-labelledby]")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) bad.push("labelled by nothing: " + e.outerHTML.slice(0, 100));
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	if (new Set(ids).size !== ids.length) bad.push("an ID is used twice: " + ids);
	for (const e of document.querySelectorAll("table")) if (!e.caption || !e.querySelector("thead th[scope=col]")) bad.push("a table without a caption, or heads of columns");
	if (!document.documentElement.lang || !document.title) bad.push("no language, or no title");
	if (!document.querySelector("[aria-live=polite]")) bad.push("nothing tells of changes");
	if (document.scrollingElement.scrollWidth > innerWidth) bad.push("wider than the window: " + document.scrollingElement.scrollWidth);
	for (const e of document.querySelectorAll("button, nav a")) if (e.checkVisibility() && e.getBoundingClientRect().height < 24) bad.push("too small to touch: " + e.outerHTML.slice(0, 100));
	return bad;
})()`

// TestLooks shows all views and dialogs light, dark, and on a phone: texts can be read, what can be pressed has a name, and nothing is
// wider than the screen.
func TestLooks(t *testing.T) {
	c := start(t)
	scene(t, c)
	url := "http://" + c.AwaitPrimary(cluster.Patience).Member.Client + "/"
	for _, at := range []look{desk(), night(), phone()} {
		t.Run(at.name, func(t *testing.T) {
			v := open(t, at, url)
			inspect := func(name string) {
				t.Helper()
				for what, script := range map[string]string{"contrast": contrast, "structure": structure} {
					for _, bad := range eval[[]string](v, script) {
						t.Errorf("%s, %s: %s", name, what, bad)
					}
				}
				v.shot(name)
			}
			v.until("all servers", `document.querySelectorAll("[data-server]").length === 3`)
			inspect("cluster")
			v.goes("#/locks")
			v.shows("index/readers")
			inspect("locks")
			v.goes("#/lock/backup%2Fnightly")
			v.shows("copying volume 3 of 8")
			inspect("lock")
			v.clicks(`button.danger[data-key^="break "]`)
			v.until("the dialog", `document.getElementById("break").open`)
			inspect("break")
			v.clicks("#break-close")
			eval[int](v, "scrollTo(0, document.body.scrollHeight), 1")
			v.shot("history")
			v.goes("#/files")
			v.shows("backup/nightly.log")
			inspect("files")
			v.clicks("#who")
			v.until("the dialog", `document.getElementById("credential").open`)
			inspect("credential")
		})
	}
}
