// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"strings"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// Class is what a client speaks.
type Class int

// String returns the name of a class that has a listener.
func (c Class) String() string {
	return [...]string{Text: "text", HTTP: "http", GRPC: "grpc", Sessions: "session"}[c]
}

// The classes that have a listener.
const (
	Text Class = iota
	HTTP
	GRPC
	Sessions
	served int = iota // how many there are
)

const (
	undecided Class = -1 - iota // more bytes are needed
	overTLS                     // what is spoken shows behind a handshake
	gateway                     // what follows its preface is passed on
)

const (
	// maxFirst is how many bytes tell every class. It is longer than the preface of sessions, and than any method
	// that a browser or an HTTP library sends, with the space behind it.
	maxFirst = 16
	// roomFirst is how much is read at most before the class is known. A session's preface and settings fit, so that
	// the client's share of setting it up has been done when it gets its turn.
	roomFirst = 64
	// tlsHandshake begins a connection over TLS: the type of its first record, and the major version of the protocol.
	tlsHandshake = "\x16\x03"
	// http2 is the method that the preface of HTTP/2 pretends to have.
	http2 = "PRI"
)

// classify returns the class of a connection that begins with b. Of maxFirst bytes it is never undecided, and once it
// is not, more bytes do not change it.
func classify(b []byte) Class {
	if len(b) == 0 {
		return undecided
	}
	switch b[0] {
	case frames.Preface[0]:
		return begins(b, frames.Preface, Sessions)
	case GatewayPreface[0]:
		return begins(b, GatewayPreface, gateway)
	case tlsHandshake[0]:
		return begins(b, tlsHandshake, overTLS)
	}
	word := 0
	for word < len(b) && inMethod(b[word]) {
		word++
	}
	switch {
	case word >= maxFirst:
		return HTTP // no line begins like this, and a method may
	case word == len(b):
		return undecided
	case word == 0 || b[word] != ' ':
		return Text
	case string(b[:word]) == http2:
		return GRPC
	default:
		return HTTP
	}
}

// begins returns c if b begins with all of preface, and Text if it differs from it.
func begins(b []byte, preface string, c Class) Class {
	n := min(len(b), len(preface))
	switch {
	case string(b[:n]) != preface[:n]:
		return Text
	case n < len(preface):
		return undecided
	default:
		return c
	}
}

// inMethod reports whether a method of HTTP may have this byte: a "tchar" of RFC 9110, 5.6.2. A comma is none, and
// neither is the end of a line.
func inMethod(b byte) bool {
	return '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}
