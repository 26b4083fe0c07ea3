// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestClusterIDOfAnyLength refuses what is not an ID, as of a damaged CLUSTER file.
func TestClusterIDOfAnyLength(t *testing.T) {
	want := strings.Repeat("0f", 16)
	for n := range 3 * len(want) {
		text := strings.Repeat("0f", 2*len(want))[:n]
		var id cluster.ID
		if err := id.UnmarshalText([]byte(text)); (err == nil) != (text == want) || err == nil && id.String() != want {
			t.Errorf("%q becomes %v, %v", text, id, err)
		}
	}
}
