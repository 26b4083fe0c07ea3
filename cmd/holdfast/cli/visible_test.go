// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// hostile is what somebody may say of itself.
const hostile = "sh\x1b]0;owned\x07\x1b[2K\u009b1A\nlock: free\u202e"

// What holders say of themselves does nothing to the terminal of who looks, and looks like no
// line of ours.
func TestTextOfOthersIsHarmless(t *testing.T) {
	h := &wire.Holder{Client: "@9", Token: 7, User: hostile, Host: hostile, PID: 3, Command: hostile}
	l := wire.LockBody{Lock: "l", Token: 7, Holder: h, TTL: "30s", Ask: &wire.AskBody{Actor: hostile, Reason: hostile}, Metadata: hostile}
	g := wire.PastBody{Lock: "l", Token: 7, Host: hostile, Command: hostile, Why: "broken", Actor: hostile, Reason: hostile}
	other := g
	other.Why = "released_by_other"
	var out, errs bytes.Buffer
	a := &app{Env: Env{Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &errs}, format: formatText}
	show := func(text func(io.Writer)) func() {
		return func() { a.print(nil, text) } //nolint:errcheck // to a buffer
	}
	past := wire.HistoryBody{Grants: []wire.PastBody{g, other}}
	for what, x := range map[string]struct {
		to    *bytes.Buffer
		write func()
	}{
		"ls":      {&out, show(func(w io.Writer) { listText(w, []wire.LockBody{l}, true, time.Now()) })},
		"show":    {&out, show(func(w io.Writer) { showText(w, &l, time.Now()) })},
		"why":     {&out, show(func(w io.Writer) { whyText(w, &why.Body{Lock: l, Endings: past.Grants}, time.Now()) })},
		"files":   {&out, show(func(w io.Writer) { filesText(w, []wire.FileBody{{File: "f", Quarantined: true, Reason: hostile[:20]}}) })},
		"history": {&out, show(func(w io.Writer) { historyText(w, &past, &pb.HistoryRequest{}, time.Now()) })},
		"errors": {&errs, func() {
			a.fail(&wire.Error{Status: cluster.StatusHeld, Lock: "l", Holder: h, Message: "by " + hostile[:20]})
		}},
	} {
		x.to.Reset()
		x.write()
		if i := strings.IndexFunc(x.to.String(), func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }); i >= 0 {
			t.Errorf("%s: a character that is none of text: %q", what, x.to.String()[i:])
		}
		if strings.Contains(x.to.String(), "\nlock: free") || x.to.Len() == 0 {
			t.Errorf("%s: a line that is none of ours: %q", what, x.to)
		}
	}
	if got := wire.Visible("plain ä \n\ttext"); got != "plain ä \n\\ttext" {
		t.Errorf("got %q", got)
	}
}
