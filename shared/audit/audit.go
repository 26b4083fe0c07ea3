// SPDX-License-Identifier: Apache-2.0

// Package audit is the format of the audit: lines of JSON that tell what callers were refused, who logged in, and what
// operators did. Package auditdir has the files, package service says what is told.
//
// A line is one object with a time, a kind, and the fields of its kind; a reader skips fields that it does not know. No line has a
// secret: what looks like a credential or a proof in a text that a caller chose is left out.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Kind says what happened.
type Kind string

// The kinds of events.
const (
	// KindStart: a server began to write, with its Program and the Version of the rules in force.
	KindStart Kind = "start"
	// KindDenied: a caller was refused something, which Status and Message tell. With a Count, so many more than those before.
	KindDenied Kind = "denied"
	// KindCredential: a credential was refused. Whose it was is not known. Count as above.
	KindCredential Kind = "credential"
	// KindLogin: somebody got a ticket, and KindLoginFailed: he did not. Count as above.
	KindLogin       Kind = "login"
	KindLoginFailed Kind = "login_failed"
	// KindBreak, KindUnbind, KindRotate: a grant was ended, a file taken from its lock or begun anew, by who may break.
	KindBreak  Kind = "break"
	KindUnbind Kind = "unbind"
	KindRotate Kind = "rotate"
	// KindHandover: the primary role was moved to the server To.
	KindHandover Kind = "handover"
	// KindUpgrade: the feature level of the cluster was to be raised to Level.
	KindUpgrade Kind = "upgrade"
	// KindTakeover: the server To was permitted to be primary without a majority, or that was refused.
	KindTakeover Kind = "takeover"
	// KindMembers: the server To was added to the list of servers, got other addresses or was removed; Command tells which.
	KindMembers Kind = "members"
	// KindRules: a server goes by another Version of the access rules.
	KindRules Kind = "rules"
	// KindCommand: an operator's Command changed the volume. Where it changed access rules or keys, Version and Diff tell how.
	KindCommand Kind = "command"
	// KindLost: Count events before this one are not told, because they could not be written.
	KindLost Kind = "lost"
)

// Denied reports whether events of a kind tell of somebody who got not what he asked for.
func (k Kind) Denied() bool { return k == KindDenied || k == KindCredential || k == KindLoginFailed }

// Event is one line.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Server wrote it; 0: a command on the volume.
	Server cluster.ServerID `json:"server"`
	// Identity is who it was about, as Via has proved it; "" for who has shown no credential, or a bad one. From is where the
	// connection came from: another server, if that passed it on.
	Identity string `json:"identity,omitempty"`
	Via      string `json:"via,omitempty"`
	From     string `json:"from,omitempty"`

	Verb    string           `json:"verb,omitempty"`
	Lock    string           `json:"lock,omitempty"`
	File    string           `json:"file,omitempty"`
	Token   cluster.Token    `json:"token,omitempty"`
	Actor   string           `json:"actor,omitempty"` // as the caller calls himself
	Reason  string           `json:"reason,omitempty"`
	GraceMs int64            `json:"grace_ms,omitempty"`
	To      cluster.ServerID `json:"to,omitempty"`
	Level   uint32           `json:"level,omitempty"`
	Status  string           `json:"status,omitempty"`
	Message string           `json:"message,omitempty"`
	Expires *time.Time       `json:"expires,omitempty"`
	Count   uint64           `json:"count,omitempty"`

	Host    string   `json:"host,omitempty"` // of a command
	Command string   `json:"command,omitempty"`
	Program string   `json:"program,omitempty"`
	Version uint64   `json:"version,omitempty"`
	Diff    []string `json:"diff,omitempty"`
}

const (
	// maxText bounds each text of an event, maxDiff the lines of a diff together, in bytes.
	maxText = 2 << 10
	maxDiff = 48 << 10
	// MaxLine is more than any line has, in bytes: JSON may have six for one.
	MaxLine = 512 << 10
)

// AppendLine appends an event as a line. Texts that are too long are cut.
func (e Event) AppendLine(b []byte) []byte {
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	for _, s := range []*string{&e.Identity, &e.Via, &e.From, &e.Verb, &e.Lock, &e.File, &e.Actor, &e.Reason, &e.Status, &e.Message, &e.Host, &e.Command, &e.Program} {
		*s = cut(withoutSecrets(*s), maxText)
	}
	var diff []string
	left := maxDiff
	for i, line := range e.Diff {
		line = cut(withoutSecrets(line), maxText)
		if left -= len(line) + 4; left < 0 { // quotes and a comma
			diff = append(diff, fmt.Sprintf("... and %d more lines", len(e.Diff)-i))
			break
		}
		diff = append(diff, line)
	}
	e.Diff = diff
	line, err := json.Marshal(e)
	if err != nil { // a year beyond 9999
		e.Time, e.Expires = time.Time{}, nil
		line, _ = json.Marshal(e)
	}
	return append(append(b, line...), '\n')
}

// cut returns a text of at most n bytes and a mark, cut between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// withoutSecrets returns a text without what looks like a key, a ticket, or the JSON Web Token of a proof.
func withoutSecrets(s string) string {
	for _, begin := range []string{"hfk_", "hft_", "eyJ"} {
		for from := 0; ; {
			i := strings.Index(s[from:], begin)
			if i < 0 {
				break
			}
			from += i + len(begin)
			rest := strings.TrimLeftFunc(s[from:], ofToken)
			if len(s[from:])-len(rest) < shortSecret {
				continue
			}
			s = s[:from] + "(left out)" + rest
		}
	}
	return s
}

// shortSecret is less than any secret has behind its first letters.
const shortSecret = 16

func ofToken(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
}

var errLine = errors.New("no line of an audit")

// ParseLine parses a line, without its end. Its error says that the line was torn, or damaged.
func ParseLine(b []byte) (e Event, err error) {
	if err := json.Unmarshal(b, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errLine, err)
	}
	if e.Kind == "" || e.Time.IsZero() {
		return Event{}, fmt.Errorf("%w: it has no kind or no time", errLine)
	}
	return e, nil
}

// isFrom reports whether an event came from an address, with its port or without.
func (e *Event) isFrom(address string) bool {
	host, port, found := strings.Cut(e.From, address)
	return found && strings.Trim(host, "[") == "" && (port == "" || strings.HasPrefix(strings.TrimPrefix(port, "]"), ":"))
}

// Query selects events. The zero value of a field selects all.
type Query struct {
	Since time.Time
	// Who is an identity, or where there is none, an address, with its port or without.
	Who string
	// Denied selects what was refused.
	Denied bool
	// Limit is how many events are returned at most: the newest.
	Limit int
}

// Matches reports whether an event is selected.
func (q *Query) Matches(e *Event) bool {
	return !e.Time.Before(q.Since) && (q.Who == "" || e.Identity == q.Who || e.Identity == "" && e.isFrom(q.Who)) && (!q.Denied || e.Kind.Denied())
}

// Size returns about how many bytes an event takes in memory.
func (e *Event) Size() int {
	n := 400 + len(e.Identity) + len(e.From) + len(e.Lock) + len(e.File) + len(e.Actor) + len(e.Reason) + len(e.Message) + len(e.Command)
	for _, line := range e.Diff {
		n += len(line)
	}
	return n
}
