// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// The sign of life of a server's process is one block at servers/<id>.process, written in
// place: a line of JSON, zeros, CRC-32C in the last 4 bytes. The file is not replaced,
// because the caches of a network filesystem may lead a name to a file that was replaced. Only
// elections depend on its content: a late write comes from a process that has ended, so that its count
// does not rise any more. A late one with a term delays an election once.

// ErrNoProcess means that a server's sign of life cannot be read now: none was written yet, or
// the read met a write.
var ErrNoProcess = errors.New("no sign of life")

// Process is the sign of life of a server's process.
type Process struct {
	// Nonce is the process's boot nonce.
	Nonce uint64 `json:"nonce,string"`
	// Count rises with each write: a process whose count was seen to rise writes to this volume.
	Count uint64 `json:"count"`
	// Key is the key with which the process speaks to other servers, as in KeyID.String; "" if it has none: it is of an
	// older version.
	Key string `json:"key,omitempty"`
	// Term is that which the process is taking over; 0 if it is not taking over any, or serves, or is of an older version.
	Term cluster.Epoch `json:"term,omitempty"`
	// PID, Host, Address and Path, the volume's directory, are for people.
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Address string `json:"address"`
	Path    string `json:"path"`
}

// String describes the process for people.
func (p Process) String() string {
	return fmt.Sprintf("process %d on host %s, volume %s", p.PID, p.Host, p.Path)
}

func processPath(id cluster.ServerID) string {
	return layout.ServersDir + "/" + layout.ServerPrefix(id) + layout.ProcessSuffix
}

// WriteProcess writes the sign of life of this server's process past the caches.
func (v *Volume) WriteProcess(p Process) error {
	text, err := json.Marshal(p)
	if len(text) >= vfs.BlockSize-4 { // leave out what is for people
		text, err = json.Marshal(Process{Nonce: p.Nonce, Count: p.Count, PID: p.PID, Key: p.Key, Term: p.Term})
	}
	if err != nil {
		return fmt.Errorf("sign of life: %w", err)
	}
	b := vfs.AlignedBuffer(vfs.BlockSize)
	b[copy(b, text)] = '\n'
	binary.LittleEndian.PutUint32(b[vfs.BlockSize-4:], blockSum(b))
	if err := v.own.process.write(b); err != nil {
		return fmt.Errorf("sign of life: %w", err)
	}
	return nil
}

// ReadProcess reads the sign of life of a server's process past the caches. It reads that of this server
// through the descriptor of the last write. It returns an error that wraps ErrNoProcess if there is none or it
// cannot be read.
func (v *Volume) ReadProcess(id cluster.ServerID) (p Process, err error) {
	var b []byte
	if err = fs.ErrNotExist; id == v.opt.Server {
		b, err = v.own.process.read()
	}
	if errors.Is(err, fs.ErrNotExist) {
		b, err = vfs.ReadBlockFile(v.fs, processPath(id), vfs.FlagDirect)
	}
	if err != nil {
		return p, fmt.Errorf("%w of server %d: %w", ErrNoProcess, id, err)
	}
	text, _, _ := bytes.Cut(b, []byte("\n"))
	if binary.LittleEndian.Uint32(b[vfs.BlockSize-4:]) != blockSum(b) || json.Unmarshal(text, &p) != nil {
		return Process{}, fmt.Errorf("%w of server %d: the block is empty or half written", ErrNoProcess, id)
	}
	return p, nil
}

func blockSum(b []byte) uint32 {
	return crc32.Checksum(b[:vfs.BlockSize-4], crc32.MakeTable(crc32.Castagnoli))
}
