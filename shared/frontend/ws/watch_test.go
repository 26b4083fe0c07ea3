// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"testing"
)

// Whoever was told that a watch has ended may use its ID again, at once.
func TestTheIDOfAWatchThatEndedIsFree(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	over := b.hub.Feed(true)
	over.Begin(positionFarAhead(), 2)
	over.End("this server stops")
	for range 500 {
		c.send(`{"id":"w","op":"watch"}`)
		if x := c.answer(`"w"`); x.Status != "SECONDARY_MODE" {
			t.Fatalf("watch: %+v", x)
		}
	}
}
