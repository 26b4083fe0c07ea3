// SPDX-License-Identifier: Apache-2.0

// Package cluster holds the types that every part of Holdfast shares: the
// identifiers, the statuses that cross the wire, the members of a cluster
// and the timing that all of them must agree on.
//
// It is pure: no I/O, no clock, no goroutine, no logger.
package cluster

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names, texts and data. They bound memory, frames and messages everywhere.
const (
	// MaxLockName is the longest lock name, in bytes.
	MaxLockName = 512
	// MaxFileName is the longest name of a protected file, in bytes.
	MaxFileName = 512
	// MaxClientID is the longest client ID, in bytes.
	MaxClientID = 128
	// MaxAppend is the most data one FileAppend carries, in bytes.
	MaxAppend = 1 << 20
	// MaxText bounds actor, reason, host and command, in bytes each.
	MaxText = 256
	// MaxMetadata bounds the metadata of a grant, in bytes.
	MaxMetadata = 4096
)

// ServerID is the fixed number of one server, from 1.
type ServerID uint32

// Epoch is the number of one term of one primary. It rises over the life of a volume.
type Epoch uint64

// LSN is a log sequence number. It rises by one per record for the life of the
// volume; 0 is before the first record.
type LSN uint64

// Token returns the token of the grant that the record at this LSN made.
func (l LSN) Token() Token { return Token(l) }

// Token is the fencing token of a grant: the LSN of its Grant record, so tokens
// rise strictly over the whole volume. 0 is no token.
type Token uint64

// RequestID numbers the requests of one client, from 1. 0 is no request.
type RequestID uint64

// Generation counts the inodes that have carried one protected file, from 1.
type Generation uint64

// LockName is a slash-separated name such as "billing/job".
type LockName string

// FileName is the name of a protected file, relative to the volume's files/.
type FileName string

// ClientID identifies a client. It has one of three forms, distinguished by the first byte:
//
//	@<lsn>-<mark>   opened with OpenClient; at-most-once for ever
//	~<text>         made by a server for a call without IDs; no repeat protection
//	other           chosen by the caller (curl); protected for the client retention
//
// The mark is that of the cluster that opened the client, so that no other cluster accepts
// it. Clients that were opened before there were marks have none.
type ClientID string

// Mark distinguishes the clients of one cluster from those of another: it is the beginning
// of the cluster's random ID. 0 is no mark.
type Mark uint32

// MarkOf returns the mark of the cluster with this ID.
func MarkOf(id [16]byte) Mark { return max(1, Mark(binary.BigEndian.Uint32(id[:]))) }

// Opened reports whether the ID came from OpenClient.
func (c ClientID) Opened() bool { return strings.HasPrefix(string(c), "@") }

// Anonymous reports whether a server made the ID for a call without one.
func (c ClientID) Anonymous() bool { return strings.HasPrefix(string(c), "~") }

// oneShot begins the IDs that commands choose which end with their one request.
const oneShot = "cli-"

// OneShotID returns the client ID of one command, made of random text.
func OneShotID(random string) ClientID { return ClientID(oneShot + random) }

// OneShot reports whether the ID is of one call or command only, so that it does not identify a
// client: a token that is used under such an ID was passed on.
func (c ClientID) OneShot() bool { return c.Anonymous() || strings.HasPrefix(string(c), oneShot) }

// OpenedClientID returns the client ID that the OpenClient record at lsn created in the
// cluster with this mark, 0 for none.
func OpenedClientID(lsn LSN, of Mark) ClientID {
	if of == 0 {
		return ClientID("@" + strconv.FormatUint(uint64(lsn), 10))
	}
	return ClientID(fmt.Sprintf("@%d-%08x", lsn, uint32(of)))
}

// OpenedBy returns the LSN of the record that opened the client, and the mark of the cluster,
// 0 for none. It returns zeros for an ID that OpenClient did not make.
func (c ClientID) OpenedBy() (LSN, Mark) {
	if !c.Opened() {
		return 0, 0
	}
	number, mark, marked := strings.Cut(string(c[1:]), "-")
	lsn, err := strconv.ParseUint(number, 10, 64)
	if err != nil || number[0] == '0' {
		return 0, 0
	}
	of := uint64(0)
	if marked {
		of, err = strconv.ParseUint(mark, 16, 32)
		if err != nil || of == 0 || len(mark) != 8 || strings.ToLower(mark) != mark {
			return 0, 0
		}
	}
	return LSN(lsn), Mark(of)
}

// Validate checks length and characters: printable ASCII without spaces,
// quotes, commas or a leading "~" or "@" that its form does not allow.
func (c ClientID) Validate() error {
	if c == "" {
		return fmt.Errorf("client ID is empty: leave it out or choose one")
	}
	if len(c) > MaxClientID {
		return fmt.Errorf("client ID has %d bytes, at most %d are allowed", len(c), MaxClientID)
	}
	for i := range len(c) {
		if b := c[i]; b <= ' ' || b > '~' || b == '"' || b == ',' || b == '\\' {
			return fmt.Errorf("client ID %q holds byte %#02x: use printable ASCII without spaces, quotes, commas and backslashes", string(c), b)
		}
	}
	if c.Opened() {
		if lsn, _ := c.OpenedBy(); lsn == 0 {
			return fmt.Errorf("client ID %q: IDs that begin with @ come from OpenClient only", string(c))
		}
	}
	return nil
}

// Validate checks that the name is a clean slash-separated path of valid UTF-8
// without control characters, empty parts, "." or "..".
func (n LockName) Validate() error { return validatePath("lock name", string(n), MaxLockName) }

// Validate checks that the name equals its path.Clean, stays inside files/ and
// holds neither control characters nor backslashes.
func (n FileName) Validate() error {
	if err := validatePath("file name", string(n), MaxFileName); err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(n), "/") {
		if len(part) > 255 {
			return fmt.Errorf("file name: a part has %d bytes, at most 255 are allowed", len(part))
		}
	}
	return nil
}

// plainPath reports whether a path is certainly valid: printable ASCII without parts
// that are empty or begin with a dot. Nearly all are, and every record is validated.
func plainPath(s string) bool {
	first := true // of a part
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '\\' || first && (c == '/' || c == '.'):
			return false
		default:
			first = c == '/'
		}
	}
	return !first
}

func validatePath(what, s string, limit int) error {
	if len(s) <= limit && plainPath(s) {
		return nil
	}
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > limit:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(s), limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8", what)
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\\' }):
		return fmt.Errorf("%s %q holds a control character or a backslash", what, s)
	case s[0] == '/':
		return fmt.Errorf("%s %q begins with a slash: use %q", what, s, strings.TrimLeft(s, "/"))
	case path.Clean(s) != s || s == "." || s == ".." || strings.HasPrefix(s, "../"):
		return fmt.Errorf("%s %q must be relative and clean: no leading or trailing slash, no empty part, no \".\" or \"..\"", what, s)
	}
	return nil
}

// Digest stands for a set of tokens: different sets have, all but certainly, different
// digests. It goes over the wire, so its definition is for ever: the sum, modulo 2^64, of
// the mixed tokens. The zero value is that of the empty set.
type Digest uint64

// With returns the digest of the set with t added.
func (d Digest) With(t Token) Digest { return d + mixed(t) }

// Without returns the digest of the set with t removed.
func (d Digest) Without(t Token) Digest { return d - mixed(t) }

// mixed returns the token after the finalizer of SplitMix64.
func mixed(t Token) Digest {
	x := uint64(t) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return Digest(x ^ x>>31)
}
