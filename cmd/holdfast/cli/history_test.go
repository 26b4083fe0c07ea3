// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestReadTime(t *testing.T) {
	zone := time.FixedZone("there", 2*3600)
	now := time.Date(2026, 3, 1, 3, 10, 0, 0, zone)
	for text, want := range map[string]string{
		"2026-02-28T23:00:00Z":      "2026-02-28T23:00:00.000Z",
		"2026-02-28T23:00:00+02:00": "2026-02-28T21:00:00.000Z",
		"2026-02-28 23:00":          "2026-02-28T21:00:00.000Z",
		"2026-02-28 23:00:30":       "2026-02-28T21:00:30.000Z",
		"2026-02-28":                "2026-02-27T22:00:00.000Z",
		"03:00":                     "2026-03-01T01:00:00.000Z",
		"23:00":                     "2026-02-28T21:00:00.000Z", // last night
		"90m":                       "2026-02-28T23:40:00.000Z",
		"":                          "",
	} {
		got, err := readTime("--at", text, now)
		if err != nil || wire.Moment(got).String() != want {
			t.Errorf("%q: %s %v, want %s", text, wire.Moment(got), err, want)
		}
	}
	for _, text := range []string{"soon", "-1h", "25:00", "2026-13-01"} {
		if _, err := readTime("--at", text, now); err == nil {
			t.Errorf("%q passes for a time", text)
		}
	}
}
