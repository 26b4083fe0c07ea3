// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// view is what a person's tool reads.
type view struct {
	Epoch    cluster.Epoch `json:"epoch"`
	LSN      cluster.LSN   `json:"lsn"`
	Entities []struct {
		Lock *struct {
			Name cluster.LockName `json:"name"`
		} `json:"lock"`
	} `json:"entities"`
}

func readView(t *testing.T, d *volumetest.Disk) (v view) {
	t.Helper()
	b, err := d.ReadFile("lock_state.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("lock_state.json: %v in %s", err, b)
	}
	return v
}

func (v view) locks() (names []cluster.LockName) {
	for _, e := range v.Entities {
		if e.Lock != nil {
			names = append(names, e.Lock.Name)
		}
	}
	return names
}

func TestViewsFollowTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		x.ok(acquire("c1", 1, "b", 0))
		a := x.ok(acquire("c1", 2, "a", 0))
		time.Sleep(6 * time.Second)
		if v := readView(t, d); v.Epoch != 1 || v.LSN < a.LSN || !slices.Equal(v.locks(), []cluster.LockName{"a", "b"}) {
			t.Errorf("the view: epoch %d, LSN %d, locks %v", v.Epoch, v.LSN, v.locks())
		}
		requests, err := d.ReadFile("processed_requests.log")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(requests) {
			if !json.Valid(line) {
				t.Errorf("processed_requests.log holds %q", line)
			}
		}
		x.ok(release("c1", 3, "a", a.Token))
		time.Sleep(6 * time.Second)
		if got := readView(t, d).locks(); !slices.Equal(got, []cluster.LockName{"b"}) {
			t.Errorf("after the release: %v", got)
		}
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		time.Sleep(6 * time.Second)
		if v := readView(t, d); v.Epoch != 2 {
			t.Errorf("the view is of epoch %d", v.Epoch)
		}
	})
}

func TestViewsThatAreNotTheReignsAreWrittenAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*volumetest.Disk) error
	}{
		{"removed", func(d *volumetest.Disk) error { return d.Remove("lock_state.json") }},
		{"garbage", func(d *volumetest.Disk) error { return d.Write("lock_state.json", 0, []byte("garbage\n")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				defer x.end()
				time.Sleep(6 * time.Second)
				readView(t, d)
				if err := test.spoil(d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Second)
				if v := readView(t, d); v.Epoch != 1 {
					t.Errorf("the view is of epoch %d", v.Epoch)
				}
			})
		})
	}
}
