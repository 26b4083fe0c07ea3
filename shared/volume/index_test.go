// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// TestIndexOfATermThatEnds: a term that ends while its index is made writes nothing to it.
func TestIndexOfATermThatEnds(t *testing.T) {
	d := newDisk(t)
	x := begin(t, d, 1)
	x.host.SetHook(func(c volumetest.Call) volumetest.Action {
		if strings.HasPrefix(c.Name, "index/") {
			x.r.End(errors.New("ended meanwhile")) //nolint:errcheck // it is what Write returns
		}
		return volumetest.Proceed()
	})
	if err := x.r.IndexWriter().Write([]index.Entry{{File: "f", Generation: 1, Length: 5, LSN: 1}}); !errors.Is(err, volume.ErrDeposed) {
		t.Errorf("write: %v", err)
	}
	for name, b := range d.Files("index/") {
		if len(b) > 0 {
			t.Errorf("%s has %d bytes", name, len(b))
		}
	}
	x.kill()
}
