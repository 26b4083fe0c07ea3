// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
)

func TestTallies(t *testing.T) {
	var none *Tallies
	none.Count(TallyAuth, "key", "ok")
	if all := none.All(); all != nil {
		t.Errorf("nobody counts, and there is %v", all)
	}
	x := &Tallies{}
	x.Count(TallyAuth, "key", "ok")
	x.Count(TallyAuth, "key", "ok")
	x.Count(TallyDenied, "break", "")
	all := x.All()
	if all[Tally{TallyAuth, "key", "ok"}] != 2 || all[Tally{TallyDenied, "break", ""}] != 1 || len(all) != 2 {
		t.Errorf("counted %v", all)
	}
	x.Count(TallyDenied, "break", "")
	if all[Tally{TallyDenied, "break", ""}] != 1 {
		t.Error("what was returned changes")
	}
}

// TestMethodOf: what a client sends never becomes a word of the metrics.
func TestMethodOf(t *testing.T) {
	for credential, want := range map[string]string{"hfk_secret": "key", "hft_x.y.z": "ticket", "rubbish": "ticket", "": "none"} {
		if got := methodOf(credential, nil); got != want {
			t.Errorf("%q: %s, want %s", credential, got, want)
		}
	}
	if got := methodOf("", &access.Caller{Via: "socket"}); got != "connection" {
		t.Errorf("a connection that is known: %s", got)
	}
}
