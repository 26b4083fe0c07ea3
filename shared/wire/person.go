// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxUser is how many bytes of a user's name a client sends. The names of Linux have 32 at most, those of a directory
// service may be longer.
const maxUser = 64

// NewHolder returns a description of a process that servers accept, whatever its texts are: they are cut where they are too
// long. Servers keep user and host as one text.
func NewHolder(user, host, command string, pid int64) *pb.Holder {
	h := &pb.Holder{User: Clip(user, maxUser), Pid: pid, Command: Clip(command, cluster.MaxText)}
	h.Host = Clip(host, cluster.MaxText-len("@")-len(h.User))
	return h
}

// Clip makes a text valid UTF-8 of at most so many bytes.
func Clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// Person is who holds a lock or waits for it, as people are told. All but Client and Identity is what the client says
// of itself.
type Person struct {
	Client, Identity    string
	User, Host, Command string
	PID                 int64
}

// Person returns the holder as people are told of it.
func (h *Holder) Person() string {
	return Person{string(h.Client), h.Identity, h.User, h.Host, h.Command, h.PID}.String()
}

// Person returns the waiter as people are told of it.
func (w *WaiterBody) Person() string {
	return Person{w.ClientID, w.Identity, w.User, w.Host, w.Command, w.PID}.String()
}

// Person returns the waiter as people are told of it.
func (x *RingLinkBody) Person() string {
	return Person{x.ClientID, x.Identity, x.User, x.Host, x.Command, x.PID}.String()
}

// Person returns the former holder as people are told of it.
func (b *PastBody) Person() string {
	return Person{b.ClientID, b.Identity, b.User, b.Host, b.Command, b.PID}.String()
}

// String returns a text such as "alice on web3, backup.sh (pid 4711)". What the client says of itself is marked where
// its identity was proven: "service:ci, calling itself alice on web3, backup.sh (pid 4711)". A client of which nothing else is
// known has its ID. The text is one line that is harmless to a terminal.
func (p Person) String() string { return OneLine(p.text()) }

func (p Person) text() string {
	self := p.self()
	switch {
	case p.Identity != "" && self != "":
		return p.Identity + ", calling itself " + self
	case p.Identity != "":
		return p.Identity
	case self != "":
		return self
	}
	return "client " + p.Client
}

// self returns what the client says of itself, "" for nothing.
func (p Person) self() string {
	place := p.User
	switch {
	case place == "":
		place = p.Host
	case p.Host != "":
		place += " on " + p.Host
	}
	process := ""
	if p.PID != 0 {
		process = fmt.Sprintf("pid %d", p.PID)
	}
	switch {
	case p.Command != "" && process != "":
		process = p.Command + " (" + process + ")"
	case p.Command != "":
		process = p.Command
	}
	return strings.Trim(place+", "+process, ", ")
}
