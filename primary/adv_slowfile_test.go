// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A filesystem that is slow does not hang: each call comes back long before one that hangs is
// given up. However many calls it takes to look at a file, it can be used.
func TestAdvASlowFileDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		var calls []string
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if strings.HasPrefix(c.Name, "files") {
				calls = append(calls, c.String())
				time.Sleep(700 * time.Millisecond)
			}
			return volumetest.Proceed()
		})
		q := appendTo("c1", 2, "l", g.Token, "logs/daily/f", "one\n")
		for i := range 5 {
			out, err := x.within(time.Minute, q)
			if err == nil && out.Status == cluster.StatusOK {
				return
			}
			x.keepAlive("c1", -1)
			t.Logf("try %d: %v %s %v", i, out.Status, out.Message, err)
			time.Sleep(time.Second)
		}
		t.Errorf("it cannot be appended to; of the calls, each of 700ms, the first are\n%s", strings.Join(calls[:min(len(calls), 14)], "\n"))
	})
}
