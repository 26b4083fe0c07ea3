// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inNode runs the class of docs/websocket.html, and then what a test has to say, in Node.js.
func inNode(t *testing.T, script string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no Node.js here: install nodejs to have the page's script tried")
	}
	b, err := os.ReadFile("../../../docs/websocket.html")
	if err != nil {
		t.Fatal(err)
	}
	_, class, begins := strings.Cut(string(b), "<script>")
	class, _, ends := strings.Cut(class, "// What this page does with it")
	if !begins || !ends {
		t.Fatal("the page has no such script")
	}
	const socket = `globalThis.WebSocket = class { static OPEN = 1; send() {} close() {} };`
	c := exec.Command(node, "-")
	c.Stdin = strings.NewReader(class + socket + script)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// The answer to a keep-alive that a grant has overtaken says nothing of that grant: a page
// that took it for lost would not use it, and renew it for ever.
func TestPageKeepsWhatWasGrantedLater(t *testing.T) {
	got := inNode(t, `
		const h = new Holdfast(["ws://nowhere"]), lost = [];
		h.onloss = (loss) => lost.push(loss.lock);
		h.held.set("ended", 5).set("live", 7).set("later", 20);
		h.renewed({status: "OK", differs: true, lsn: 10, grants: [{lock: "live", token: 7}]});
		console.log("lost", ...lost, "held", ...h.held.keys());`)
	if want := "lost ended held live later"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
