// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// On a network filesystem a size or a content may be old for a while: a brick
// that comes back answers before it is healed. Until it is certain, the file
// takes no appends and is not quarantined.
func TestNetworkFilesystemIsDoubtedBeforeItsFiles(t *testing.T) {
	for _, heals := range []bool{true, false} {
		name := "for good"
		if heals {
			name = "for a while"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := claimOn(t, d.Host(1, volumetest.ProfileNetwork()), 1, small(), primary.Options{MaxBatch: 8 << 10}).serving()
				defer x.end()
				lock := acquire("c1", 1, "l", 0)
				lock.TTL = 10 * time.Minute
				g := x.ok(lock)
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				if err := d.Truncate("files/f", 2); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second) // so that it is verified again
				id := cluster.RequestID(3)
				for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Second) {
					if out := x.do(appendTo("c1", id, "l", g.Token, "f", "two\n")); out.Status != cluster.StatusStorageUnavailable {
						t.Fatalf("after %v: %v", time.Since(began), out.Status)
					}
				}
				if f, _ := x.file("f"); f.Quarantined {
					t.Fatalf("quarantined at once: %s", f.Reason)
				}
				want := cluster.StatusFileQuarantined
				if heals {
					want = cluster.StatusOK
					if err := d.Write("files/f", 0, []byte("one\n")); err != nil {
						t.Fatal(err)
					}
				}
				x.eventually("the verdict", func() bool {
					out := x.do(appendTo("c1", id, "l", g.Token, "f", "two\n"))
					if out.Status != want && out.Status != cluster.StatusStorageUnavailable {
						t.Fatalf("%v, want %v", out.Status, want)
					}
					return out.Status == want
				})
			})
		})
	}
}
