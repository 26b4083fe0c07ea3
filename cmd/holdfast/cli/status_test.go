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
	h := healthOf(&b)
	healthText(&text, &h)
	if want := "no majority: 1 of 3 servers live, and a primary needs 2"; !strings.Contains(text.String(), want) {
		t.Errorf("got %s, want %s", &text, want)
	}
	b.Servers[1].Reachable = true
	if got := majorityText(&b); got != "" {
		t.Errorf("with two of three: %s", got)
	}
}

// The text speaks of feature levels where servers differ, as far as they are known.
func TestStatusSaysWhereFeatureLevelsDiffer(t *testing.T) {
	for want, levels := range map[string][]uint32{
		"": {2, 2, 0},
		"feature levels differ: server 1 has 2, server 2 has 1; what is new at level 2 waits until all servers are upgraded": {2, 1, 0},
	} {
		b := wire.StatusBody{ServerID: 1}
		for i, level := range levels {
			b.Servers = append(b.Servers, wire.ServerBody{ID: uint32(i + 1), FeatureLevel: level})
		}
		var text strings.Builder
		if statusText(&text, &b); want != "" && !strings.Contains(text.String(), want+"\n") || want == "" && strings.Contains(text.String(), "feature") {
			t.Errorf("levels %d: got %s", levels, &text)
		}
	}
}

// A monitor goes by the exit code: what is down, what needs care, and nothing else.
func TestHealth(t *testing.T) {
	sound := func() *wire.StatusBody {
		return &wire.StatusBody{Servers: []wire.ServerBody{
			{ID: 1, Role: "primary", Reachable: true, Able: true}, {ID: 2, Role: "replica", Reachable: true, Able: true},
			{ID: 3, Role: "replica", Reachable: true, Able: true, Volume: wire.VolumeBody{Canary: wire.CanaryBody{StaleReads: 7}}},
		}}
	}
	for what, x := range map[string]struct {
		harm func(*wire.StatusBody)
		code int
		says string
	}{
		"nothing":          {func(*wire.StatusBody) {}, 0, ""},
		"a dead replica":   {func(b *wire.StatusBody) { b.Servers[1].Role, b.Servers[1].Reachable = "unreachable", false }, 1, "server 2: does not answer"},
		"a replica":        {func(b *wire.StatusBody) { b.Servers[2].Able = false }, 1, "server 3: could not take over"},
		"a silent replica": {func(b *wire.StatusBody) { b.Servers[2].Unwaited = true }, 1, "silent"},
		"two of one ID":    {func(b *wire.StatusBody) { b.Servers[0].Conflict = true }, 1, "TWO PROCESSES"},
		"no space":         {func(b *wire.StatusBody) { b.Servers[0].Volume.Full = true }, 1, "FULL"},
		"a warning":        {func(b *wire.StatusBody) { b.Servers[0].Volume.Warnings = []string{"appends wait"} }, 1, "server 1: appends wait"},
		"nobody":           {func(b *wire.StatusBody) { b.Servers[0].Role = "replica" }, 2, ""},
		"a takeover":       {func(b *wire.StatusBody) { b.Servers[0].Role = "fencing" }, 2, ""},
		"nobody, and why": {func(b *wire.StatusBody) {
			b.Servers[0].Role, b.Servers[1].Volume.Warnings = "replica", []string{"it cannot be primary: set back"}
		}, 2, "server 2: it cannot be primary: set back"},
		"a named dead one": {func(b *wire.StatusBody) { b.Primary, b.Servers[0].Role = &wire.Primary{ID: 1}, "unreachable" }, 2, "server 1: does not answer"},
	} {
		b := sound()
		x.harm(b)
		h := healthOf(b)
		var text strings.Builder
		healthText(&text, &h)
		if h.code != x.code || !strings.Contains(text.String(), x.says) || (h.code == 0) != (text.Len() == 0) {
			t.Errorf("%s: code %d, %q", what, h.code, &text)
		}
	}
}

// When all servers know a higher level than the cluster has, status says what finishes the upgrade; not before.
func TestStatusSaysThatAnUpgradeCanBeFinished(t *testing.T) {
	b := wire.StatusBody{ServerID: 1, FeatureLevel: 3, Servers: []wire.ServerBody{{ID: 1, FeatureLevel: 4}, {ID: 2, FeatureLevel: 4}, {ID: 3, FeatureLevel: 4}}}
	const says = "the cluster has feature level 3, and all servers know 4: holdfast upgrade --finish raises it"
	for next, want := range map[uint32]bool{0: false, 4: true} {
		var text strings.Builder
		b.NextLevel = next
		statusText(&text, &b)
		if strings.Contains(text.String(), says) != want {
			t.Errorf("next level %d: %s", next, &text)
		}
	}
}
