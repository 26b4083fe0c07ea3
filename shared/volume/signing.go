// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Servers sign with a key of the volume, and all of them verify with it: secrets/signing.key is the first, and later
// ones are secrets/signing-<ID>.key. As with the authority, a name is linked once, complete, and never replaced.
// keys.json has the public halves, for everybody. It is made from the secrets, and so can be made again.

// SigningKey is a key with which servers sign.
type SigningKey struct {
	// ID names the key: its number on the volume, from 1, a hyphen, and the beginning of the SHA-256 of its public half.
	ID      string
	Private ed25519.PrivateKey
}

// Public returns the half that verifies.
func (k SigningKey) Public() ed25519.PublicKey { return k.Private.Public().(ed25519.PublicKey) }

// ErrNoSigningKey means that a volume has no signing key: its servers issue no tickets.
var ErrNoSigningKey = errors.New("the volume has no signing key (holdfast secure offer makes one)")

const (
	signingKeyPath = layout.SecretsDir + "/" + layout.SigningKeyName
	// maxSigningKeys bounds how many keys are read.
	maxSigningKeys = 64
	pemKey         = "PRIVATE KEY"
)

// signingKeyID returns the ID of the key with this number.
func signingKeyID(number uint64, public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return strconv.FormatUint(number, 10) + "-" + hex.EncodeToString(sum[:8])
}

// ParseSigningName returns the number of the signing key whose file in secrets/ has this name; false for any other name.
func ParseSigningName(name string) (number uint64, ok bool) {
	if name == layout.SigningKeyName {
		return 1, true
	}
	rest, hasPrefix := strings.CutPrefix(name, layout.SigningPrefix)
	id, hasSuffix := strings.CutSuffix(rest, layout.SigningSuffix)
	digits, _, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, hasPrefix && hasSuffix && err == nil && number > 1 && strconv.FormatUint(number, 10) == digits
}

// ReadSigningKeys reads the signing keys, the newest first: with that one servers sign, with all of them they verify. It
// returns an error that wraps ErrNoSigningKey if there is none, and ErrExposed, with the command that mends it, if others
// than the owner may read one.
func ReadSigningKeys(fsys vfs.FS) ([]SigningKey, error) {
	type numbered struct {
		SigningKey
		number uint64
	}
	first, err := readSigningKey(fsys, layout.SigningKeyName, 1)
	if err != nil {
		return nil, err
	}
	all := []numbered{{first, 1}}
	entries, err := fsys.ReadDir(layout.SecretsDir)
	if err != nil {
		return nil, fmt.Errorf("list the signing keys: %w", err)
	}
	for _, x := range entries {
		number, ok := ParseSigningName(x.Name)
		if !ok || number == 1 {
			continue
		}
		k, err := readSigningKey(fsys, x.Name, number)
		if err != nil {
			return nil, err
		}
		if all = append(all, numbered{k, number}); len(all) > maxSigningKeys {
			return nil, fmt.Errorf("%w: %s/ has more than %d signing keys", ErrDamaged, layout.SecretsDir, maxSigningKeys)
		}
	}
	slices.SortFunc(all, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(b.number, a.number), strings.Compare(a.ID, b.ID))
	})
	keys := make([]SigningKey, len(all))
	for i, k := range all {
		keys[i] = k.SigningKey
	}
	return keys, nil
}

// readSigningKey reads the key with this number.
func readSigningKey(fsys vfs.FS, name string, number uint64) (k SigningKey, err error) {
	path := layout.SecretsDir + "/" + name
	b, err := readSecret(fsys, path, layout.SigningPublicName, ErrNoSigningKey)
	if err != nil {
		return k, err
	}
	damaged := fmt.Errorf("%w: %s has no Ed25519 key", ErrDamaged, path)
	block, rest := pem.Decode(b)
	if block == nil || block.Type != pemKey || len(bytes.TrimSpace(rest)) > 0 {
		return k, damaged
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return k, damaged
	}
	key, ok := private.(ed25519.PrivateKey)
	if !ok {
		return k, damaged
	}
	k.Private, k.ID = key, signingKeyID(number, key.Public().(ed25519.PublicKey))
	if number > 1 && name != layout.SigningPrefix+k.ID+layout.SigningSuffix {
		return k, fmt.Errorf("%w: %s has the key %s", ErrDamaged, path, k.ID)
	}
	return k, nil
}

// OfferSigning gives the volume a signing key and keys.json, unless it has them, and no certificate authority: servers sign
// tickets and proofs within seconds.
func OfferSigning(fsys vfs.FS, random io.Reader) error {
	tmp, err := makeSecrets(fsys, random)
	if err != nil {
		return err
	}
	return offerSigning(fsys, tmp, random)
}

// offerSigning gives the volume a signing key, unless it has one, and the file with its public half.
func offerSigning(fsys vfs.FS, tmp string, random io.Reader) error {
	if _, err := ReadSigningKeys(fsys); errors.Is(err, ErrNoSigningKey) {
		seed := make([]byte, ed25519.SeedSize)
		if _, err := io.ReadFull(random, seed); err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
		if err != nil {
			return err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})
		if err := linkOnce(fsys, tmp, signingKeyPath, text, vfs.FlagPrivate); err != nil {
			return err
		}
	}
	keys, err := ReadSigningKeys(fsys) // another call may have been first
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(layout.SecretsDir); err != nil {
		return err
	}
	return publish(fsys, tmp, layout.SigningPublicName, signingKeyPath, PublicKeys(keys))
}

// PublicKeys returns the public halves of signing keys as a JSON Web Key Set: what keys.json has.
func PublicKeys(keys []SigningKey) []byte {
	type webKey struct {
		Type      string `json:"kty"`
		Curve     string `json:"crv"`
		Use       string `json:"use"`
		Algorithm string `json:"alg"`
		ID        string `json:"kid"`
		X         string `json:"x"`
	}
	var set struct {
		Keys []webKey `json:"keys"`
	}
	set.Keys = []webKey{} // not null
	for _, k := range keys {
		set.Keys = append(set.Keys, webKey{"OKP", "Ed25519", "sig", "EdDSA", k.ID, base64.RawURLEncoding.EncodeToString(k.Public())})
	}
	b, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		panic(err) // texts only
	}
	return append(b, '\n')
}

// ReadPublicKeys reads keys.json, as everybody may. It returns an error that wraps ErrNoSigningKey if there is none.
func ReadPublicKeys(fsys vfs.FS) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, layout.SigningPublicName, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoSigningKey
	}
	return b, err
}
