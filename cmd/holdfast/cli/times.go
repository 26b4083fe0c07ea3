// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"
)

// Text has times in the zone of its reader, with the offset, and says how long ago they are. JSON has RFC 3339 in UTC.

// timeLayout is how text shows a time, and stampLayout that of an event. --at and --since take both.
const (
	timeLayout  = "2006-01-02 15:04:05 -07:00"
	stampLayout = "2006-01-02 15:04:05.000 -07:00"
)

// timeText shows a time to somebody who reads it at now, in now's time zone. A zero time is not known.
func timeText(at, now time.Time) string {
	if at.IsZero() {
		return "an unknown time"
	}
	text := at.In(now.Location()).Format(timeLayout)
	switch ago := now.Sub(at); {
	case ago >= 0:
		return fmt.Sprintf("%s (%s ago)", text, spanText(ago))
	case ago > -clocksDiffer:
		return text // a primary's clock is a little ahead
	default:
		return fmt.Sprintf("%s (in %s)", text, spanText(-ago))
	}
}

// stampText is the time at the beginning of a line about an event, of which there may be many within a second.
func stampText(at, now time.Time) string { return at.In(now.Location()).Format(stampLayout) }

// slotText is a time as the name of a slot: hosts in different zones have to give it the same one.
func slotText(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// clocksDiffer is by how much clocks of two hosts may well differ.
const clocksDiffer = 2 * time.Second

// spanText shows a span of time as precisely as people want to know it.
func spanText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 2*time.Hour:
		return d.Round(time.Second).String()
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
}

// heldText shows for how long a lock has been held, such as "for 3m2s".
func heldText(since, now time.Time) string {
	if since.IsZero() {
		return "for an unknown time"
	}
	return "for " + spanText(max(0, now.Sub(since)))
}
