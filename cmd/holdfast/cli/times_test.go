// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestTimeText(t *testing.T) {
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.FixedZone("", -7*3600))
	for _, x := range []struct {
		ago        time.Duration
		want, held string
	}{
		{0, "2026-03-29 12:00:00 -07:00 (0s ago)", "for 0s"},
		{1234 * time.Millisecond, "2026-03-29 11:59:58 -07:00 (1.2s ago)", "for 1.2s"},
		{3*time.Minute + 2400*time.Millisecond, "2026-03-29 11:56:57 -07:00 (3m2s ago)", "for 3m2s"},
		{26*time.Hour + 61*time.Minute, "2026-03-28 08:59:00 -07:00 (27h1m ago)", "for 27h1m"},
		{50 * time.Hour, "2026-03-27 10:00:00 -07:00 (2d2h ago)", "for 2d2h"},
		{-time.Second, "2026-03-29 12:00:01 -07:00", "for 0s"},
		{-time.Minute, "2026-03-29 12:01:00 -07:00 (in 1m0s)", "for 0s"},
	} {
		at := now.Add(-x.ago).UTC()
		if got := timeText(at, now); got != x.want {
			t.Errorf("%v ago is shown as %q, want %q", x.ago, got, x.want)
		}
		if got := heldText(at, now); got != x.held {
			t.Errorf("held since %v ago is shown as %q, want %q", x.ago, got, x.held)
		}
		for _, text := range []string{at.In(now.Location()).Format(timeLayout), stampText(at, now)} {
			ms, err := readTime("--at", text, time.Now())
			if d := at.Sub(time.UnixMilli(ms)); err != nil || d < 0 || d >= time.Second {
				t.Errorf("--at %q is %v off: %v", text, d, err)
			}
		}
	}
	if got := timeText(time.Time{}, now) + ", " + heldText(time.Time{}, now); got != "an unknown time, for an unknown time" {
		t.Errorf("got %q", got)
	}
}

// Every time in text goes through times.go, so that all have one form and one zone.
func TestTimesHaveOneForm(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 20 {
		t.Fatal(len(names), err)
	}
	own := regexp.MustCompile(`\.Format\(|time\.RFC3339\b`)
	// The name of dev's directory, the time of a line of a log, and what --at and --since read.
	allowed := regexp.MustCompile(`Format\("20060102-150405"\)|TimestampFieldName|time\.Parse`)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "times.go" || regexp.MustCompile(`_test\.go$`).MatchString(name) {
			continue
		}
		for _, line := range regexp.MustCompile(`(?m)^.*$`).FindAllString(string(b), -1) {
			if own.MatchString(line) && !allowed.MatchString(line) {
				t.Errorf("%s: %s: use timeText or stampText", name, line)
			}
		}
	}
}
