// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// A log segment is prepared in few large writes: a server that starts prepares its reserve, a
// claim with a segment, and the one behind it.
func TestSegmentsArePreparedInLargeWrites(t *testing.T) {
	prepareImage(t)
	if !cluster.Inside(t, "-vmlab.image="+*made) {
		return
	}
	l := New(t, ImageIn(*made), binaryIn(*made), NFS(*options))
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	if err := l.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Init(ctx); err != nil {
		t.Fatal(err)
	}
	host := l.Hosts[0]
	before := operations(ctx, t, host)["WRITE"]
	if err := l.Serve(ctx, 1); err != nil {
		t.Fatal(err)
	}
	const most = 20 << 20 // the reserve and the first segments are larger together
	began := time.Now()
	for {
		now := operations(ctx, t, host)["WRITE"]
		if sent, calls := now.sent-before.sent, now.calls-before.calls; sent > most {
			t.Logf("%d MiB in %d calls, %v after the server was started", sent>>20, calls, time.Since(began).Round(time.Second))
			if each := sent / calls; each < 64<<10 {
				t.Errorf("%d bytes in a call", each)
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d bytes were written: %v", now.sent-before.sent, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
