// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Clients know the servers of a volume by its certificate authority: secrets/ca.key has the authority's key and,
// behind it, its certificate; ca.crt is the certificate once more, for everybody. The first name decides: it is linked
// once, complete, and never replaced. ca.crt is made from it, and so can be made again.

// Authority is the certificate authority of a volume, as two texts in PEM.
type Authority struct {
	Key         []byte // PKCS #8
	Certificate []byte
}

var (
	// ErrNoAuthority means that a volume has no certificate authority: its servers do not offer TLS to clients.
	ErrNoAuthority = errors.New("the volume has no certificate authority for clients (holdfast secure offer makes one)")
	// ErrExposed means that others than the owner may read a secret.
	ErrExposed = errors.New("others than its owner may read this secret")
)

const (
	authorityKeyPath = layout.SecretsDir + "/" + layout.AuthorityKeyName
	// maxSecret bounds a secret's file, in bytes.
	maxSecret = 64 << 10
)

// ReadAuthority reads the certificate authority. It returns an error that wraps ErrNoAuthority if there is none, and
// ErrExposed, with the command that mends it, if others than the owner may read its key.
func ReadAuthority(fsys vfs.FS) (a Authority, err error) {
	b, err := readSecret(fsys, authorityKeyPath, layout.AuthorityName, ErrNoAuthority)
	if err != nil {
		return a, err
	}
	key, rest := pem.Decode(b)
	if key == nil || len(rest) == 0 {
		return a, fmt.Errorf("%w: %s has not a key and a certificate", ErrDamaged, authorityKeyPath)
	}
	return Authority{Key: b[:len(b)-len(rest)], Certificate: rest}, nil
}

// readSecret reads a file in secrets/. It returns none if it is not there, and an error that wraps ErrExposed, with the
// command that mends it, if others than the owner may read it. public is the name of what everybody knows of the secret.
func readSecret(fsys vfs.FS, secret, public string, none error) ([]byte, error) {
	for _, name := range []string{layout.SecretsDir, secret} {
		info, err := fsys.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, none
		case err != nil:
			return nil, fmt.Errorf("read a secret: %w", err)
		case info.Mode&0o077 != 0:
			return nil, fmt.Errorf("%w: %s has mode %o; type: chmod -R go= DIR/%s   (and if somebody may have read it: remove DIR/%s and DIR/%s, restart all servers, type holdfast secure offer)",
				ErrExposed, name, info.Mode&0o777, layout.SecretsDir, secret, public)
		case info.Size > maxSecret && info.Type == vfs.TypeFile:
			return nil, fmt.Errorf("%s: %d bytes are no key", name, info.Size)
		}
	}
	b, err := vfs.ReadFile(fsys, secret, vfs.FlagRead)
	if err != nil {
		return nil, fmt.Errorf("read a secret: %w", err)
	}
	return b, nil
}

// ReadCertificate reads the certificate of the authority, as clients do. It returns an error that wraps ErrNoAuthority if
// there is none.
func ReadCertificate(fsys vfs.FS) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, layout.AuthorityName, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoAuthority
	}
	return b, err
}

// OfferTLS gives the volume a certificate authority for clients and a signing key (see signing.go), unless it has them,
// and returns the authority that it has. Servers that run use it within seconds. A new one is what draw returns. Of two
// calls at the same time, both return the same authority. After an error, or a crash, a repeated call completes what the
// first began.
func OfferTLS(fsys vfs.FS, random io.Reader, draw func() (Authority, error)) (a Authority, err error) {
	tmp, err := makeSecrets(fsys, random)
	if err != nil {
		return a, err
	}
	if a, err = ReadAuthority(fsys); errors.Is(err, ErrNoAuthority) {
		if a, err = draw(); err != nil {
			return a, err
		}
		if err := linkOnce(fsys, tmp, authorityKeyPath, append(bytes.Clone(a.Key), a.Certificate...), vfs.FlagPrivate); err != nil {
			return a, err
		}
		a, err = ReadAuthority(fsys) // another call may have been first
	}
	if err != nil {
		return a, err
	}
	if err := fsys.SyncDir(layout.SecretsDir); err != nil {
		return a, err
	}
	if err := publish(fsys, tmp, layout.AuthorityName, authorityKeyPath, a.Certificate); err != nil {
		return a, err
	}
	if err := offerSigning(fsys, tmp, random); err != nil {
		return a, err
	}
	removeUnfinishedSecrets(fsys)
	return a, nil
}

// makeSecrets makes the directory for secrets, durable, and returns a name in it for a file under way.
func makeSecrets(fsys vfs.FS, random io.Reader) (tmp string, err error) {
	if err := fsys.MkdirPrivate(layout.SecretsDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make %s: %w", layout.SecretsDir, err)
	}
	if err := fsys.SyncDir("."); err != nil {
		return "", err
	}
	nonce := make([]byte, 16)
	_, err = io.ReadFull(random, nonce)
	return layout.SecretsDir + "/" + hex.EncodeToString(nonce) + layout.TmpSuffix, err
}

// publish makes the file that everybody may read of a secret, durable, unless it is there. It returns ErrDamaged if
// there is another one.
func publish(fsys vfs.FS, tmp, name, secret string, content []byte) error {
	if err := linkOnce(fsys, tmp, name, content, 0); err != nil {
		return err
	}
	if err := fsys.SyncDir("."); err != nil {
		return err
	}
	there, err := vfs.ReadFile(fsys, name, vfs.FlagRead)
	if err == nil && !bytes.Equal(there, content) {
		err = fmt.Errorf("%w: %s is not what belongs to %s: remove DIR/%s, if nobody made it on purpose, and repeat", ErrDamaged, name, secret, name)
	}
	return err
}

// linkOnce makes a file with this content and mode, durable but for its name, unless the name is taken.
func linkOnce(fsys vfs.FS, tmp, name string, content []byte, flag vfs.Flag) error {
	if _, err := fsys.Lstat(name); err == nil {
		return nil
	}
	err := vfs.WriteFile(fsys, tmp, vfs.FlagCreate|flag, content)
	if err == nil {
		if err = fsys.Link(tmp, name); err != nil {
			if _, statErr := fsys.Lstat(name); statErr == nil {
				err = nil // another one was first, or the link was made after all
			}
		}
	}
	_ = fsys.Remove(tmp) // what stays is removed below
	return err
}

// removeUnfinishedSecrets removes what calls of OfferTLS left that were interrupted. All files are there: whoever is at it still
// finds them when its link fails.
func removeUnfinishedSecrets(fsys vfs.FS) {
	entries, err := fsys.ReadDir(layout.SecretsDir)
	if err != nil {
		return
	}
	for _, x := range entries {
		if strings.HasSuffix(x.Name, layout.TmpSuffix) {
			_ = fsys.Remove(layout.SecretsDir + "/" + x.Name)
		}
	}
}
