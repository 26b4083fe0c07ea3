// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"strconv"
	"strings"
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
	l := newLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	if err := l.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	host := l.Hosts[0]
	calls, bytes := writes(ctx, t, host)
	if err := l.Serve(ctx, 1); err != nil {
		t.Fatal(err)
	}
	const most = 20 << 20 // the reserve and the first segments are larger together
	began := time.Now()
	for {
		nowCalls, nowBytes := writes(ctx, t, host)
		if nowBytes-bytes > most {
			t.Logf("%d MiB in %d calls, %v after the server was started", (nowBytes-bytes)>>20, nowCalls-calls, time.Since(began).Round(time.Second))
			if each := (nowBytes - bytes) / (nowCalls - calls); each < 64<<10 {
				t.Errorf("%d bytes in a call", each)
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d bytes were written: %v", nowBytes-bytes, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// writes is how many WRITE calls a host has made, and with how many bytes.
func writes(ctx context.Context, t *testing.T, m *Machine) (calls, bytes int64) {
	t.Helper()
	out, err := m.Run(ctx, "grep ' WRITE: ' /proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(out) // WRITE: operations transmissions timeouts bytes-sent …
	if len(f) < 5 {
		t.Fatalf("mountstats says %q", out)
	}
	calls, err = strconv.ParseInt(f[1], 10, 64)
	if err == nil {
		bytes, err = strconv.ParseInt(f[4], 10, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return calls, bytes
}
