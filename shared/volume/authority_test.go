// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// drawn returns an authority that is told from others by its number.
func drawn(n int) func() (volume.Authority, error) {
	return func() (volume.Authority, error) {
		return volume.Authority{
			Key:         fmt.Appendf(nil, "-----BEGIN PRIVATE KEY-----\nAAA%d\n-----END PRIVATE KEY-----\n", n),
			Certificate: pemOf("CERTIFICATE", n),
		}, nil
	}
}

// offer gives a volume the authority of this number.
func offer(h *volumetest.Host, n byte) (volume.Authority, error) {
	return volume.OfferTLS(h, bytes.NewReader(bytes.Repeat([]byte{n}, 48)), drawn(int(n)))
}

// authorityOn wants a complete authority on a disk, private where it should be, and returns it.
func authorityOn(t *testing.T, d *volumetest.Disk) volume.Authority {
	t.Helper()
	h := host(d, 7)
	a, err := volume.ReadAuthority(h)
	if err != nil {
		t.Fatal(err)
	}
	public, err := volume.ReadCertificate(h)
	if err != nil || !bytes.Equal(public, a.Certificate) {
		t.Errorf("ca.crt is %q, want %q (%v)", public, a.Certificate, err)
	}
	for name, want := range map[string]uint32{"secrets": 0o700, "secrets/ca.key": 0o600, "ca.crt": 0o644, "secrets/signing.key": 0o600, "keys.json": 0o644} {
		if info, err := h.Lstat(name); err != nil || info.Mode != want {
			t.Errorf("%s has mode %o, want %o (%v)", name, info.Mode, want, err)
		}
	}
	keys, err := volume.ReadSigningKeys(h)
	if err != nil {
		t.Fatal(err)
	}
	if public, err := volume.ReadPublicKeys(h); err != nil || !bytes.Equal(public, volume.PublicKeys(keys)) {
		t.Errorf("keys.json is %q, %v", public, err)
	}
	if left, err := h.ReadDir("secrets"); err != nil || len(left) != 2 {
		t.Errorf("secrets/ has %v, %v", left, err)
	}
	return a
}

// TestInterruptedOfferIsFinishedByTheNext: a server that ran meanwhile had the same authority, or none.
func TestInterruptedOfferIsFinishedByTheNext(t *testing.T) {
	for name, action := range interruptions() {
		for _, power := range []bool{false, true} {
			for n := 1; ; n++ {
				d := newDisk(t)
				h := host(d, 1)
				h.SetHook(volumetest.At(n, action))
				first, err := offer(h, 1)
				if h.Calls() < n {
					break
				}
				seen, seenErr := volume.ReadAuthority(host(d, 2))
				if power {
					d.Crash(nil)
				}
				if err == nil && power {
					if got := authorityKey(t, d); !bytes.Equal(got, first.Key) {
						t.Errorf("%s at call %d: what a call returned is not durable", name, n)
					}
				}
				again, err2 := offer(host(d, 3), 2)
				if err2 != nil {
					t.Fatalf("%s at call %d, power loss %v: the next offer: %v", name, n, power, err2)
				}
				switch got := authorityOn(t, d); {
				case !bytes.Equal(got.Key, again.Key), err == nil && !bytes.Equal(got.Key, first.Key):
					t.Errorf("%s at call %d, power loss %v: the authorities differ", name, n, power)
				case seenErr == nil && !power && !bytes.Equal(got.Key, seen.Key):
					t.Errorf("%s at call %d: a server saw another authority", name, n)
				case seenErr != nil && !errors.Is(seenErr, volume.ErrNoAuthority):
					t.Errorf("%s at call %d: a server saw %v", name, n, seenErr)
				}
			}
		}
	}
}

func authorityKey(t *testing.T, d *volumetest.Disk) []byte {
	t.Helper()
	a, err := volume.ReadAuthority(host(d, 8))
	if err != nil {
		t.Error(err)
	}
	return a.Key
}

// TestTwoOffersAgree: whichever call of one is followed by all of the other.
func TestTwoOffersAgree(t *testing.T) {
	for n := 1; ; n++ {
		d := newDisk(t)
		h := host(d, 1)
		var other volume.Authority
		var otherErr error
		var once sync.Once
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if h.Calls() == n {
				once.Do(func() { other, otherErr = offer(host(d, 2), 2) })
			}
			return volumetest.Proceed()
		})
		one, err := offer(h, 1)
		if h.Calls() < n {
			break
		}
		if err != nil || otherErr != nil {
			t.Fatalf("at call %d: %v, %v", n, err, otherErr)
		}
		if got := authorityOn(t, d); !bytes.Equal(got.Key, one.Key) || !bytes.Equal(got.Key, other.Key) {
			t.Errorf("at call %d: %q, %q, and on the volume %q", n, one.Key, other.Key, got.Key)
		}
	}
}

// TestExposedSecretsAreRefused with the command that mends them.
func TestExposedSecretsAreRefused(t *testing.T) {
	for _, name := range []string{"secrets", "secrets/ca.key", "secrets/signing.key"} {
		d := newDisk(t)
		if _, err := volume.ReadAuthority(host(d, 1)); !errors.Is(err, volume.ErrNoAuthority) {
			t.Errorf("a volume without an authority: %v", err)
		}
		if _, err := offer(host(d, 1), 1); err != nil {
			t.Fatal(err)
		}
		if err := d.Expose(name); err != nil {
			t.Fatal(err)
		}
		for _, err := range exposed(d, name) {
			if !errors.Is(err, volume.ErrExposed) || !strings.Contains(err.Error(), "type: chmod -R go= DIR/secrets") {
				t.Errorf("%s is exposed: %v", name, err)
			}
		}
	}
}

// exposed returns what is said of a secret that others may read.
func exposed(d *volumetest.Disk, name string) []error {
	errs := []error{second(offer(host(d, 1), 2))}
	if name != "secrets/signing.key" {
		errs = append(errs, second(volume.ReadAuthority(host(d, 1))))
	}
	if name != "secrets/ca.key" {
		_, err := volume.ReadSigningKeys(host(d, 1))
		errs = append(errs, err)
	}
	return errs
}

func second(_ volume.Authority, err error) error { return err }

// TestForeignCertificateStays: ca.crt of another authority was put there by somebody.
func TestForeignCertificateStays(t *testing.T) {
	d := newDisk(t)
	if err := d.Write("ca.crt", 0, []byte("certificate 9\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := offer(host(d, 1), 1); !errors.Is(err, volume.ErrDamaged) || !strings.Contains(err.Error(), "remove DIR/ca.crt") {
		t.Error(err)
	}
	for name, content := range map[string]string{"empty": "", "no certificate": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		d := newDisk(t)
		h := host(d, 1)
		if _, err := offer(h, 1); err != nil {
			t.Fatal(err)
		}
		if err := d.Truncate("secrets/ca.key", 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Write("secrets/ca.key", 0, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if _, err := volume.ReadAuthority(h); !errors.Is(err, volume.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := volume.OfferTLS(host(newDisk(t), 1), bytes.NewReader(nil), drawn(1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// succeeding returns what draws the authority after another one: vouched for by that.
func succeeding(n int) func(volume.Authority) (volume.Authority, error) {
	return func(old volume.Authority) (volume.Authority, error) {
		a, err := drawn(n)()
		a.Certificate = pemOf("CERTIFICATE", n)
		a.Vouchers = slices.Concat(pemOf("CERTIFICATE", 100+n), old.Certificate, old.Vouchers)
		return a, err
	}
}

func pemOf(kind string, n int) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte{byte(n)}})
}

func rotateAuthority(h *volumetest.Host, n int, leaked bool) (volume.Authority, error) {
	draw := succeeding(n)
	if leaked {
		draw = func(volume.Authority) (volume.Authority, error) {
			a, err := drawn(n)()
			a.Certificate = pemOf("CERTIFICATE", n)
			return a, err
		}
	}
	a, err := volume.RotateAuthority(h, bytes.NewReader(bytes.Repeat([]byte{byte(n)}, 48)), leaked, draw)
	if err == nil {
		err = volume.PublishAuthority(h)
	}
	return a, err
}

// publicIs wants ca.crt to be the certificate of the volume's authority, and returns that.
func publicIs(t *testing.T, d *volumetest.Disk) volume.Authority {
	t.Helper()
	a, err := volume.ReadAuthority(host(d, 7))
	if err != nil {
		t.Fatal(err)
	}
	if public, err := volume.ReadCertificate(host(d, 7)); err != nil || !bytes.Equal(public, a.Certificate) {
		t.Errorf("ca.crt is %q, want %q (%v)", public, a.Certificate, err)
	}
	return a
}

// TestAuthorityIsRotated: clients of each earlier one are vouched for, and a leaked one counts no more.
func TestAuthorityIsRotated(t *testing.T) {
	d := newDisk(t)
	h := host(d, 1)
	if _, err := rotateAuthority(h, 1, false); !errors.Is(err, volume.ErrNoAuthority) {
		t.Errorf("no authority to rotate: %v", err)
	}
	first, err := offer(h, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 4; n++ {
		if _, err := rotateAuthority(h, n, false); err != nil {
			t.Fatal(err)
		}
		if a := publicIs(t, d); a.Number != uint64(n) || !bytes.Contains(a.Vouchers, first.Certificate) {
			t.Errorf("rotation %d: %+v", n, a)
		}
	}
	if _, err := h.Lstat("secrets/ca-3.key"); err != nil {
		t.Errorf("the one before, which a server may be about to read: %v", err)
	}
	for _, name := range []string{"secrets/ca.key", "secrets/ca-2.key"} {
		if _, err := h.Lstat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if _, err := rotateAuthority(h, 5, true); err != nil {
		t.Fatal(err)
	}
	if a := publicIs(t, d); a.Number != 5 || a.Vouchers != nil {
		t.Errorf("after a leak: %+v", a)
	}
	if left, err := h.ReadDir("secrets"); err != nil || len(left) != 2 {
		t.Errorf("secrets/ has %v, %v", left, err)
	}
	if info, err := h.Lstat("secrets/ca-5.key"); err != nil || info.Mode != 0o600 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := offer(h, 6); err != nil {
		t.Errorf("an offer after rotations: %v", err)
	}
}

// TestInterruptedRotationIsFinishedByTheNext: at each call, servers have the old authority or the new one, and a leaked one is gone in the end.
func TestInterruptedRotationIsFinishedByTheNext(t *testing.T) {
	for name, action := range interruptions() {
		for _, leaked := range []bool{false, true} {
			for n := 1; ; n++ {
				d := newDisk(t)
				if _, err := offer(host(d, 1), 1); err != nil {
					t.Fatal(err)
				}
				h := host(d, 2)
				h.SetHook(volumetest.At(n, action))
				first, err := rotateAuthority(h, 2, leaked)
				if h.Calls() < n {
					break
				}
				if _, err := volume.ReadAuthority(host(d, 3)); err != nil {
					t.Errorf("%s at call %d: a server saw %v", name, n, err)
				}
				d.Crash(nil)
				if now, readErr := volume.ReadAuthority(host(d, 4)); readErr != nil || err == nil && now.Number < first.Number {
					t.Errorf("%s at call %d: what a call returned is not durable: %+v, %v", name, n, now, readErr)
				}
				if _, err := rotateAuthority(host(d, 5), 3, leaked); err != nil {
					t.Fatalf("%s at call %d: the next rotation: %v", name, n, err)
				}
				a := publicIs(t, d)
				if left := len(a.Vouchers) > 0; a.Number < 2 || left == leaked {
					t.Errorf("%s at call %d, leaked %v: %+v", name, n, leaked, a)
				}
			}
		}
	}
}

// TestTwoRotationsAgree: whichever call of one is followed by all of the other; and a leaked authority vouches for none.
func TestTwoRotationsAgree(t *testing.T) {
	for _, leaked := range []bool{false, true} {
		for n := 1; ; n++ {
			d := newDisk(t)
			if _, err := offer(host(d, 1), 1); err != nil {
				t.Fatal(err)
			}
			h := host(d, 2)
			var otherErr error
			var once sync.Once
			h.SetHook(func(volumetest.Call) volumetest.Action {
				if h.Calls() == n {
					once.Do(func() { _, otherErr = rotateAuthority(host(d, 3), 3, false) })
				}
				return volumetest.Proceed()
			})
			one, err := rotateAuthority(h, 2, leaked)
			if h.Calls() < n {
				break
			}
			if err != nil || otherErr != nil {
				t.Fatalf("at call %d: %v, %v", n, err, otherErr)
			}
			a := publicIs(t, d)
			if leaked && bytes.Contains(one.Vouchers, []byte("CERTIFICATE")) {
				t.Errorf("at call %d: the leaked authority vouches for the new one", n)
			}
			if !leaked && a.Number == 2 && !bytes.Equal(a.Key, one.Key) {
				t.Errorf("at call %d: %q and %q", n, one.Key, a.Key)
			}
		}
	}
}
