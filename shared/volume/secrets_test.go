// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// offVolume is a volume whose secrets are elsewhere.
type offVolume struct {
	t   *testing.T
	dir string
	id  cluster.ID
}

func newOffVolume(t *testing.T) *offVolume {
	t.Helper()
	v := &offVolume{t, t.TempDir(), cluster.ID{7}}
	f := v.open("")
	if err := f.Mkdir("servers"); err != nil {
		t.Fatal(err)
	}
	return v
}

// open opens it, with the copy of the secrets that has this name, "" = none.
func (v *offVolume) open(copy string) *osfs.FS {
	v.t.Helper()
	f, err := osfs.Open(v.dir)
	if err != nil {
		v.t.Fatal(err)
	}
	if copy != "" {
		f.Attach(volume.SecretsDir, v.copy(copy))
	}
	v.t.Cleanup(func() { f.Close() }) //nolint:errcheck // descriptors of directories
	return f
}

// copy opens a copy of the secrets, which is made if it is not there.
func (v *offVolume) copy(name string) *osfs.FS {
	v.t.Helper()
	parent, err := osfs.Open(filepath.Dir(v.dir))
	if err != nil {
		v.t.Fatal(err)
	}
	defer parent.Close() //nolint:errcheck // descriptors of directories
	if err := parent.MkdirPrivate(name); err != nil && !errors.Is(err, fs.ErrExist) {
		v.t.Fatal(err)
	}
	f, err := osfs.Open(filepath.Join(filepath.Dir(v.dir), name))
	if err != nil {
		v.t.Fatal(err)
	}
	return f
}

// same copies the files of one copy to another one.
func (v *offVolume) same(from, to string) {
	v.t.Helper()
	a, b := v.copy(from), v.copy(to)
	defer a.Close() //nolint:errcheck // descriptors of directories
	defer b.Close() //nolint:errcheck // likewise
	entries, err := a.ReadDir(".")
	if err != nil {
		v.t.Fatal(err)
	}
	for _, x := range entries {
		text, err := vfs.ReadFile(a, x.Name, vfs.FlagRead)
		if err != nil {
			v.t.Fatal(err)
		}
		_ = b.Remove(x.Name) // it may not be there
		if err := vfs.WriteFile(b, x.Name, vfs.FlagCreate|vfs.FlagPrivate, text); err != nil {
			v.t.Fatal(err)
		}
	}
}

func (v *offVolume) draw() (volume.Authority, error) { return v.authority(1) }

// authority makes an authority with this number, of which nobody asks more here than its name.
func (v *offVolume) authority(number uint64) (a volume.Authority, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: volume.AuthorityCommonName(v.id, number)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return a, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return volume.Authority{
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Number: number,
	}, err
}

func (v *offVolume) rotate(f vfs.FS) error {
	_, err := volume.RotateAuthority(f, rand.Reader, false, func(old volume.Authority) (volume.Authority, error) {
		return v.authority(old.Number + 1)
	})
	return err
}

func (v *offVolume) wants(what string, err, want error) {
	v.t.Helper()
	if !errors.Is(err, want) {
		v.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestSecretsElsewhere: without their directory nothing reads secrets or makes them; with an old copy nothing makes further ones.
func TestSecretsElsewhere(t *testing.T) {
	v := newOffVolume(t)
	first := v.copy("one")
	for range 2 { // it can be repeated
		v.wants("begin", volume.KeepSecretsElsewhere(v.open(""), first, v.id, rand.Reader), nil)
	}
	v.wants("another cluster's", volume.KeepSecretsElsewhere(v.open(""), first, cluster.ID{8}, rand.Reader), volume.ErrOtherSecrets)
	v.wants("check", volume.CheckSecrets(first, v.id), nil)
	v.wants("check another cluster's", volume.CheckSecrets(first, cluster.ID{8}), volume.ErrOtherSecrets)
	v.wants("check an empty one", volume.CheckSecrets(v.copy("empty"), v.id), volume.ErrOtherSecrets)
	bare, one := v.open(""), v.open("one")
	_, err := volume.OfferTLS(one, rand.Reader, v.draw)
	v.wants("offer", err, nil)
	for name, do := range map[string]func() error{
		"read the authority":  func() error { _, err := volume.ReadAuthority(bare); return err },
		"its number":          func() error { _, err := volume.AuthorityNumber(bare); return err },
		"read keys":           func() error { _, err := volume.ReadSigningKeys(bare); return err },
		"offer TLS":           func() error { _, err := volume.OfferTLS(bare, rand.Reader, v.draw); return err },
		"offer a signing key": func() error { return volume.OfferSigning(bare, rand.Reader) },
		"rotate":              func() error { return v.rotate(bare) },
	} {
		v.wants(name, do(), volume.ErrSecretsElsewhere)
	}
	v.same("one", "two")
	two := v.open("two")
	v.wants("a copy", volume.SecretsBehind(two), nil)
	v.wants("rotate", v.rotate(one), nil)
	v.wants("what is not published", volume.SecretsBehind(two), nil)
	v.wants("a repeat", v.rotate(one), nil)
	v.wants("publish", volume.PublishAuthority(one), nil)
	v.wants("a copy without the authority", volume.SecretsBehind(two), volume.ErrSecretsBehind)
	v.wants("rotate it", v.rotate(two), volume.ErrSecretsBehind)
	_, err = volume.OfferTLS(two, rand.Reader, v.draw)
	v.wants("offer with it", err, volume.ErrSecretsBehind)
	v.same("one", "two")
	v.wants("copied again", volume.SecretsBehind(two), nil)
	_, err = volume.RotateSigning(one, rand.Reader, time.Now(), time.Now().Add(time.Hour))
	v.wants("rotate the signing key", err, nil)
	v.wants("a copy without the key", volume.SecretsBehind(two), volume.ErrSecretsBehind)
	_, err = volume.RotateSigning(two, rand.Reader, time.Now(), time.Now())
	v.wants("rotate its signing key", err, volume.ErrSecretsBehind)
	v.wants("the volume's own", volume.SecretsBehind(two), volume.ErrSecretsBehind)
	// Two hosts made the same number.
	v.same("one", "two")
	v.wants("rotate at one", v.rotate(one), nil)
	v.wants("rotate at two", v.rotate(two), nil)
	v.wants("publish two", volume.PublishAuthority(two), nil)
	v.wants("the other one of two", volume.SecretsBehind(one), volume.ErrSecretsBehind)
}

// TestSecretsOnTheVolumeStay: nothing is asked of a volume that has them, and it is not made one that has not.
func TestSecretsOnTheVolumeStay(t *testing.T) {
	v := newOffVolume(t)
	f := v.open("")
	if _, err := volume.OfferTLS(f, rand.Reader, v.draw); err != nil {
		t.Fatal(err)
	}
	v.wants("a volume that has secrets", volume.SecretsBehind(f), nil)
	v.wants("begin", volume.KeepSecretsElsewhere(f, v.copy("other"), v.id, rand.Reader), volume.ErrOtherSecrets)
	if x, err := v.copy("other").ReadDir("."); err != nil || len(x) > 0 {
		t.Errorf("a refused directory has %v, %v", x, err)
	}
	if err := f.Replace("ca.crt", func(w io.Writer) error { _, err := io.WriteString(w, "nonsense"); return err }); err != nil {
		t.Fatal(err)
	}
	v.wants("with damage beside", volume.SecretsBehind(f), nil)
}
