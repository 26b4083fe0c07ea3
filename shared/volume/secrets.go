// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"crypto/x509"
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

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// A volume's secrets may be elsewhere: in a directory of each server's host, of which all have the same files. Then the volume has
// a file in the place of secrets/, so that nothing makes that directory, and the directory has the ID of the cluster
// in secrets/cluster. An FS of such a volume has the directory attached in place of the file: all other code sees secrets/. What is on the
// volume, ca.crt and keys.json, tells a directory that was not copied since a rotation on another host.

var (
	// ErrSecretsElsewhere means that the volume's secrets are in a directory of each server's host, which was not named.
	ErrSecretsElsewhere = errors.New("the secrets of this volume are not on it: each server's host has a copy of their directory; name that with --secrets DIR, HOLDFAST_SECRETS, or the setting secrets of a server")
	// ErrOtherSecrets means that a directory does not have the secrets of the cluster.
	ErrOtherSecrets = errors.New("this is not the directory of secrets of this cluster")
	// ErrSecretsBehind means that a directory lacks secrets that the volume has the public half of.
	ErrSecretsBehind = errors.New("this directory of secrets is not up to date")
)

// SecretsElsewhere reports whether the volume's secrets are not on it. It is false where their directory is attached.
func SecretsElsewhere(fsys vfs.FS) (bool, error) {
	info, err := fsys.Lstat(layout.SecretsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Type == vfs.TypeFile, err
}

// secretsHere returns ErrSecretsElsewhere if there is no directory to look for secrets in, nor to make them.
func secretsHere(fsys vfs.FS) error {
	elsewhere, err := SecretsElsewhere(fsys)
	if err == nil && elsewhere {
		err = ErrSecretsElsewhere
	}
	return err
}

// KeepSecretsElsewhere makes an empty directory that of the secrets of a cluster whose volume has none yet. It can be repeated.
// It is called before the directory is attached.
func KeepSecretsElsewhere(fsys, secrets vfs.FS, id cluster.ID, random io.Reader) error {
	there, err := secrets.ReadDir(".")
	if err != nil {
		return err
	}
	unfinished := func(x vfs.Entry) bool { return strings.HasSuffix(x.Name, layout.TmpSuffix) }
	if there = slices.DeleteFunc(there, unfinished); len(there) > 0 {
		if err := CheckSecrets(secrets, id); err != nil {
			return fmt.Errorf("%w: name an empty one", err)
		}
	}
	nonce := make([]byte, 16)
	if _, err := io.ReadFull(random, nonce); err != nil {
		return err
	}
	tmp := hex.EncodeToString(nonce) + layout.TmpSuffix
	const text = "The secrets of this volume are not on it: each server's host has a copy of their directory (holdfast server --secrets DIR).\n"
	if err := linkOnce(fsys, publicTmp(tmp), layout.SecretsDir, []byte(text), 0); err != nil {
		return err
	}
	if elsewhere, err := SecretsElsewhere(fsys); err != nil || !elsewhere {
		return errors.Join(err, fmt.Errorf("%w: the volume has %s/ already", ErrOtherSecrets, layout.SecretsDir))
	}
	if err := fsys.SyncDir("."); err != nil {
		return err
	}
	if err := linkOnce(secrets, tmp, layout.SecretsClusterName, []byte(id.String()+"\n"), vfs.FlagPrivate); err != nil {
		return err
	}
	return secrets.SyncDir(".")
}

// CheckSecrets returns an error that wraps ErrOtherSecrets unless a directory has the secrets of a cluster.
func CheckSecrets(secrets vfs.FS, id cluster.ID) error {
	b, err := vfs.ReadFile(secrets, layout.SecretsClusterName, vfs.FlagRead)
	switch text := strings.TrimSpace(string(b)); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it has no file %s, as each copy does", ErrOtherSecrets, layout.SecretsClusterName)
	case err != nil:
		return fmt.Errorf("read %s: %w", layout.SecretsClusterName, err)
	case text != id.String():
		return fmt.Errorf("%w: it is of cluster %.64q, and the volume of %s", ErrOtherSecrets, text, id)
	}
	return nil
}

// SecretsBehind returns an error that wraps ErrSecretsBehind if the secrets are not on the volume, and the attached copy of them
// lacks one whose public half is on it: they were made on another host. What is not published yet may be missing unnoticed.
func SecretsBehind(fsys vfs.FS) error {
	if err := secretsHere(fsys); err != nil {
		return err
	}
	if _, err := fsys.Lstat(layout.SecretsDir + "/" + layout.SecretsClusterName); err != nil {
		return vfs.IgnoreMissing(err) // they are on the volume
	}
	const mend = "copy the files of the directory from the host on which they were made last"
	public, err := ReadCertificate(fsys)
	if err != nil && !errors.Is(err, ErrNoAuthority) {
		return err
	}
	if err == nil {
		own, err := ReadAuthority(fsys)
		if err != nil && !errors.Is(err, ErrNoAuthority) {
			return err
		}
		n, err := authorityNumber(public)
		if err != nil {
			return err
		}
		if n > own.Number || n == own.Number && !bytes.Equal(public, own.Certificate) {
			return fmt.Errorf("%w: it has not the key of the certificate authority %d, which %s is of: %s", ErrSecretsBehind, n, layout.AuthorityName, mend)
		}
	}
	missing, err := missingKeys(fsys)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: it has not the signing key %s, which is in %s: %s", ErrSecretsBehind, missing[0], layout.SigningPublicName, mend)
	}
	return err
}

// missingKeys returns the IDs in keys.json of keys that are not there.
func missingKeys(fsys vfs.FS) (ids []string, err error) {
	public, err := ReadPublicKeys(fsys)
	if errors.Is(err, ErrNoSigningKey) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(public, &set); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, layout.SigningPublicName, err)
	}
	own, err := ReadSigningKeys(fsys)
	if err != nil && !errors.Is(err, ErrNoSigningKey) {
		return nil, err
	}
	for _, k := range set.Keys {
		if !slices.ContainsFunc(own, func(o SigningKey) bool { return o.ID == k.ID }) {
			ids = append(ids, k.ID)
		}
	}
	return ids, nil
}

// authorityWord comes before the number in the common name of an authority after the first.
const authorityWord = " authority "

// AuthorityCommonName returns the common name of a cluster's authority with this number. People, and programs that look for an
// issuer by its name, tell authorities apart by it.
func AuthorityCommonName(id cluster.ID, number uint64) string {
	name := "Holdfast cluster " + id.String()
	if number > 1 {
		name += authorityWord + strconv.FormatUint(number, 10)
	}
	return name
}

// authorityNumber returns the number of the authority whose certificate this is, as PEM.
func authorityNumber(certificate []byte) (uint64, error) {
	damaged := fmt.Errorf("%w: %s is no certificate of an authority", ErrDamaged, layout.AuthorityName)
	block, _ := pem.Decode(certificate)
	if block == nil {
		return 0, damaged
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return 0, damaged
	}
	_, digits, later := strings.Cut(c.Subject.CommonName, authorityWord)
	if !later {
		return 1, nil
	}
	number, ok := laterNumber(digits)
	if !ok {
		return 0, damaged
	}
	return number, nil
}
