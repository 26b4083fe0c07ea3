// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// hostile are names and texts of somebody who wants the page to do something.
func hostile() []string {
	return []string{
		`<img src=x onerror=window.broken=1>`,
		`"><script>window.broken=2</script>`,
		`'-window.broken=3-'`,
		`javascript:window.broken=4`,
		"${window.broken=5}{{window.broken=6}}",
		`<svg onload=window.broken=7><a href=javascript:window.broken=8>x`,
		"right\u202eto\u2066left",
		"a\u200bb\ufeffc",
		`__proto__`,
		`constructor/toString`,
		`a?b=c#d&e%2f%00`,
		strings.Repeat("W", 400),
	}
}

// TestHostileNames has locks, files, holders, metadata and reasons that would be code, were they taken for markup, addresses or
// properties. They are shown as what they are: texts.
func TestHostileNames(t *testing.T) {
	c := start(t)
	x := client(t, c)
	for i, text := range hostile() {
		held := acquire(t, x, text, clientlib.AcquireOptions{TTL: 5 * time.Minute, Metadata: text})
		if i != 7 && len(text) < 200 {
			if _, err := held.Append(t.Context(), clientlib.FileName("f-"+text), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			if err := x.Break(t.Context(), clientlib.LockName(text), clientlib.BreakOptions{Actor: text, Reason: text[:min(len(text), 200)]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := open(t, desk(), "http://"+c.Server(1).Member.Client+"/#/locks")
	v.until("all locks", fmt.Sprintf(`document.querySelectorAll("tbody tr").length >= %d`, len(hostile())-1))
	v.shot("names")
	harmless(v, "locks")
	for _, text := range hostile() {
		v.goes("#/lock/" + url.PathEscape(text))
		v.until("the name as a text", fmt.Sprintf(`document.querySelector("h1")?.textContent.startsWith(%s)`, quoted(shown(text))))
		v.until("its history", `document.querySelector("ol.line li")`)
		harmless(v, text)
	}
	v.shot("longest")
	v.goes("#/files")
	v.shows("f-<img")
	harmless(v, "files")
	for _, hash := range []string{"#/lock/%", "#/locks/%zz", "#/__proto__", "#/constructor/x", "#javascript:window.broken=9", "#/lock/"} {
		v.goes(hash)
		v.until("a view", `document.querySelector("h1")`)
		harmless(v, hash)
	}
	tried := eval[string](v, `(() => { try { document.body.innerHTML = "<b>x</b>"; return "done"; } catch (e) { return e.name; } })()`)
	if tried != "TypeError" {
		t.Errorf("markup made of text: %s", tried)
	}
	v.expects("requires 'TrustedHTML'")
}

// shown is how a text is shown.
func shown(text string) string {
	return strings.NewReplacer("\u202e", `\u{202e}`, "\u2066", `\u{2066}`, "\u200b", `\u{200b}`, "\ufeff", `\u{feff}`).Replace(text)
}

// harmless fails the test if something of a text became more than a text.
func harmless(v *tab, what string) {
	v.t.Helper()
	bad := eval[[]string](v, `[...document.querySelectorAll("main img, main svg, main script, main iframe, main object, main style, main form:not(.search)")].map((e) => e.outerHTML)
		.concat([...document.querySelectorAll("main *")].flatMap((e) => [...e.attributes]).filter((a) => /^on/.test(a.name) || /^\s*javascript:/i.test(a.value) && a.name === "href").map((a) => a.name + "=" + a.value))
		.concat([...document.querySelectorAll("main a")].filter((a) => !["http:", "https:"].includes(a.protocol)).map((a) => a.href))
		.concat(window.broken === undefined ? [] : ["code ran: " + window.broken])
		.concat(document.body.innerText.match(/[\u202a-\u202e\u2066-\u2069\u200b\ufeff]/g) ?? [])`)
	if len(bad) > 0 {
		v.t.Errorf("%q: %q", what, bad)
	}
	if wide := eval[bool](v, "document.scrollingElement.scrollWidth > innerWidth"); wide {
		v.t.Errorf("%q: the page is wider than its window", what)
	}
}
