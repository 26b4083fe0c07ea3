// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// The key of a server's process is known to the others by the name of a file,
// servers/<id>.tls-<SHA-256 of its certificate>: who can make that file can write to the volume, and is trusted
// with everything anyway. The name alone counts. The content is for people, but for its first line, a number
// that rises from key to key. So a file that a crash left empty or half written is the name of a key that no
// process has any more.
//
// This is the one place where a decision rests on a name that appears (see Safety in the package documentation).
// It decides who may speak to a server, and nothing that a server says is believed without the volume. A name
// that is seen late delays a connection.

// KeyID is the SHA-256 of a server's certificate.
type KeyID [32]byte

// String returns the ID as it stands in the name of the file.
func (k KeyID) String() string { return hex.EncodeToString(k[:]) }

// Key is a key of a server as its file on the volume shows it.
type Key struct {
	ID KeyID
	// Number rises with each key of the server; 0 if the file cannot be read or is not complete.
	Number uint64
}

// keptKeys is how many keys of a server stay on the volume. More than one, because two processes may
// have one ID for a while, and each of them adds its own.
const keptKeys = 4

const keySuffix = "tls-"

func keyPrefix(id cluster.ServerID) string { return layout.ServerPrefix(id) + keySuffix }

func keyPath(id cluster.ServerID, key KeyID) string {
	return layout.ServersDir + "/" + keyPrefix(id) + key.String()
}

// ParseKeyName returns the key whose file in servers/ has this name, after the server's ID and the dot; false
// for any other name.
func ParseKeyName(name string) (key KeyID, ok bool) {
	digits, ok := strings.CutPrefix(name, keySuffix)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(key) || hex.EncodeToString(b) != digits {
		return key, false
	}
	return KeyID(b), true
}

// Keys returns the keys of a server that are on the volume, the newest first.
func Keys(fsys vfs.FS, id cluster.ServerID) (all []Key, err error) {
	entries, err := fsys.ReadDir(layout.ServersDir)
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		rest, own := strings.CutPrefix(x.Name, layout.ServerPrefix(id))
		key, ok := ParseKeyName(rest)
		if !own || !ok || x.Type != vfs.TypeFile {
			continue
		}
		k := Key{ID: key}
		if b, err := vfs.ReadFile(fsys, keyPath(id, key), vfs.FlagRead); err == nil {
			if _, err := fmt.Sscanf(string(b), keyTitle, &k.Number, new(int)); err != nil {
				k.Number = 0
			}
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), strings.Compare(a.ID.String(), b.ID.String()))
	})
	return all, nil
}

const keyTitle = "key %d of server %d\n"

// WriteKey makes the key of a server's process known to all that read the volume; text is its certificate. The
// caller holds the guard of the ID. After an error it can be called again.
//
// It first removes older keys of this server than it keeps, and on a full disk one after the other until there is room:
// who fills the disk must not keep out a server that starts again. What it removes was there when it looked, the
// oldest first: however late it does that, no key of a later process goes.
func WriteKey(fsys vfs.FS, id cluster.ServerID, key KeyID, text []byte) error {
	all, err := Keys(fsys, id)
	if err != nil {
		return fmt.Errorf("write the key of server %d: %w", id, err)
	}
	all = slices.DeleteFunc(all, func(k Key) bool { return k.ID == key })
	number := uint64(1)
	if len(all) > 0 {
		number += all[0].Number
	}
	content := append(fmt.Appendf(nil, keyTitle, number, id), text...)
	for others := keptKeys - 1; ; others = len(all) - 1 {
		for len(all) > others {
			oldest := all[len(all)-1]
			all = all[:len(all)-1]
			if err := vfs.IgnoreMissing(fsys.Remove(keyPath(id, oldest.ID))); err != nil {
				return fmt.Errorf("remove an old key of server %d: %w", id, err)
			}
		}
		err := writeAnew(fsys, keyPath(id, key), content)
		if err == nil {
			return fsys.SyncDir(layout.ServersDir)
		}
		if !vfs.IsFull(err) || len(all) == 0 {
			return fmt.Errorf("write the key of server %d: %w", id, err)
		}
	}
}

// writeAnew creates a file with this content, or completes one that an earlier try with the same content left.
func writeAnew(fsys vfs.FS, name string, content []byte) error {
	err := vfs.CreateFile(fsys, name, content)
	if errors.Is(err, fs.ErrExist) {
		err = vfs.WriteFile(fsys, name, vfs.FlagWrite, content)
	}
	return err
}

// HasKey reports whether this is a key of the server. If the name is not found, it lists the directory, too:
// some caches remember names that were missing.
func HasKey(fsys vfs.FS, id cluster.ServerID, key KeyID) (bool, error) {
	return inServers(fsys, keyPrefix(id)+key.String())
}

// inServers reports whether a name is in servers/.
func inServers(fsys vfs.FS, name string) (bool, error) {
	_, err := fsys.Lstat(layout.ServersDir + "/" + name)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	entries, err := fsys.ReadDir(layout.ServersDir)
	return slices.ContainsFunc(entries, func(x vfs.Entry) bool { return x.Name == name }), err
}

const (
	tlsRequiredPath       = layout.ServersDir + "/" + layout.TLSRequiredName
	clientTLSRequiredPath = layout.ServersDir + "/" + layout.ClientTLSRequiredName
)

// TLSRequired reports whether servers of this volume accept each other over TLS only. It looks for the file as
// HasKey does: servers ask for it every second while it is missing, so caches do remember that.
func TLSRequired(fsys vfs.FS) (bool, error) { return asked(fsys, layout.TLSRequiredName) }

// ClientTLSRequired reports whether servers of this volume accept clients of other hosts over TLS only. It looks for the
// file as TLSRequired does.
func ClientTLSRequired(fsys vfs.FS) (bool, error) { return asked(fsys, layout.ClientTLSRequiredName) }

// asked reports whether there is a file in servers/ by which an operator asks for something.
func asked(fsys vfs.FS, name string) (bool, error) {
	required, err := inServers(fsys, name)
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", layout.ServersDir+"/"+name, err)
	}
	return required, nil
}

// RequireTLS has the servers of this volume accept each other over TLS only, from now on. Init does so for a new
// volume, before CLUSTER is there, so that no server of it ever looks for the file and finds none. On a volume
// that an older version made, an operator does, once no server of that version runs: it would be
// alone. Older versions ignore the file. The name alone counts; a repeated call changes nothing.
func RequireTLS(fsys vfs.FS) error {
	return require(fsys, tlsRequiredPath, "The servers of this volume accept each other over TLS only.\n")
}

// RequireClientTLS has the servers of this volume accept clients of other hosts over TLS only, from now on. A server
// that has seen it does so until it ends. The name alone counts; a repeated call changes nothing.
func RequireClientTLS(fsys vfs.FS) error {
	return require(fsys, clientTLSRequiredPath, "The servers of this volume accept clients of other hosts over TLS only.\n")
}

func require(fsys vfs.FS, name, text string) error {
	if err := writeAnew(fsys, name, []byte(text)); err != nil {
		return fmt.Errorf("require TLS: %w", err)
	}
	return fsys.SyncDir(layout.ServersDir)
}
