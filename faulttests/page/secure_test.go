// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// secured gives a cluster with two locks access rules, and returns a key of service:ci and a ticket of an operator.
func secured(t *testing.T, c *cluster.Cluster) (key, ticket string) {
	t.Helper()
	operator, err := auth.OperatorTicket(c.Dir(), "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientlib.New(clientlib.Options{Endpoints: []string{c.Dir()}, Budget: cluster.Patience, Credential: func(context.Context, string) (string, error) { return operator.Text, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() }) //nolint:errcheck // the end of the test
	for _, lock := range []string{"service/ci/build", "home/alice/secret"} {
		acquire(t, root, lock, clientlib.AcquireOptions{TTL: 5 * time.Minute, Metadata: "says " + lock})
	}
	operate(t, c, "access", "set", "--policy", "strict")
	return operate(t, c, "key", "create", "ci"), operator.Text
}

// operate runs a command on the volume, and returns the first line of what it says.
func operate(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Run(append(args, "--volume", c.Dir())...)
	if err != nil {
		t.Fatalf("holdfast %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(strings.SplitN(out, "\n", 2)[0])
}

// gives pastes a credential.
func (x *tab) gives(credential string) {
	x.t.Helper()
	x.clicks("#who")
	x.until("the dialog", `document.getElementById("credential").open`)
	x.types("#credential-text", credential)
	x.clicks("#credential button[type=submit]")
}

// TestCredential shows the page of a cluster with access rules to a stranger, to a service with a key, and to an operator with a ticket: over
// TLS, and each sees what the rules let it see. The credential stays in the tab.
func TestCredential(t *testing.T) {
	c := start(t)
	key, ticket := secured(t, c)
	v := open(t, desk(), "https://"+c.Server(2).Member.Client+"/#/locks")
	v.until("the stranger to be refused", `document.querySelector("[data-refused=UNAUTHENTICATED]")`)
	v.shot("stranger")
	v.goes("#/")
	v.until("the servers, of which everybody is told", `document.querySelectorAll("[data-server]").length === 3`)
	if text := eval[string](v, "document.body.innerText"); strings.Contains(text, "secret") || strings.Contains(text, "ext4") {
		t.Errorf("a stranger is told: %s", text)
	}
	v.gives("hfk_ci_wrong")
	v.until("the wrong key to be refused", `document.getElementById("credential-said").textContent.length > 10`)
	v.clicks("#credential [data-close].quiet")
	v.gives(key)
	v.until("the service to be known", `document.getElementById("who").textContent === "service:ci"`)
	v.goes("#/locks")
	v.shows("service/ci/build")
	v.until("no lock of others", `!document.body.innerText.includes("alice")`)
	v.until("that its events are not for it to be said", `document.getElementById("connection").dataset.state === "refused"`)
	v.types("#prefix", "service/ci/")
	v.until("its own events", `document.getElementById("connection").dataset.state === "live"`)
	v.goes("#/lock/home%2Falice%2Fsecret")
	v.until("another's lock to be refused", `document.querySelector("[data-refused=PERMISSION_DENIED]")`)
	v.shot("forbidden")
	v.goes("#/lock/service%2Fci%2Fbuild")
	v.shows("says service/ci/build")
	v.clicks(`button.danger[data-key^="break "]`)
	v.types("#break-reason", "the build hangs")
	v.clicks("#break-sure")
	eval[string](v, `document.getElementById("break-grace").value = "0s"`)
	v.clicks("#break-do")
	v.until("it to be broken", `document.getElementById("break-said").textContent === "The lock was broken."`)
	v.clicks("#break-close")
	v.shows("by service:ci: the build hangs")
	kept := eval[string](v, `JSON.stringify([location.href, document.cookie, Object.entries(localStorage), history.state, [...performance.getEntriesByType("resource")].map((e) => e.name), document.documentElement.outerHTML])`)
	if strings.Contains(kept, key) {
		t.Errorf("the key is kept: %s", kept)
	}
	if got := eval[string](v, `sessionStorage.getItem("holdfast.credential")`); got != key {
		t.Errorf("the tab keeps %q", got)
	}
	operate(t, c, "key", "revoke", "ci")
	v.until("the revoked key to be refused", `document.querySelector("[data-refused=UNAUTHENTICATED]")`)
	v.gives(ticket)
	v.goes("#/locks")
	v.shows("home/alice/secret")
	v.clicks("#who")
	v.clicks("#credential-forget")
	v.until("the stranger to be refused again", `document.querySelector("[data-refused=UNAUTHENTICATED]")`)
	if got := eval[int](v, `sessionStorage.length`); got != 0 {
		t.Errorf("%d texts are kept", got)
	}
}
