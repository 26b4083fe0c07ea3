// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
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

// A first page has as many live grants as were asked for, and as many that ended: no more than the limit are shown.
func TestHistoryKeepsItsLimit(t *testing.T) {
	grants := []wire.PastBody{{Token: 9}, {Token: 8}, {Token: 7, LSN: 41}, {Token: 6, LSN: 40}}
	for limit, want := range map[int]wire.HistoryBody{
		1: {NextLSN: 51, NextToken: 9},
		3: {NextLSN: 41, NextToken: 7},
		4: {NextLSN: 40, NextToken: 6},
		5: {NextLSN: 40, NextToken: 6},
	} {
		b := wire.HistoryBody{LSN: 50, Grants: slices.Clone(grants), NextLSN: 40, NextToken: 6}
		cutGrants(&b, limit)
		if len(b.Grants) != min(limit, len(grants)) || b.NextLSN != want.NextLSN || b.NextToken != want.NextToken {
			t.Errorf("limit %d: %+v, want the rest to begin before LSN %d, token %d", limit, b, want.NextLSN, want.NextToken)
		}
	}
}
