// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Without a majority there is no primary, and that is the reason to tell.
func TestStatusWithoutAMajority(t *testing.T) {
	b := wire.StatusBody{ServerID: 3, Servers: []wire.ServerBody{{ID: 1, Role: "unreachable"}, {ID: 2, Role: "unreachable"}, {ID: 3, Role: "replica", Reachable: true}}}
	var text strings.Builder
	statusText(&text, &b)
	if want := "no majority: 1 of 3 servers live, and a primary needs 2"; !strings.Contains(text.String(), want) {
		t.Errorf("got %s, want %s", &text, want)
	}
	b.Servers[1].Reachable = true
	if got := majorityText(&b); got != "" {
		t.Errorf("with two of three: %s", got)
	}
}
