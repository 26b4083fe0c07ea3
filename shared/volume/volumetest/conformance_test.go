// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestConformance(t *testing.T) {
	for name, profile := range map[string]volumetest.Profile{
		"local":   volumetest.ProfileLocal(),
		"network": volumetest.ProfileNetwork(),
	} {
		t.Run(name, func(t *testing.T) {
			volumetest.Conformance(t, func(*testing.T) vfs.FS {
				return volumetest.New(1).Host(1, profile)
			})
		})
	}
}
