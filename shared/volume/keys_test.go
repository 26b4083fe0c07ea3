// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func key(n byte) volume.KeyID { return volume.KeyID{n, 0xab} }

// keysOn returns the first bytes of a server's keys on the disk, the newest first.
func keysOn(t *testing.T, d *volumetest.Disk) (all []byte) {
	t.Helper()
	keys, err := volume.Keys(host(d, 9), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		all = append(all, k.ID[0])
	}
	return all
}

func writeKey(t *testing.T, h *volumetest.Host, n byte) {
	t.Helper()
	if err := volume.WriteKey(h, 1, key(n), []byte("certificate\n")); err != nil {
		t.Fatal(err)
	}
}

func TestNewestKeysStay(t *testing.T) {
	d := newDisk(t)
	for _, n := range []byte{9, 3, 7, 1, 8, 2} {
		writeKey(t, host(d, 1), n)
	}
	if got := keysOn(t, d); !slices.Equal(got, []byte{2, 8, 1, 7}) {
		t.Errorf("keys %v are there", got)
	}
	writeKey(t, host(d, 1), 8) // it had gone, say
	if got := keysOn(t, d); !slices.Equal(got, []byte{8, 2, 1, 7}) {
		t.Errorf("after one was written again: %v", got)
	}
	for n, want := range map[byte]bool{8: true, 3: false} {
		if found, err := volume.HasKey(host(d, 2), 1, key(n)); found != want || err != nil {
			t.Errorf("key %d: %v, %v", n, found, err)
		}
	}
	if found, err := volume.HasKey(host(d, 2), 2, key(8)); found || err != nil {
		t.Errorf("it is one of another server: %v, %v", found, err)
	}
	forgetful := host(d, 2)
	forgetful.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpLstat {
			return volumetest.FailBefore(fs.ErrNotExist)
		}
		return volumetest.Proceed()
	})
	if found, err := volume.HasKey(forgetful, 1, key(8)); !found || err != nil {
		t.Errorf("a cache remembers that the name was missing: %v, %v", found, err)
	}
	if b, err := d.ReadFile("servers/1.tls-" + key(8).String()); err != nil || !strings.HasPrefix(string(b), "key 7 of server 1\ncertificate\n") {
		t.Errorf("%q, %v", b, err)
	}
	for _, other := range []string{"servers/1.tls-00", "servers/1.tls-" + strings.ToUpper(key(8).String()), "servers/11.tls-" + key(8).String()} {
		if err := d.Write(other, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := keysOn(t, d); len(got) != 4 {
		t.Errorf("with names that are of no key of this server: %v", got)
	}
}

// TestKeyIsDurable: after a power loss at any call the next process writes its own; a name without content harms nobody.
func TestKeyIsDurable(t *testing.T) {
	for name, action := range interruptions() {
		for n := 1; ; n++ {
			d := newDisk(t)
			for i := range byte(4) {
				writeKey(t, host(d, 1), i)
			}
			h := host(d, 1)
			h.SetHook(volumetest.At(n, action))
			err := volume.WriteKey(h, 1, key(50), []byte("certificate\n"))
			if h.Calls() < n {
				break
			}
			if err == nil && n < h.Calls() && strings.HasPrefix(name, "crash") {
				t.Errorf("%s at call %d: no error", name, n)
			}
			if strings.HasPrefix(name, "EIO") { // the process goes on
				h.SetHook(nil)
				err = volume.WriteKey(h, 1, key(50), []byte("certificate\n"))
			}
			d.Crash(nil)
			if err == nil && !slices.Contains(keysOn(t, d), 50) {
				t.Errorf("%s at call %d: the key is not durable", name, n)
			}
			writeKey(t, host(d, 1), 51)
			if got := keysOn(t, d); !slices.Contains(got, 51) || len(got) > 4 {
				t.Errorf("%s at call %d: keys %v", name, n, got)
			}
		}
	}
}

// TestLateRemovalOfKeys: a process that sleeps before it removes an old key removes none of those that others
// wrote meanwhile.
func TestLateRemovalOfKeys(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		for n := range byte(5) {
			writeKey(t, host(d, 1), n)
		}
		h, gate := host(d, 1), volumetest.NewGate()
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpRemove {
				return volumetest.Pause(gate)
			}
			return volumetest.Proceed()
		})
		done := make(chan error)
		go func() { done <- volume.WriteKey(h, 1, key(5), nil) }()
		synctest.Wait()
		for n := byte(6); n < 12; n++ {
			writeKey(t, host(d, 1), n)
		}
		time.Sleep(time.Hour)
		gate.Resume()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := keysOn(t, d); !slices.Contains(got, 5) || !slices.Contains(got, 11) || !slices.Contains(got, 10) || !slices.Contains(got, 9) {
			t.Errorf("keys %v are there", got)
		}
	})
}

// TestKeyOnAFullDisk: the oldest key makes room for the new one, however many there are.
func TestKeyOnAFullDisk(t *testing.T) {
	for had := range byte(4) {
		d := newDisk(t)
		for n := range had + 1 {
			writeKey(t, host(d, 1), n)
		}
		d.SetCapacity(d.Used())
		if err := volume.WriteKey(host(d, 2), 2, key(9), []byte("certificate\n")); err == nil {
			t.Error("the disk is not full: this test tests nothing")
		}
		writeKey(t, host(d, 1), 50)
		if got, want := keysOn(t, d), []byte{50, 3, 2, 1}[:had+1]; had == 3 && !slices.Equal(got, want) || len(got) != len(want) || got[0] != 50 {
			t.Errorf("of %d keys and a new one these are there: %v", had+1, got)
		}
	}
}

// TestTLSIsRequiredOfNewVolumes: before CLUSTER is there, and on older ones when an operator says so.
func TestTLSIsRequiredOfNewVolumes(t *testing.T) {
	d := volumetest.New(1)
	h := host(d, 9)
	h.SetWatch(func(e volumetest.Event) {
		if e.Op == volumetest.OpLink && e.NewName == "CLUSTER" && !e.Done && !slices.ContainsFunc(h.Trace(), func(c volumetest.Call) bool {
			return c.Op == volumetest.OpOpen && c.Name == "servers/tls-required"
		}) {
			t.Error("CLUSTER was there first")
		}
	})
	if _, err := initialise(h); err != nil {
		t.Fatal(err)
	}
	after := d.DurableClone(nil)
	if required, err := volume.TLSRequired(host(after, 1)); !required || err != nil {
		t.Errorf("after a power loss: %v, %v", required, err)
	}
	if err := after.Remove("servers/tls-required"); err != nil {
		t.Fatal(err)
	}
	if required, err := volume.TLSRequired(host(after, 1)); required || err != nil {
		t.Errorf("an older volume: %v, %v", required, err)
	}
	for range 2 {
		if err := volume.RequireTLS(host(after, 1)); err != nil {
			t.Error(err)
		}
	}
	after = after.DurableClone(nil)
	if required, err := volume.TLSRequired(host(after, 1)); !required || err != nil {
		t.Errorf("after an operator said so: %v, %v", required, err)
	}
	if required, err := volume.ClientTLSRequired(host(after, 1)); required || err != nil {
		t.Errorf("of clients, too: %v, %v", required, err)
	}
	for range 2 {
		if err := volume.RequireClientTLS(host(after, 1)); err != nil {
			t.Error(err)
		}
	}
	after = after.DurableClone(nil)
	if required, err := volume.ClientTLSRequired(host(after, 1)); !required || err != nil {
		t.Errorf("of clients: %v, %v", required, err)
	}
	forgetful := host(after, 1)
	forgetful.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpLstat {
			return volumetest.FailBefore(fs.ErrNotExist)
		}
		return volumetest.Proceed()
	})
	for _, look := range []func(vfs.FS) (bool, error){volume.TLSRequired, volume.ClientTLSRequired} {
		if required, err := look(forgetful); !required || err != nil {
			t.Errorf("a cache remembers that the name was missing: %v, %v", required, err)
		}
	}
	broken := host(after, 1)
	broken.SetHook(func(volumetest.Call) volumetest.Action {
		return volumetest.FailBefore(fmt.Errorf("lstat: %w", syscall.EIO))
	})
	if _, err := volume.TLSRequired(broken); err == nil {
		t.Error("a volume that cannot be read requires nothing")
	}
}
