// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// publish makes rules of this number's text the version that follows after.
func publish(h vfs.FS, n byte, after uint64) error {
	return volume.PublishRules(h, bytes.NewReader(bytes.Repeat([]byte{n}, 16)), after, rulesText(n))
}

// rulesText is several pages long, so that a crash can tear it.
func rulesText(n byte) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "# rules of writer %d\n", n), 500)
}

// wantRules compares the versions on a disk with the writers of them, and wants all of them complete and private.
func wantRules(t *testing.T, d *volumetest.Disk, writers ...byte) {
	t.Helper()
	h := host(d, 7)
	all, err := volume.RulesVersions(h)
	if err != nil || len(all) != len(writers) {
		t.Fatalf("versions %v, want %d (%v)", all, len(writers), err)
	}
	for i, n := range all {
		b, err := volume.ReadRules(h, n)
		if err != nil || n != uint64(i+1) || !bytes.Equal(b, rulesText(writers[i])) {
			t.Errorf("version %d has %d bytes, want those of writer %d: %v", n, len(b), writers[i], err)
		}
		if has, err := volume.HasRules(h, n); !has || err != nil {
			t.Errorf("version %d is not there: %v", n, err)
		}
		if info, err := h.Lstat(volume.RulesPath(n)); err != nil || info.Mode != 0o600 {
			t.Errorf("%s has mode %o: %v", volume.RulesPath(n), info.Mode, err)
		}
	}
	if info, err := h.Lstat("access"); len(all) > 0 && (err != nil || info.Mode != 0o700) {
		t.Errorf("access/ has mode %o: %v", info.Mode, err)
	}
	if has, err := volume.HasRules(h, uint64(len(all)+1)); has || err != nil {
		t.Errorf("version %d is there: %v", len(all)+1, err)
	}
}

func TestPublishRules(t *testing.T) {
	d := newDisk(t)
	h := host(d, 1)
	wantRules(t, d)
	for n := byte(1); n < 4; n++ {
		for _, after := range []uint64{0, 1, 2, 3, 9} { // all but the newest are refused
			if after == uint64(n-1) {
				continue
			}
			if err := publish(h, 99, after); !errors.Is(err, volume.ErrRulesChanged) {
				t.Errorf("after %d, with %d versions: %v", after, n-1, err)
			}
		}
		if err := publish(h, n, uint64(n-1)); err != nil {
			t.Fatal(err)
		}
	}
	wantRules(t, d, 1, 2, 3)
	d.Crash(nil)
	wantRules(t, d, 1, 2, 3)
	if left, err := host(d, 2).ReadDir("access"); err != nil || len(left) != 3 {
		t.Errorf("access/ has %v: %v", left, err)
	}
	if _, err := volume.ReadRules(host(d, 2), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := volume.PublishRules(host(d, 2), bytes.NewReader(nil), 3, make([]byte, volume.MaxRules+1)); !errors.Is(err, volume.ErrBadRules) {
		t.Error(err)
	}
}

// TestInterruptedPublish wants either no version or a complete one, whatever happens at each call.
func TestInterruptedPublish(t *testing.T) {
	for name, action := range interruptions() {
		for _, power := range []bool{false, true} {
			for _, before := range [][]byte{nil, {1}} {
				for n := 1; ; n++ {
					d := newDisk(t)
					if len(before) > 0 {
						if err := publish(host(d, 3), 1, 0); err != nil {
							t.Fatal(err)
						}
					}
					h := host(d, 1)
					h.SetHook(volumetest.At(n, action))
					err := publish(h, 2, uint64(len(before)))
					if h.Calls() < n {
						break
					}
					seen, seenErr := volume.RulesVersions(host(d, 4))
					if power {
						d.Crash(nil)
					}
					now, nowErr := volume.RulesVersions(host(d, 5))
					what := fmt.Sprintf("%s at call %d, power loss %v", name, n, power)
					switch {
					case seenErr != nil || nowErr != nil:
						t.Fatalf("%s: %v, %v", what, seenErr, nowErr)
					case err == nil && len(now) != len(before)+1, !power && !slices.Equal(seen, now):
						t.Errorf("%s: %v, and versions %v, then %v", what, err, seen, now)
					}
					if err := publish(host(d, 6), 3, uint64(len(now))); err != nil {
						t.Fatalf("%s: the next publisher: %v", what, err)
					}
					wantRules(t, d, append(slices.Clone(append(slices.Clone(before), 2)[:len(now)]), 3)...)
				}
			}
		}
	}
}

// TestWhatIsReadStays: a version that a reader saw is there after a power loss, even if its writer had not synced its name.
func TestWhatIsReadStays(t *testing.T) {
	d := newDisk(t)
	h := host(d, 1)
	h.SetHook(volumetest.AtOp(volumetest.OpLink, "access", 1, volumetest.CrashAfter()))
	if err := publish(h, 1, 0); err == nil {
		t.Fatal("the writer did not crash")
	}
	if _, err := volume.ReadRules(host(d, 2), 1); err != nil {
		t.Fatal(err)
	}
	d.Crash(nil)
	wantRules(t, d, 1)
}

// TestTwoPublishers: whichever call of one is followed by all of the other, and by a third.
func TestTwoPublishers(t *testing.T) {
	for n := 1; ; n++ {
		d := newDisk(t)
		h := host(d, 1)
		var otherErr error
		var once sync.Once
		h.SetHook(func(volumetest.Call) volumetest.Action {
			if h.Calls() == n {
				once.Do(func() {
					if otherErr = publish(host(d, 2), 2, 0); otherErr == nil {
						otherErr = publish(host(d, 3), 3, 1)
					}
				})
			}
			return volumetest.Proceed()
		})
		err := publish(h, 1, 0)
		if h.Calls() < n {
			break
		}
		switch {
		case errors.Is(err, volume.ErrRulesChanged) && otherErr == nil:
			wantRules(t, d, 2, 3)
		case err == nil && errors.Is(otherErr, volume.ErrRulesChanged):
			wantRules(t, d, 1)
		default:
			t.Errorf("at call %d: %v, %v", n, err, otherErr)
		}
	}
}

func TestExposedRulesAreRefused(t *testing.T) {
	for _, name := range []string{"access", volume.RulesPath(1)} {
		d := newDisk(t)
		if err := publish(host(d, 1), 1, 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Expose(name); err != nil {
			t.Fatal(err)
		}
		if _, err := volume.ReadRules(host(d, 1), 1); !errors.Is(err, volume.ErrExposed) || !errors.Is(err, volume.ErrBadRules) || !strings.Contains(err.Error(), "type: chmod -R go= DIR/access") {
			t.Errorf("%s is exposed: %v", name, err)
		}
	}
}

func TestOversizeRulesAreRefused(t *testing.T) {
	d := newDisk(t)
	if err := publish(host(d, 1), 1, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Truncate(volume.RulesPath(1), volume.MaxRules+1); err != nil {
		t.Fatal(err)
	}
	if _, err := volume.ReadRules(host(d, 1), 1); !errors.Is(err, volume.ErrBadRules) {
		t.Error(err)
	}
}

func TestNamesThatAreNoRules(t *testing.T) {
	d := newDisk(t)
	if err := publish(host(d, 1), 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0000000000.toml", "2.toml", "0000000002", "0000000002.toml.tmp", "+000000002.toml", "00000000002.toml"} {
		if err := d.Write("access/"+name, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	wantRules(t, d, 1)
}
