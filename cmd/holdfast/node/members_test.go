// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
)

// TestWhatAMemberNeeds: a server that joins has to be one process on this volume, know the cluster's level, have the state, and be able.
func TestWhatAMemberNeeds(t *testing.T) {
	want := election.Status{Epoch: 7, LSN: 100, FeatureLevel: 5, Storage: 5 * time.Second}
	for name, x := range map[string]struct {
		change func(*election.PeerStatus)
		says   string
	}{
		"all is well":        {func(*election.PeerStatus) {}, ""},
		"it has more":        {func(x *election.PeerStatus) { x.Status.LSN, x.Status.FeatureLevel = 101, 6 }, ""},
		"two processes":      {func(x *election.PeerStatus) { x.Conflict = true }, "two processes"},
		"another volume":     {func(x *election.PeerStatus) { x.Proven = false }, "not seen to write"},
		"an older binary":    {func(x *election.PeerStatus) { x.Status.FeatureLevel = 4 }, "level 4 only"},
		"less of the state":  {func(x *election.PeerStatus) { x.Status.LSN = 99 }, "up to LSN 99"},
		"of another term":    {func(x *election.PeerStatus) { x.Status.Epoch = 6 }, "of epoch 6"},
		"it could not claim": {func(x *election.PeerStatus) { x.Status.Able = false }, "could not be primary"},
		"its volume stalls":  {func(x *election.PeerStatus) { x.Status.Storage = 6 * time.Second }, "could not be primary"},
	} {
		p := election.PeerStatus{Proven: true, Status: election.Status{Epoch: 7, LSN: 100, FeatureLevel: 5, Able: true}}
		x.change(&p)
		if why := falls(&p, want); (why == "") != (x.says == "") || !strings.Contains(why, x.says) {
			t.Errorf("%s: %q, want %q", name, why, x.says)
		}
	}
}
