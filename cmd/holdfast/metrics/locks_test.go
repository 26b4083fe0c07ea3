// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/metrics"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestLocks(t *testing.T) {
	read := &pb.ListLocksResponse{AgeMs: 1500, Next: "z", Locks: []*pb.Lock{
		{Name: "free"},
		{Name: `a"b`, Holders: 2, QueueLength: 3, Grant: &pb.Grant{
			Token: 7, ClientId: "secret", SinceUnixMs: 1_700_000_000_500, Metadata: "secret", Holder: &pb.Holder{Host: "secret", Command: "secret", Identity: "user:alice"},
		}},
	}}
	all := []string{
		`holdfast_lock_held{lock="a\"b"} 1`, `holdfast_lock_held{lock="free"} 0`, `holdfast_lock_holders{lock="a\"b"} 2`,
		`holdfast_lock_waiters{lock="a\"b"} 3`, `holdfast_lock_waiters{lock="free"} 0`, `holdfast_lock_held_since_timestamp_seconds{lock="a\"b"} 1.7000000005e+09`,
		"holdfast_locks_age_seconds 1.5", "holdfast_locks_left_out 1",
	}
	const holder = `holdfast_lock_holder_info{identity="user:alice",lock="a\"b"} 1`
	for _, holders := range []bool{false, true} {
		text := scrape(metrics.Locks(read, holders))
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
		for _, want := range all {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("there is no %s", want)
			}
		}
		if strings.Contains(text, holder) != holders || strings.Contains(text, "alice") != holders || strings.Contains(text, "secret") {
			t.Errorf("with holders=%t: %s", holders, text)
		}
		if n := strings.Count(text, "\nholdfast_lock_held_since"); n != 1 {
			t.Errorf("%d locks are held since some time", n)
		}
	}
}
