// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// signed returns a volume with a signing key, and that key.
func signed(t *testing.T) (*volumetest.Disk, volume.SigningKey) {
	t.Helper()
	d := newDisk(t)
	if _, err := volume.ReadSigningKeys(host(d, 1)); !errors.Is(err, volume.ErrNoSigningKey) {
		t.Errorf("a volume without a signing key: %v", err)
	}
	if _, err := offer(host(d, 1), 1); err != nil {
		t.Fatal(err)
	}
	keys, err := volume.ReadSigningKeys(host(d, 1))
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	return d, keys[0]
}

// later returns the text of a key with a seed of this byte.
func later(t *testing.T, seed byte) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// The newest key comes first, by its number and not by its name, and a key whose name is not its own is refused.
func TestSeveralSigningKeys(t *testing.T) {
	d, first := signed(t)
	// IDs of the keys with these seeds, as the volume numbers them.
	id := func(number string, seed byte) string {
		d2 := newDisk(t)
		if _, err := offer(host(d2, 1), seed); err != nil {
			t.Fatal(err)
		}
		keys, err := volume.ReadSigningKeys(host(d2, 1))
		if err != nil {
			t.Fatal(err)
		}
		return number + strings.TrimPrefix(keys[0].ID, "1")
	}
	want := []string{id("10", 8), id("2", 2), first.ID}
	for seed, kid := range map[byte]string{8: want[0], 2: want[1]} {
		if err := vfs.WriteFile(host(d, 1), "secrets/signing-"+kid+".key", vfs.FlagCreate|vfs.FlagPrivate, later(t, seed)); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := volume.ReadSigningKeys(host(d, 1))
	if err != nil || len(keys) != 3 {
		t.Fatal(keys, err)
	}
	set := string(volume.PublicKeys(keys))
	for i, k := range keys {
		if k.ID != want[i] || !strings.Contains(set, `"kid": "`+k.ID+`"`) {
			t.Errorf("key %d is %s, want %s", i, k.ID, want[i])
		}
	}
	if err := vfs.WriteFile(host(d, 1), "secrets/signing-3-0011223344556677.key", vfs.FlagCreate|vfs.FlagPrivate, later(t, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := volume.ReadSigningKeys(host(d, 1)); !errors.Is(err, volume.ErrDamaged) {
		t.Errorf("a key under another one's name: %v", err)
	}
}

func TestSigningNames(t *testing.T) {
	for name, want := range map[string]uint64{
		"signing.key": 1, "signing-2-00ff.key": 2, "signing-10-00.key": 10,
		"signing-1-00.key": 0, "signing-0-00.key": 0, "signing-02-00.key": 0, "signing-.key": 0, "signing-x.key": 0, "ca.key": 0, "signing-2-00.key.tmp": 0,
	} {
		if n, ok := volume.ParseSigningName(name); ok != (want != 0) || ok && n != want {
			t.Errorf("%s: %d, %v", name, n, ok)
		}
	}
}

// A damaged key is refused: nothing is signed, and none is made in its place.
func TestDamagedSigningKey(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "no PEM": "x", "no key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "two": string(append(later(t, 1), later(t, 2)...)),
	} {
		d, _ := signed(t)
		if err := errors.Join(d.Truncate("secrets/signing.key", 0), d.Write("secrets/signing.key", 0, []byte(content))); err != nil {
			t.Fatal(err)
		}
		if _, err := volume.ReadSigningKeys(host(d, 1)); !errors.Is(err, volume.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := offer(host(d, 1), 2); !errors.Is(err, volume.ErrDamaged) {
			t.Errorf("%s: an offer: %v", name, err)
		}
	}
}

// A volume of an older version has an authority only: the next offer makes the rest, and keys.json can be made again.
func TestOfferCompletesASigningKey(t *testing.T) {
	d, first := signed(t)
	for name, again := range map[string]bool{"keys.json": true, "secrets/signing.key": false} {
		if err := d.Remove(name); err != nil {
			t.Fatal(err)
		}
		if !again {
			if err := d.Remove("keys.json"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := offer(host(d, 1), 1); err != nil {
			t.Fatal(err)
		}
		authorityOn(t, d)
		if keys, err := volume.ReadSigningKeys(host(d, 1)); err != nil || keys[0].ID != first.ID { // the seed is the same
			t.Errorf("%s was removed: %v, %v", name, keys, err)
		}
	}
}

// A volume can have a signing key without an authority, and gets the authority later, beside the same key.
func TestOfferSigningOnly(t *testing.T) {
	d := newDisk(t)
	for seed := range byte(2) {
		if err := volume.OfferSigning(host(d, 1), bytes.NewReader(bytes.Repeat([]byte{seed + 1}, 48))); err != nil {
			t.Fatal(err)
		}
	}
	first, err := volume.ReadSigningKeys(host(d, 1))
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if b, err := volume.ReadPublicKeys(host(d, 1)); err != nil || !bytes.Equal(b, volume.PublicKeys(first)) {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := volume.ReadCertificate(host(d, 1)); !errors.Is(err, volume.ErrNoAuthority) {
		t.Errorf("an authority: %v", err)
	}
	if _, err := offer(host(d, 1), 3); err != nil {
		t.Fatal(err)
	}
	if keys, err := volume.ReadSigningKeys(host(d, 1)); err != nil || len(keys) != 1 || keys[0].ID != first[0].ID {
		t.Errorf("%v, %v", keys, err)
	}
}

// rotate makes another key, of this seed.
func rotate(t *testing.T, d *volumetest.Disk, seed byte, now, from time.Time) volume.SigningKey {
	t.Helper()
	k, err := volume.RotateSigning(host(d, 1), bytes.NewReader(bytes.Repeat([]byte{seed}, 48)), now, from)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wantKeys compares the keys that count at a time, and what keys.json has.
func wantKeys(t *testing.T, d *volumetest.Disk, now time.Time, ids ...string) {
	t.Helper()
	keys, err := volume.ReadSigningKeys(host(d, 1))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range volume.KeysAt(keys, now) {
		got = append(got, k.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("at %v the keys are %v, want %v", now, got, ids)
	}
	if b, err := volume.ReadPublicKeys(host(d, 1)); err != nil || !bytes.Equal(b, volume.PublicKeys(keys)) {
		t.Errorf("keys.json has %s, %v", b, err)
	}
}

// A new key is published for an hour before servers sign with it. What the one before it signed counts for 30 days more; a later
// rotation removes it.
func TestRotateSigning(t *testing.T) {
	d, first := signed(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wantKeys(t, d, now, first.ID)
	second := rotate(t, d, 2, now, now.Add(volume.SigningDelay))
	if !strings.HasPrefix(second.ID, "2-") || !second.From.Equal(now.Add(time.Hour)) {
		t.Errorf("the second key is %s, from %v", second.ID, second.From)
	}
	if again := rotate(t, d, 3, now.Add(time.Minute), now.Add(time.Minute+volume.SigningDelay)); again.ID != second.ID {
		t.Errorf("a second call makes %s", again.ID)
	}
	wantKeys(t, d, now.Add(time.Hour-time.Second), first.ID, second.ID)
	wantKeys(t, d, now.Add(time.Hour), second.ID, first.ID)
	over := now.Add(time.Hour + volume.SigningKept)
	wantKeys(t, d, over.Add(-time.Second), second.ID, first.ID)
	wantKeys(t, d, over, second.ID)
	third := rotate(t, d, 4, over, over) // at once
	wantKeys(t, d, over, third.ID, second.ID)
	if keys, err := volume.ReadSigningKeys(host(d, 1)); err != nil || len(keys) != 2 {
		t.Errorf("there are %d keys, %v", len(keys), err)
	}
	if _, err := offer(host(d, 1), 9); err != nil { // there is a key, though the first is gone
		t.Fatal(err)
	}
	wantKeys(t, d, over, third.ID, second.ID)
	pending := rotate(t, d, 5, over, over.Add(volume.SigningDelay))
	soon := rotate(t, d, 6, over, over) // at once, although another one is about to sign
	wantKeys(t, d, over, soon.ID, pending.ID, third.ID, second.ID)
	wantKeys(t, d, over.Add(2*time.Hour), soon.ID, pending.ID, third.ID, second.ID)
	var err error
	for seed := byte(10); err == nil && seed < 100; seed++ {
		_, err = volume.RotateSigning(host(d, 1), bytes.NewReader(bytes.Repeat([]byte{seed}, 48)), over, over)
	}
	if err == nil || !strings.Contains(err.Error(), "signing keys already") {
		t.Errorf("as many as one likes: %v", err)
	}
	if _, err := volume.ReadSigningKeys(host(d, 1)); err != nil {
		t.Error(err)
	}
	if _, err := volume.RotateSigning(host(newDisk(t), 1), bytes.NewReader(make([]byte, 48)), now, now); !errors.Is(err, volume.ErrNoSigningKey) {
		t.Errorf("a volume without a key: %v", err)
	}
}

// Wherever a rotation ends, the volume has keys, and a repeated one completes it.
func TestInterruptedRotation(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for call := 1; ; call++ {
		d, first := signed(t)
		h := host(d, 1)
		h.SetHook(volumetest.At(call, volumetest.Crash()))
		_, err := volume.RotateSigning(h, bytes.NewReader(bytes.Repeat([]byte{2}, 48)), now, now.Add(time.Hour))
		if err == nil {
			if call < 8 {
				t.Errorf("%d calls only", call)
			}
			return
		}
		for _, after := range []*volumetest.Disk{d, d.DurableClone(nil)} {
			k := rotate(t, after, 3, now, now.Add(time.Hour))
			wantKeys(t, after, now, first.ID, k.ID)
		}
		if t.Failed() {
			t.Fatalf("killed at call %d", call)
		}
	}
}

func TestTimeOfASigningKey(t *testing.T) {
	d, _ := signed(t)
	k := rotate(t, d, 2, time.Now(), time.Now())
	name := "secrets/signing-" + k.ID + ".key"
	b, err := vfs.ReadFile(host(d, 1), name, vfs.FlagRead)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Replace(b, []byte("Sign-From: 2"), []byte("Sign-From: x"), 1)
	if err := d.Write(name, 0, bad); err != nil || bytes.Equal(bad, b) {
		t.Fatal(err)
	}
	if _, err := volume.ReadSigningKeys(host(d, 1)); !errors.Is(err, volume.ErrDamaged) {
		t.Errorf("a time that is none: %v", err)
	}
}
