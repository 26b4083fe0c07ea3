// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestAdviceNamesTheFlag, where the servers name the field.
func TestAdviceNamesTheFlag(t *testing.T) {
	a := &app{command: "append"}
	for message, want := range map[string]string{
		`file "old.log" exists and is not empty; use adopt_existing`: "to take the file with what is in it, add --adopt-existing; else name another file",
		"a lock needs a name": "",
	} {
		if got := a.advice(&wire.Error{Status: cluster.StatusInvalidArgument, Message: message}); got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
}
