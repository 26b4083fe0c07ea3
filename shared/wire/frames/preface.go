// SPDX-License-Identifier: Apache-2.0

// Package frames is the transport of sessions: length-prefixed frames over one connection.
package frames

// Preface is what a client sends first on a connection that is to be a session, so that it is told from everything
// else that a server's client port takes. It never changes: what a later version adds is agreed on behind it.
const Preface = "\xf1HOLDF\x00\x01"
