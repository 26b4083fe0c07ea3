// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestInitIsDurable(t *testing.T) {
	d := newDisk(t).DurableClone(nil)
	c, err := volume.ReadCluster(host(d, 1))
	if err != nil || len(c.Servers) != 3 || c.Format != volume.Format {
		t.Fatalf("CLUSTER after a power loss: %+v, %v", c, err)
	}
	usable(t, d, locktable.New().Hash())
}

func TestInitOfAVolumeIsRefused(t *testing.T) {
	d := newDisk(t)
	before := d.Snapshot()
	if _, err := initialise(host(d, 9)); !errors.Is(err, volume.ErrExists) {
		t.Errorf("got %v", err)
	}
	if len(d.Snapshot()) != len(before) {
		t.Error("a refused init changed the volume")
	}
}

func TestInitRefusesWhatIsNotEmpty(t *testing.T) {
	for _, test := range []struct {
		name string
		file string
		ok   bool
	}{
		{"somebody's file", "thesis.tex", false},
		{"somebody's directory", "home/thesis.tex", false},
		{"a term without CLUSTER", "epochs/0000000001/fence", false},
		{"a protected file without CLUSTER", "files/audit.log", false},
		{"history without CLUSTER", "history/1-1.jsonl", false},
		{"a server's file without CLUSTER", "servers/1.lock", false},
		{"changed access rules without CLUSTER", "access/0000000002.toml", false},
		{"a fresh filesystem", "lost+found/x", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := volumetest.New(1)
			if err := d.Write(test.file, 0, []byte("mine")); err != nil {
				t.Fatal(err)
			}
			_, err := initialise(host(d, 9))
			if (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
			if b, err := d.ReadFile(test.file); err != nil || string(b) != "mine" {
				t.Errorf("the file is %q, %v", b, err)
			}
		})
	}
}

// A canary that a primary wrote to is of a volume, whatever else of it is gone.
func TestInitTakesNoCanaryThatWasWritten(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if err := s.vol.WriteCanary(volume.Canary{Epoch: 1, Value: 7}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"servers/1.lock", "CLUSTER"} {
		if err := d.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := initialise(host(d, 9)); !errors.Is(err, volume.ErrDamaged) || !strings.Contains(err.Error(), "servers/1.canary") {
		t.Errorf("got %v", err)
	}
}

// interruptions are what can become of one call.
func interruptions() map[string]volumetest.Action {
	return map[string]volumetest.Action{
		"crash before":  volumetest.Crash(),
		"crash after":   volumetest.CrashAfter(),
		"torn write":    volumetest.CrashTorn(700),
		"EIO, not done": volumetest.FailBefore(syscall.EIO),
		"EIO, but done": volumetest.FailAfter(syscall.EIO),
	}
}

func TestInterruptedInitIsFinishedByTheNext(t *testing.T) {
	for name, action := range interruptions() {
		for _, power := range []bool{false, true} {
			bubble(t, name, func(t *testing.T) {
				for n := 1; ; n++ {
					d := volumetest.New(1)
					h := host(d, 9)
					h.SetHook(volumetest.At(n, action))
					_, first := initialise(h)
					if h.Calls() < n {
						break
					}
					call := h.Trace()[n-1]
					h.Kill()
					if power {
						d.Crash(mathrand.New(mathrand.NewPCG(uint64(n), 5)))
					}
					if _, err := initialise(host(d, 8)); err != nil && !errors.Is(err, volume.ErrExists) {
						t.Errorf("call %v (first init: %v): the second init failed: %v", call, first, err)
						continue
					}
					usable(t, d, locktable.New().Hash())
				}
			})
		}
	}
}

// TestInitEquipsBeforeAnybodyMayServe interrupts an init of a volume with access rules, TLS and an authority at each of
// its calls. While there is a CLUSTER, there is all of that, and a repeated init completes it.
func TestInitEquipsBeforeAnybodyMayServe(t *testing.T) {
	draw := func() (volume.Authority, error) {
		return volume.Authority{Key: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), Certificate: pemOf("CERTIFICATE", 1)}, nil
	}
	initialise := func(h *volumetest.Host) error {
		_, err := volume.InitWith(h, members(), rand.Reader, func(volume.Cluster) error {
			_, err := volume.OfferTLS(h, rand.Reader, draw)
			all, listErr := volume.RulesVersions(h)
			if err = errors.Join(err, listErr, volume.RequireClientTLS(h)); err == nil && len(all) == 0 {
				err = volume.PublishRules(h, rand.Reader, 0, []byte("rules"))
			}
			return err
		})
		return err
	}
	for name, action := range interruptions() {
		bubble(t, name, func(t *testing.T) {
			for n := 1; ; n++ {
				d := volumetest.New(1)
				h := host(d, 9)
				h.SetHook(volumetest.At(n, action))
				first := initialise(h)
				if h.Calls() < n {
					break
				}
				h.Kill()
				d.Crash(mathrand.New(mathrand.NewPCG(uint64(n), 5)))
				equipped := func() bool {
					r := host(d, 7)
					required, err := volume.ClientTLSRequired(r)
					text, rulesErr := volume.ReadRules(r, 1)
					_, caErr := volume.ReadAuthority(r)
					return required && string(text) == "rules" && errors.Join(err, rulesErr, caErr) == nil
				}
				if _, err := volume.ReadCluster(host(d, 7)); err == nil && !equipped() {
					t.Errorf("call %d (%v): there is a CLUSTER, and not all that is to be there before", n, first)
				}
				if err := initialise(host(d, 8)); err != nil && !errors.Is(err, volume.ErrExists) {
					t.Errorf("call %d (%v): the second init failed: %v", n, first, err)
				} else if !equipped() {
					t.Errorf("call %d (%v): the second init did not complete the first", n, first)
				}
			}
		})
	}
}

func TestTwoInitsAtOnceAgreeOnOneVolume(t *testing.T) {
	others := members()
	others[0].Client = "elsewhere:1"
	for _, test := range []struct {
		name   string
		second cluster.Members
	}{
		{"the same", members()},
		{"with other servers", others},
	} {
		bubble(t, test.name, func(t *testing.T) {
			for n := 1; ; n++ {
				for m := 1; ; m++ {
					reachedN, reachedM := twoInits(t, n, m, test.second)
					if !reachedN {
						return
					}
					if !reachedM {
						break
					}
				}
			}
		})
	}
}

// twoInits holds the first init before its call n, the second before its call
// m, then lets the first one finish, and then the second.
func twoInits(t *testing.T, n, m int, second cluster.Members) (reachedN, reachedM bool) {
	d := volumetest.New(1)
	type result struct {
		c   volume.Cluster
		err error
	}
	run := func(h *volumetest.Host, servers cluster.Members, at int) (*volumetest.Gate, chan result) {
		gate, done := volumetest.NewGate(), make(chan result, 1)
		h.SetHook(volumetest.At(at, volumetest.Pause(gate)))
		go func() {
			c, err := volume.Init(context.Background(), h, servers, rand.Reader)
			done <- result{c, err}
		}()
		synctest.Wait()
		return gate, done
	}
	hostA, hostB := host(d, 8), host(d, 9)
	gateA, doneA := run(hostA, members(), n)
	gateB, doneB := run(hostB, second, m)
	gateA.Resume()
	a := <-doneA
	gateB.Resume()
	b := <-doneB
	c, err := volume.ReadCluster(host(d, 1))
	for _, x := range []result{a, b} {
		if x.err == nil && (err != nil || x.c.ID != c.ID || !slices.Equal(x.c.Servers, c.Servers)) {
			t.Errorf("calls %d and %d: one init made %+v, CLUSTER says %+v, %v", n, m, x.c, c, err)
		}
	}
	if a.err != nil && b.err != nil {
		t.Errorf("calls %d and %d: both failed: %v; %v", n, m, a.err, b.err)
		return true, true
	}
	s := start(t, d, 3)
	if _, err := s.takeOver(s.claim(), nil); err != nil {
		t.Errorf("calls %d and %d (%v; %v): nobody can take over: %v", n, m, a.err, b.err, err)
	}
	return hostA.Calls() >= n, hostB.Calls() >= m
}

// sleepingInit has an Init pause before its nth call and another one make the volume meanwhile. Wake
// lets the first one go on to its end; it is nil where that has fewer calls.
func sleepingInit(t *testing.T, n int) (d *volumetest.Disk, wake func()) {
	t.Helper()
	d = volumetest.New(1)
	h, gate := host(d, 8), volumetest.NewGate()
	h.SetHook(volumetest.At(n, volumetest.Pause(gate)))
	done := make(chan error, 1)
	go func() {
		_, err := initialise(h)
		done <- err
	}()
	synctest.Wait()
	if h.Calls() < n {
		return d, nil
	}
	if _, err := initialise(host(d, 9)); err != nil && !errors.Is(err, volume.ErrExists) {
		t.Fatalf("call %d: %v", n, err)
	}
	return d, func() { gate.Resume(); <-done }
}

func TestInitThatSleptThroughTermsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; ; n++ {
			d, wake := sleepingInit(t, n)
			if wake == nil {
				return
			}
			x := begin(t, d, 1)
			x.fill(3)
			hash := x.table.Hash()
			x.kill()
			wake() // whether it was told yes or no: see the test above
			usable(t, d, hash)
		}
	})
}

// An Init that slept while the volume was made and its primary wrote its canary leaves that.
func TestInitThatSleptLeavesTheCanaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; ; n++ {
			d, wake := sleepingInit(t, n)
			if wake == nil {
				return
			}
			s := start(t, d, 1)
			if err := s.vol.WriteCanary(volume.Canary{Epoch: 1, Value: 7}); err != nil {
				t.Fatal(err)
			}
			wake()
			if got, err := s.vol.ReadCanary(1, vfs.FlagDirect); err != nil || got.Value != 7 {
				t.Errorf("call %d: the canary reads %d, %v", n, got.Value, err)
			}
		}
	})
}

func TestInitLeavesNothingOfAnotherBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		h := host(d, 9)
		h.SetHook(volumetest.AtOp(volumetest.OpRename, "servers/init-", 1, volumetest.Crash()))
		if _, err := initialise(h); err == nil {
			t.Fatal("an init survived its crash")
		}
		if _, err := initialise(host(d, 8)); err != nil {
			t.Fatal(err)
		}
		for name := range d.Snapshot() {
			if strings.HasPrefix(name, "servers/init-") {
				t.Errorf("%s is left", name)
			}
		}
	})
}

// TestDamagedClusterIsNoOther: CLUSTER has no checksum. One that is cut is no volume, and no server takes the log of its own cluster over under
// another cluster's ID; a wrong address, server ID or feature level is not noticed, and can keep a server from starting or being reached.
func TestDamagedClusterIsNoOther(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.kill()
		content, err := d.ReadFile("CLUSTER")
		if err != nil {
			t.Fatal(err)
		}
		right, err := volume.ReadCluster(host(d, 9))
		if err != nil {
			t.Fatal(err)
		}
		damaged := func(what string, damage func(d *volumetest.Disk) error) {
			t.Helper()
			e := d.Clone()
			if err := damage(e); err != nil {
				t.Fatal(err)
			}
			c, err := volume.ReadCluster(host(e, 9))
			if err != nil || c.ID == right.ID && len(c.Servers) == len(right.Servers) {
				return
			}
			s := start(t, e, 1)
			if _, err := s.takeOver(s.claim(), nil); err == nil || !strings.Contains(err.Error(), "of another cluster") {
				t.Errorf("%s: taken over as %+v: %v", what, c, err)
			}
		}
		for i := range content[:len(content)-2] { // the last are a brace and a newline
			damaged(fmt.Sprint("cut to ", i), func(d *volumetest.Disk) error {
				return d.Truncate("CLUSTER", int64(i))
			})
			for _, bit := range []byte{1, 4} {
				damaged(fmt.Sprintf("byte %d, bit %d", i, bit), func(d *volumetest.Disk) error {
					return d.Write("CLUSTER", int64(i), []byte{content[i] ^ bit})
				})
			}
		}
	})
}
