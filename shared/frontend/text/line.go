// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// The answers that are words.
const (
	success        = "SUCCESS"
	fail           = "FAIL"
	none           = "NONE"
	denied         = "DENIED"
	limited        = "LIMITED"
	failed         = "ERROR"
	timeout        = "TIMEOUT"
	invalidFormat  = "INVALID_FORMAT"
	invalidCommand = "INVALID_COMMAND"
)

const (
	// maxLine bounds a line without its end, in bytes.
	maxLine = 1024
	// maxClient bounds the name of a client, in bytes: with what clientID adds it must be a client ID.
	maxClient = 96
	// defaultTTL is that of a LOCK which names none.
	defaultTTL = 30 * time.Second
	// maxWait bounds how long a LOCK may wait.
	maxWait = 24 * time.Hour
)

// quit is the command that ends a connection, and auth the one that says whose it is. The others are those of the table
// of operations.
const (
	quit = "QUIT"
	auth = "AUTH"
)

// line is a decoded line. Fields that its command does not have are zero.
type line struct {
	command string
	lock    cluster.LockName
	client  string
	ttl     time.Duration // as given; 0 = none was
	wait    time.Duration
	token   cluster.Token // 0 = any
	// credential is that of AUTH.
	credential string
}

// parse decodes a line without its end. If refusal is not "", it is the answer.
func parse(b []byte) (l line, refusal string) {
	s := string(b)
	if len(s) > maxLine || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return line{}, invalidFormat
	}
	fields := strings.Split(s, ",")
	if s == "" {
		return line{}, invalidFormat
	}
	c, ok := commandNamed(fields[0])
	if !ok {
		return line{}, invalidCommand
	}
	fields = fields[1:]
	if len(fields) < c.Fewest || len(fields) > c.Most {
		return line{}, invalidFormat
	}
	l.command = c.Verb
	for i, f := range fields {
		if f == "" || f != strings.TrimSpace(f) || !l.setField(i, f) {
			return line{}, invalidFormat
		}
	}
	return l, ""
}

func commandNamed(s string) (ops.Line, bool) {
	switch {
	case strings.EqualFold(s, quit):
		return ops.Line{Verb: quit}, true
	case strings.EqualFold(s, auth):
		return ops.Line{Verb: auth, Fewest: 1, Most: 1}, true
	}
	if o := ops.OfVerb(s); o != nil {
		return o.Line, true
	}
	return ops.Line{}, false
}

// setField reads the field at this place after the command.
func (l *line) setField(place int, s string) (ok bool) {
	switch {
	case l.command == auth:
		l.credential = s
		return true
	case place == 0:
		l.lock = cluster.LockName(s)
		return l.lock.Validate() == nil
	case place == 1:
		l.client = s
		return validClient(s)
	case l.command != "LOCK":
		n, err := strconv.ParseUint(s, 10, 64)
		l.token = cluster.Token(n)
		return err == nil && n > 0
	case place == 2:
		l.ttl, ok = parseDuration(s)
		return ok && l.ttl > 0
	default:
		l.wait, ok = parseDuration(s)
		return ok && l.wait <= maxWait
	}
}

// parseDuration reads whole seconds, or a Go duration in whole milliseconds.
func parseDuration(s string) (time.Duration, bool) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d%time.Millisecond == 0
}

// validClient reports whether this may be the name of a client.
func validClient(s string) bool {
	switch s {
	case success, fail, none, denied, failed, timeout, invalidFormat, invalidCommand:
		return false // OWN's answer would be ambiguous
	}
	first := s[0]
	letter := first|0x20 >= 'a' && first|0x20 <= 'z' || first >= '0' && first <= '9' || first == '_'
	return letter && len(s) <= maxClient && cluster.ClientID(s).Validate() == nil
}

// prefix begins the client IDs of this front end. Those that servers draw are in upper case.
const prefix = "~text/"

// hashDigits is the length of a hash in a client ID.
const hashDigits = 16

// clientID returns the ID of a client in the lock table, for one lock. Where the hashes of two locks
// are the same, a client that is heard for one keeps the other, and nothing worse.
func clientID(client string, lock cluster.LockName) cluster.ClientID {
	return cluster.ClientID(fmt.Sprintf("%s%s/%0*x", prefix, client, hashDigits, xxhash.Sum64String(string(lock))))
}

// ownerOf returns the name of a holder in an answer to OWN.
func ownerOf(id cluster.ClientID, lock cluster.LockName) string {
	s := string(id)
	if name, ok := strings.CutPrefix(s, prefix); ok && len(name) > hashDigits+1 {
		if name = name[:len(name)-hashDigits-1]; clientID(name, lock) == id {
			return name
		}
	}
	if id.Opened() || id.Anonymous() {
		return s
	}
	return "=" + s
}

// releaseID is the request ID of every release: of such clients only grants are remembered.
const releaseID cluster.RequestID = 1

// acquireID returns the request ID of an acquire. The same line always has the same one, at every
// server, and so the same place in the queue and the same grant.
func acquireID(lock cluster.LockName, ttl, wait time.Duration) cluster.RequestID {
	h := xxhash.Sum64String(fmt.Sprintf("%s,%d,%d", lock, ttl, wait))
	return max(cluster.RequestID(h)&locktable.MaxRequestID, releaseID+1)
}
