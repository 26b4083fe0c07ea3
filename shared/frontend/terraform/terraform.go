// SPDX-License-Identifier: Apache-2.0

// Package terraform translates between Holdfast and what Terraform and OpenTofu say to their "http" backend. It is pure: package
// httpapi has the requests, and docs/terraform.md what users are told.
//
// # Names
//
// The state NAME is kept in the protected file terraform/NAME.tfstate, of the lock terraform/NAME. Each write is one append, so every version
// stays; the newest one is the last append. A deletion is an append, too: of a line feed, which is no state.
//
// # Who holds, and who writes
//
// The client draws a lock ID for each operation, and repeats a request whose answer it did not get with the same bytes. It knows no request
// IDs and no tokens, so both are made of what it says:
//
//	request   client of the lock table   request ID   low-water mark
//	LOCK      Holder(ID)                 1
//	UNLOCK    Holder(ID)                 2
//	POST      Writer(ID)                 serial + 1   the same
//	DELETE    Writer(ID)                 the largest  the same
//
// So a repeat is a repeat for the lock table, over failovers too, and is executed once. The serial of a state rises with each write of it. The
// low-water mark keeps a copy of an earlier write, which was on its way for long, from ever being executed after a later one.
package terraform

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// MaxState is the largest state that is taken, in bytes. What one append does not carry is compressed.
const MaxState = 8 << 20

// The request IDs of the requests of a lock ID that are made once.
const (
	LockRequest   cluster.RequestID = 1
	UnlockRequest cluster.RequestID = 2
	DeleteRequest                   = locktable.MaxRequestID
)

// Deleted is what a deletion appends.
const Deleted = "\n"

// Name is the name of a state, as it is in the path of its address.
type Name string

// Lock returns the lock of the state.
func (n Name) Lock() cluster.LockName { return cluster.LockName("terraform/" + n) }

// File returns the protected file that has the versions of the state.
func (n Name) File() cluster.FileName { return cluster.FileName("terraform/" + n + ".tfstate") }

// Validate returns an error unless lock and file may have their names.
func (n Name) Validate() error {
	if err := n.Lock().Validate(); err != nil {
		return err
	}
	return n.File().Validate()
}

// Holder returns the client that holds the lock under a lock ID.
func Holder(id string) cluster.ClientID { return cluster.ClientID(clientOf(id)) }

// Writer returns the client that writes states under a lock ID.
func Writer(id string) cluster.ClientID { return cluster.ClientID(clientOf(id) + "/state") }

// plainPrefix and hashPrefix begin the client of a lock ID that is in it, and of one of which it has a hash.
const (
	plainPrefix = "tf-"
	hashPrefix  = "tfh-"
	maxPlain    = 64
)

// clientOf returns the client of a lock ID, which is a UUID but for clients that are not Terraform or OpenTofu.
func clientOf(id string) string {
	odd := func(c rune) bool {
		return !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.')
	}
	if len(id) <= maxPlain && !strings.ContainsFunc(id, odd) {
		return plainPrefix + id
	}
	sum := sha256.Sum256([]byte(id))
	return hashPrefix + hex.EncodeToString(sum[:16])
}

// LockInfo is what a client says of the operation for which it wants the lock, and what others are told of it. The names in JSON
// are those of the protocol.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string // user@host
	Version   string
	Created   time.Time `json:",omitzero"`
	Path      string
}

// errNoID is returned for a request without a lock ID.
var errNoID = errors.New("the lock ID is missing")

// ParseLockInfo reads the body of a LOCK or UNLOCK. It returns an error for one that has no lock ID.
func ParseLockInfo(b []byte) (*LockInfo, error) {
	i := &LockInfo{}
	if err := json.Unmarshal(b, i); err != nil {
		return nil, fmt.Errorf("the body is no LockInfo of Terraform: %w", err)
	}
	if i.ID == "" {
		return nil, errNoID
	}
	return i, nil
}

// Metadata returns the information as metadata of a grant. Texts for which there is no room are left out, the ID never.
func (i *LockInfo) Metadata() (string, error) {
	short := *i
	for _, text := range []*string{nil, &short.Info, &short.Path, &short.Who, &short.Operation, &short.Version} {
		if text != nil {
			*text = ""
		}
		b, err := json.Marshal(&short)
		if err != nil { // a date that JSON does not have
			return "", fmt.Errorf("the LockInfo cannot be kept: %w", err)
		}
		if len(b) <= cluster.MaxMetadata {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("the lock ID is too long: %d bytes", len(i.ID))
}

// HolderOf returns what others see of the holder.
func (i *LockInfo) HolderOf() locktable.Holder {
	user, host, found := strings.Cut(i.Who, "@")
	if !found {
		user, host = "", i.Who
	}
	return locktable.Holder{Host: text(locktable.HostOf(user, host)), Command: text(strings.TrimSpace("terraform " + i.Operation))}
}

// text returns s, cut where it is too long for the lock table.
func text(s string) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > cluster.MaxText {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Held is what is known of the holder of a lock: of one that is not Terraform, too.
type Held struct {
	Client   cluster.ClientID
	Token    cluster.Token
	Who      string // user@host
	Command  string
	Since    time.Time
	Metadata string // "" if it is not known
}

// InfoOf returns what a client is told of the holder: its own LockInfo if there is one, else one made of what is known.
func InfoOf(name Name, h *Held) *LockInfo {
	id, plain := strings.CutPrefix(string(h.Client), plainPrefix)
	if i, err := ParseLockInfo([]byte(h.Metadata)); err == nil && clientOf(i.ID) == string(h.Client) {
		return i
	}
	switch {
	case h.Token == 0: // it is free, and others were there before
		return &LockInfo{ID: "holdfast-queue", Operation: "others wait for the lock", Path: string(name.Lock())}
	case !plain:
		id = fmt.Sprintf("holdfast-token-%d", h.Token)
	}
	return &LockInfo{ID: id, Operation: h.Command, Who: h.Who, Created: h.Since, Path: string(name.Lock())}
}

// Request returns the request ID of a write of this state. It returns an error for what is no state.
func Request(state []byte) (cluster.RequestID, error) {
	var s struct {
		Serial *uint64 `json:"serial"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return 0, fmt.Errorf("the body is no state of Terraform: %w", err)
	}
	if s.Serial == nil || *s.Serial >= uint64(DeleteRequest)-1 {
		return 0, errors.New("the body is no state of Terraform: it has no serial, which is a whole number that rises with each write")
	}
	return cluster.RequestID(*s.Serial + 1), nil
}

// gzipMagic begins a state that is kept compressed. No JSON begins so.
const gzipMagic = "\x1f\x8b"

// TooLargeError is returned for a state that one append does not carry, compressed either.
type TooLargeError struct{ Size, Packed int }

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the state has %d bytes, and %d compressed: at most %d are kept; divide it into several", e.Size, e.Packed, cluster.MaxAppend)
}

// Pack returns the data of the append that keeps a state: the state, or its compression if one append does not carry it. It returns a *TooLargeError
// if it does not carry that either.
func Pack(state []byte) ([]byte, error) {
	if len(state) <= cluster.MaxAppend {
		return state, nil
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(state)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress a state: %w", err)
	}
	if b.Len() > cluster.MaxAppend {
		return nil, &TooLargeError{Size: len(state), Packed: b.Len()}
	}
	return b.Bytes(), nil
}

// Unpack returns the state that an append keeps, nil for a deletion.
func Unpack(data []byte) ([]byte, error) {
	switch {
	case string(data) == Deleted:
		return nil, nil
	case !bytes.HasPrefix(data, []byte(gzipMagic)):
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the state cannot be decompressed: %w", err)
	}
	state, err := io.ReadAll(io.LimitReader(z, MaxState+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the state cannot be decompressed: %w", err)
	case len(state) > MaxState:
		return nil, fmt.Errorf("the state has more than %d bytes", MaxState)
	}
	return state, nil
}
