// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
)

// TestDoctorSaysWhyItWaits: also where the other side shows the progress, and on a terminal in a line of its own.
func TestDoctorSaysWhyItWaits(t *testing.T) {
	for _, x := range []struct {
		name string
		line progressLine
		want string
	}{
		{"a file", progressLine{}, "holdfast: flock, 4 rounds\nholdfast: nobody may lock yet\n"},
		{"a terminal", progressLine{live: true}, "\r\033[Kflock: 0 of 4\r\033[Kholdfast: nobody may lock yet\n"},
		{"the one that listens", progressLine{quiet: true}, "holdfast: nobody may lock yet\n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var out strings.Builder
			x.line.w = &out
			x.line.show(doctor.Progress{Check: "flock", Rounds: 4})
			x.line.say("nobody may lock yet")
			if got := out.String(); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}
