// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestGuideMessages says what docs/guide.md says over WebSocket, and wants to hear what it
// says one hears. … stands for anything, TOKEN for one token.
func TestGuideMessages(t *testing.T) {
	b, err := os.ReadFile("../../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```json\n")
	script, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the guide has no messages")
	}
	c := open(t, startPrimary(t), Options{}).dial()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	token := ""
	var heard []string // what was not told of yet
	said := 0
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if m, ok := strings.CutPrefix(line, "-> "); ok {
			said++
			c.send(strings.ReplaceAll(m, "TOKEN", token))
			continue
		}
		m, ok := strings.CutPrefix(line, "<- ")
		if !ok {
			t.Fatalf("what is %q?", line)
		}
		want := regexp.QuoteMeta(m)
		want = strings.ReplaceAll(want, "…", ".*")
		if token == "" {
			want = strings.ReplaceAll(want, "TOKEN", "([0-9]+)")
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(want, "TOKEN", token) + "$")
		for i := 0; ; i++ {
			for i >= len(heard) {
				_, b, err := c.c.Read(ctx)
				if err != nil {
					t.Fatalf("%s: %v, after %q", line, err, heard)
				}
				heard = append(heard, string(b))
			}
			if found := pattern.FindStringSubmatch(heard[i]); found != nil {
				if len(found) > 1 {
					token = found[1]
				}
				heard = append(heard[:i:i], heard[i+1:]...)
				break
			}
		}
	}
	if len(heard) > 0 || said < 6 || token == "" {
		t.Errorf("heard besides: %q", heard)
	}
}
