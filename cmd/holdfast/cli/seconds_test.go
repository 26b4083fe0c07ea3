// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

// Scripts that used flock or sleep give plain seconds.
func TestDurationsTakePlainSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "0": 0, "0.5": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "5m": 5 * time.Minute, "-1s": -time.Second,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "1h30", "-5", "1e3", "0x10", ".", "1 s"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestLockOfPath(t *testing.T) {
	t.Chdir("/tmp")
	for text, want := range map[string]string{
		"nightly/backup": "nightly/backup", "/var/lock/x.lock": "var/lock/x.lock", "/var//lock/../x": "var/x", "./x.lock": "tmp/x.lock", "../srv/x": "srv/x",
	} {
		if got, err := lockOfPath(text); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := lockOfPath("/"); err == nil {
		t.Errorf("/: got %q, want an error", got)
	}
}
