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
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Servers sign with a key of the volume, and all of them verify with it: secrets/signing.key is the first, and later
// ones are secrets/signing-<ID>.key. As with the authority, a name is linked once, complete, and never replaced.
// keys.json has the public halves, for everybody. It is made from the secrets, and so can be made again.
//
// A later key says from when servers sign with it, so that whoever has a copy of keys.json can get a new one first. The keys
// before it verify for SigningKept from then on. Both are by the clocks of servers, as the expiry of what they sign is.

// SigningKey is a key with which servers sign.
type SigningKey struct {
	// ID names the key: its number on the volume, from 1, a hyphen, and the beginning of the SHA-256 of its public half.
	ID      string
	Private ed25519.PrivateKey
	// From is when servers begin to sign with it; zero for the first key.
	From time.Time
}

// Public returns the half that verifies.
func (k SigningKey) Public() ed25519.PublicKey { return k.Private.Public().(ed25519.PublicKey) }

// ErrNoSigningKey means that a volume has no signing key: its servers issue no tickets.
var ErrNoSigningKey = errors.New("the volume has no signing key (holdfast secure offer makes one)")

const (
	signingKeyPath = layout.SecretsDir + "/" + layout.SigningKeyName
	// maxSigningKeys bounds how many keys are read.
	maxSigningKeys = 64
	// mostRotated bounds how many keys there may be when another one is made, so that they can always be read.
	mostRotated = maxSigningKeys / 2
	pemKey      = "PRIVATE KEY"
	// pemFrom is the header of a key's file that has SigningKey.From, as in RFC 3339.
	pemFrom = "Sign-From"

	// SigningDelay is how long a new key is published before servers sign with it.
	SigningDelay = time.Hour
	// SigningLeast is the least such time: by then every server, which looks every ten seconds, has seen the new key, so none
	// refuses what another one signs.
	SigningLeast = 30 * time.Second
	// SigningKept is how long a key verifies after servers began to sign with a newer one.
	SigningKept = 30 * 24 * time.Hour
)

// KeysAt returns the keys that verify at a time, of those that ReadSigningKeys returned. The first is the one to sign with.
func KeysAt(keys []SigningKey, now time.Time) (valid []SigningKey) {
	signs := slices.IndexFunc(keys, func(k SigningKey) bool { return !now.Before(k.From) })
	if signs < 0 {
		return slices.Clone(keys) // the clock is wrong: sign all the same
	}
	valid = append(valid, keys[signs])
	for i, k := range keys {
		over := slices.ContainsFunc(keys[:i], func(newer SigningKey) bool { return !now.Before(newer.From.Add(SigningKept)) })
		if i != signs && !over {
			valid = append(valid, k)
		}
	}
	return valid
}

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
	number, ok = laterNumber(digits)
	return number, ok && hasPrefix && hasSuffix
}

// ReadSigningKeys reads the signing keys, the newest first. KeysAt says which of them count, and which one signs. It
// returns an error that wraps ErrNoSigningKey if there is none, and ErrExposed, with the command that mends it, if others
// than the owner may read one.
func ReadSigningKeys(fsys vfs.FS) ([]SigningKey, error) {
	type numbered struct {
		SigningKey
		number uint64
	}
	var all []numbered
	switch first, err := readSigningKey(fsys, layout.SigningKeyName, 1); {
	case err == nil:
		all = append(all, numbered{first, 1})
	case !errors.Is(err, ErrNoSigningKey): // a rotation removes it when it is over
		return nil, err
	}
	entries, err := fsys.ReadDir(layout.SecretsDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoSigningKey
	case err != nil:
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
	if len(all) == 0 {
		return nil, ErrNoSigningKey
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
	b, err := readSecret(fsys, path, "remove DIR/"+path+" and DIR/"+layout.SigningPublicName+", type holdfast secure offer", ErrNoSigningKey)
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
	if from, ok := block.Headers[pemFrom]; ok {
		if k.From, err = time.Parse(time.RFC3339, from); err != nil {
			return k, damaged
		}
	}
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
		_, text, err := drawSigningKey(random, nil)
		if err != nil {
			return err
		}
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

// drawSigningKey returns a new key, and the text of its file.
func drawSigningKey(random io.Reader, headers map[string]string) (ed25519.PrivateKey, []byte, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: pemKey, Headers: headers, Bytes: der}), nil
}

// RotateSigning gives the volume a newer signing key, with which servers sign from a time on, and puts it into keys.json. Keys
// that do not verify any more at now are removed. A new key that servers do not sign with yet is returned as it is, unless from
// is earlier. Another call may be under way. After an error, or a crash, a repeated call completes what the first began. It
// returns an error that wraps ErrNoSigningKey if the volume has no key, and others of ReadSigningKeys.
func RotateSigning(fsys vfs.FS, random io.Reader, now, from time.Time) (k SigningKey, err error) {
	if err := SecretsBehind(fsys); err != nil {
		return k, err
	}
	keys, err := ReadSigningKeys(fsys)
	if err != nil {
		return k, err
	}
	if k = keys[0]; k.From.After(now) && !from.Before(k.From) {
		return k, publishKeys(fsys)
	}
	if len(keys) >= mostRotated {
		return k, fmt.Errorf("%s/ has %d signing keys already: those that are over are removed %d days after a newer one", layout.SecretsDir, len(keys), SigningKept/(24*time.Hour))
	}
	tmp, err := makeSecrets(fsys, random)
	if err != nil {
		return k, err
	}
	from = from.UTC().Truncate(time.Second)
	private, text, err := drawSigningKey(random, map[string]string{pemFrom: from.Format(time.RFC3339)})
	if err != nil {
		return k, err
	}
	digits, _, _ := strings.Cut(keys[0].ID, "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return k, err
	}
	k = SigningKey{ID: signingKeyID(number+1, private.Public().(ed25519.PublicKey)), Private: private, From: from}
	if err := linkOnce(fsys, tmp, signingPath(k), text, vfs.FlagPrivate); err != nil {
		return k, err
	}
	valid := KeysAt(keys, now)
	for _, old := range keys {
		if !slices.ContainsFunc(valid, func(v SigningKey) bool { return v.ID == old.ID }) {
			if err := fsys.Remove(signingPath(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return k, err
			}
		}
	}
	if err := fsys.SyncDir(layout.SecretsDir); err != nil {
		return k, err
	}
	return k, publishKeys(fsys)
}

// signingPath returns the name of the file that has a key.
func signingPath(k SigningKey) string {
	if strings.HasPrefix(k.ID, "1-") {
		return signingKeyPath
	}
	return layout.SecretsDir + "/" + layout.SigningPrefix + k.ID + layout.SigningSuffix
}

// publishKeys writes keys.json again: of two calls, the last one to write it has seen what both have made.
func publishKeys(fsys vfs.FS) error {
	return publishUntilSame(fsys, layout.SigningPublicName, func() ([]byte, error) {
		keys, err := ReadSigningKeys(fsys)
		return PublicKeys(keys), err
	})
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
