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
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Clients know the servers of a volume by its certificate authority: secrets/ca.key has the authority's key and,
// behind it, its certificate. A later authority is secrets/ca-<number>.key, from 2; the one with the highest number
// counts. ca.crt is its certificate once more, for everybody. A secret's name is linked once, complete, and never
// replaced. ca.crt is made from the secret, and so can be made again.

// Authority is the certificate authority of a volume, as texts in PEM.
type Authority struct {
	Key         []byte // PKCS #8
	Certificate []byte
	// Vouchers are certificates by which clients that know an earlier authority recognize this one, nil = no earlier one
	// vouches for it: this authority's certificate, signed by the one before it, and that one's own, then the same of the
	// one before that.
	Vouchers []byte
	// Number is the authority's on its volume, from 1. It is not used when an authority is made.
	Number uint64
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

// ParseAuthorityName returns the number of the authority whose file in secrets/ has this name; false for any other name.
func ParseAuthorityName(name string) (number uint64, ok bool) {
	if name == layout.AuthorityKeyName {
		return 1, true
	}
	rest, hasPrefix := strings.CutPrefix(name, layout.AuthorityPrefix)
	digits, hasSuffix := strings.CutSuffix(rest, layout.AuthoritySuffix)
	number, ok = laterNumber(digits)
	return number, ok && hasPrefix && hasSuffix
}

// laterNumber returns the number of a secret that is not the first of its kind, as its name has it.
func laterNumber(digits string) (number uint64, ok bool) {
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 1 && strconv.FormatUint(number, 10) == digits
}

// authorityPath returns the name of the file that has the authority of a number.
func authorityPath(number uint64) string {
	if number == 1 {
		return authorityKeyPath
	}
	return layout.SecretsDir + "/" + layout.AuthorityPrefix + strconv.FormatUint(number, 10) + layout.AuthoritySuffix
}

// authorities returns the numbers of the authorities that are there.
func authorities(fsys vfs.FS) (numbers []uint64, err error) {
	if err := secretsHere(fsys); err != nil {
		return nil, err
	}
	entries, err := fsys.ReadDir(layout.SecretsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the certificate authorities: %w", err)
	}
	for _, x := range entries {
		if n, ok := ParseAuthorityName(x.Name); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// AuthorityNumber returns the number of the certificate authority, 0 = there is none.
func AuthorityNumber(fsys vfs.FS) (uint64, error) {
	numbers, err := authorities(fsys)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	return slices.Max(numbers), nil
}

// ReadAuthority reads the certificate authority. It returns an error that wraps ErrNoAuthority if there is none, and
// ErrExposed, with the command that mends it, if others than the owner may read its key.
func ReadAuthority(fsys vfs.FS) (a Authority, err error) {
	n, err := AuthorityNumber(fsys)
	if err != nil {
		return a, err
	}
	if n == 0 {
		return a, ErrNoAuthority
	}
	path := authorityPath(n)
	b, err := readSecret(fsys, path, "holdfast secure rotate ca --now --volume DIR", fs.ErrNotExist)
	if err != nil {
		return a, fmt.Errorf("the certificate authority, %s: %w", path, err)
	}
	damaged := fmt.Errorf("%w: %s has not a key and a certificate", ErrDamaged, path)
	key, rest := pem.Decode(b)
	if key == nil || len(rest) == 0 {
		return a, damaged
	}
	own, vouchers := pem.Decode(rest)
	if own == nil {
		return a, damaged
	}
	a = Authority{Key: b[:len(b)-len(rest)], Certificate: rest[:len(rest)-len(vouchers)], Number: n}
	if len(vouchers) > 0 {
		a.Vouchers = vouchers
	}
	return a, nil
}

// readSecret reads a file in secrets/. It returns none if it is not there, and an error that wraps ErrExposed, with the
// command that mends it, if others than the owner may read it. leaked is what to do if somebody has read it.
func readSecret(fsys vfs.FS, secret, leaked string, none error) ([]byte, error) {
	for _, name := range []string{layout.SecretsDir, secret} {
		info, err := fsys.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, none
		case err != nil:
			return nil, fmt.Errorf("read a secret: %w", err)
		case name == layout.SecretsDir && info.Type == vfs.TypeFile:
			return nil, ErrSecretsElsewhere
		case info.Mode&0o077 != 0:
			return nil, fmt.Errorf("%w: %s has mode %o; type: chmod -R go= DIR/%s   (and if somebody may have read it: %s)",
				ErrExposed, name, info.Mode&0o777, layout.SecretsDir, leaked)
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
	if err := SecretsBehind(fsys); err != nil {
		return a, err
	}
	if a, err = ReadAuthority(fsys); errors.Is(err, ErrNoAuthority) {
		if a, err = draw(); err != nil {
			return a, err
		}
		if err := linkOnce(fsys, tmp, authorityKeyPath, a.text(), vfs.FlagPrivate); err != nil {
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
	if err := publish(fsys, tmp, layout.AuthorityName, authorityPath(a.Number), a.Certificate); err != nil {
		return a, err
	}
	if err := offerSigning(fsys, tmp, random); err != nil {
		return a, err
	}
	removeUnfinishedSecrets(fsys)
	return a, nil
}

// text returns what the file of an authority has.
func (a Authority) text() []byte { return slices.Concat(a.Key, a.Certificate, a.Vouchers) }

// RotateAuthority gives the volume a new certificate authority, which draw returns: that of old with certificates by which
// clients of old recognize it, or, with leaked, one that has nothing to do with old, which counts no more from then on. Servers that
// run use it within seconds. ca.crt is not changed: see PublishAuthority. Without leaked, an authority that is not in ca.crt yet is
// returned as it is: a repeated call completes what another one began. It returns an error that wraps ErrNoAuthority if there is none.
func RotateAuthority(fsys vfs.FS, random io.Reader, leaked bool, draw func(old Authority) (Authority, error)) (a Authority, err error) {
	tmp, err := makeSecrets(fsys, random)
	if err != nil {
		return a, err
	}
	if err := SecretsBehind(fsys); err != nil {
		return a, err
	}
	for {
		public, err := ReadCertificate(fsys) // first, so that an authority that differs is the later one
		if err != nil && !errors.Is(err, ErrNoAuthority) {
			return a, err
		}
		old, err := ReadAuthority(fsys)
		if err != nil {
			return a, err
		}
		if !leaked && !bytes.Equal(public, old.Certificate) {
			return old, fsys.SyncDir(layout.SecretsDir)
		}
		drawn, err := draw(old)
		if err != nil {
			return a, err
		}
		if err := linkOnce(fsys, tmp, authorityPath(old.Number+1), drawn.text(), vfs.FlagPrivate); err != nil {
			return a, err
		}
		if a, err = ReadAuthority(fsys); err != nil {
			return a, err
		}
		if leaked && !bytes.Equal(a.Key, drawn.Key) { // another call was first, and its authority may rest on the leaked one
			continue
		}
		if err := fsys.SyncDir(layout.SecretsDir); err != nil {
			return a, err
		}
		return a, removeAuthorities(fsys, a, leaked)
	}
}

// removeAuthorities removes the authorities before a, but for the last one, which a server may be about to read; with all, that one, too.
func removeAuthorities(fsys vfs.FS, a Authority, all bool) error {
	numbers, err := authorities(fsys)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n+1 < a.Number || all && n < a.Number {
			if err := fsys.Remove(authorityPath(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return fsys.SyncDir(layout.SecretsDir)
}

// PublishAuthority makes ca.crt the certificate of the authority that the volume has. Of two calls, the last one to write it has seen
// what both have made.
func PublishAuthority(fsys vfs.FS) error {
	return publishUntilSame(fsys, layout.AuthorityName, func() ([]byte, error) {
		a, err := ReadAuthority(fsys)
		return a.Certificate, err
	})
}

// publishUntilSame writes a file, until it has what content returns after it was written.
func publishUntilSame(fsys vfs.FS, name string, content func() ([]byte, error)) error {
	var written []byte
	for {
		b, err := content()
		if err != nil {
			return err // what was listed may just have been removed: a repeated call finds that out
		}
		if bytes.Equal(b, written) {
			return nil
		}
		if err := fsys.Replace(name, func(w io.Writer) error { _, err := w.Write(b); return err }); err != nil {
			return err
		}
		written = b
	}
}

// makeSecrets makes the directory for secrets, durable, and returns a name in it for a file under way.
func makeSecrets(fsys vfs.FS, random io.Reader) (tmp string, err error) {
	if err := fsys.MkdirPrivate(layout.SecretsDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make %s: %w", layout.SecretsDir, err)
	}
	if err := secretsHere(fsys); err != nil {
		return "", err
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
	if err := linkOnce(fsys, publicTmp(tmp), name, content, 0); err != nil {
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

// publicTmp returns a name for a file under way that is no secret, beside one that is: secrets/ may be on another filesystem.
func publicTmp(tmp string) string {
	return layout.ServersDir + "/" + layout.PublicPrefix + path.Base(tmp)
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
	for dir, prefix := range map[string]string{layout.SecretsDir: "", layout.ServersDir: layout.PublicPrefix} {
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, x := range entries {
			if strings.HasPrefix(x.Name, prefix) && strings.HasSuffix(x.Name, layout.TmpSuffix) {
				_ = fsys.Remove(dir + "/" + x.Name)
			}
		}
	}
}
