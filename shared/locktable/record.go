// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Kind is what a record does. Kinds are numbered for ever: append only.
type Kind uint8

// The record kinds and the fields each one carries. This list, with the field
// numbers in codec.go, is the format of a record. Every record has LSN, Epoch
// and Kind; "request" stands for Client, Request, LowWater and Hash.
const (
	// KindGrant gives Lock to Client: request, Lock, TTL, Mode, Holder, Metadata,
	// MaxHold, Heartbeat. Token = LSN.
	// If the request waits in the queue of Lock, its place is taken out.
	KindGrant Kind = 1
	// KindEnqueue puts a request at the end of a queue: request, Lock, TTL, Wait,
	// Mode, Holder, Metadata, MaxHold, Heartbeat.
	KindEnqueue Kind = 2
	// KindRelease ends the grant Token of Lock: request, Lock, Token.
	KindRelease Kind = 3
	// KindExpire ends the grant Token of Lock because its lease ran out, or its MaxHold: Lock, Token, Reason.
	KindExpire Kind = 4
	// KindWaitTimeout takes a waiter out, its deadline passed or its client silent: Lock, Client, Request.
	KindWaitTimeout Kind = 5
	// KindCancel takes a waiter out, or leaves a tombstone so that the request
	// never executes: Client, Request (the cancelled one), LowWater, Lock (if it waited).
	KindCancel Kind = 6
	// KindAppend appends Data to File at Offset: request, Lock, Token, File,
	// Generation, Offset, Length, CRC, Data.
	KindAppend Kind = 7
	// KindBind binds File to Lock: request, Lock, Token, File, Inode,
	// Generation, Offset (= size of the file when it was bound). The Bind of a
	// first append has Client but no Request: the Append behind it has.
	KindBind Kind = 8
	// KindUnbind ends a binding: request, Lock, Token, File, Remember.
	KindUnbind Kind = 9
	// KindQuarantine stops a file: File, Generation, Reason.
	KindQuarantine Kind = 10
	// KindRotate gives a file a new, empty inode: request, Lock, Token, File, Inode, Generation (the new one), Remember.
	KindRotate Kind = 11
	// KindForceClear drops all holders and waiters; receipts, bindings and token order stay.
	KindForceClear Kind = 12
	// KindBreak ends the grant Token of Lock on an operator's word: request, Lock,
	// Token, Actor, Reason. That at the end of an Ask's grace is nobody's request.
	KindBreak Kind = 13
	// KindOpenClient creates the client @<LSN>-<Mark> for Nonce: Nonce, Mark. Without a Mark,
	// as it was once, it creates @<LSN>.
	KindOpenClient Kind = 14
	// KindForgetClient drops a client and its receipts: Client. It holds nothing and waits for nothing.
	KindForgetClient Kind = 15
	// KindResigned is the last record of a reign that ended on purpose: Reason.
	KindResigned Kind = 16
	// KindReign is the first record of a reign: Server.
	KindReign Kind = 17
	// KindMetadata replaces what the holder says with its grant: request, Lock, Token, Metadata.
	KindMetadata Kind = 18
	// KindAsk asks the holder to let go within Wait, behind which the grant is
	// broken: request, Lock, Token, Wait, Actor, Reason.
	KindAsk Kind = 19
	// KindSeal ends a generation of File: nothing is appended to it behind Offset, where
	// it ends: request, Lock, Token, File, Generation, Offset.
	KindSeal Kind = 20
	// KindDowngrade makes the exclusive grant Token of Lock a shared one: request, Lock, Token.
	KindDowngrade Kind = 24

	// KindAlready answers a request whose end was reached before: File was bound to Lock, or
	// sealed, already: request, Lock, Token, File, Generation, Offset. It changes nothing but
	// leaves a receipt, so that a late duplicate of the request does nothing either.
	KindAlready Kind = 25

	// MaxKind is the highest of them.
	MaxKind = KindAlready
)

// Mode is how a lock is held: by one alone, or by any number together.
type Mode uint8

// The lock modes.
const (
	ModeExclusive Mode = 0
	ModeShared    Mode = 1
)

// Holder describes who holds or waits, for people.
type Holder struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Record is one entry of the log: one change of the table. The zero value of a
// field means that the kind does not use it.
type Record struct {
	LSN   cluster.LSN
	Epoch cluster.Epoch
	Kind  Kind

	Client   cluster.ClientID
	Request  cluster.RequestID
	LowWater cluster.RequestID // requests of Client below it are forgotten
	Hash     uint64            // of the request's content

	Lock   cluster.LockName
	Token  cluster.Token
	TTL    time.Duration
	Wait   time.Duration // WaitForever or positive; of an Ask its grace
	Mode   Mode
	Holder Holder

	File       cluster.FileName
	Generation cluster.Generation
	Inode      uint64
	Offset     int64
	Length     int64
	CRC        uint32 // CRC-32C of Data
	// Data of an append. It is kept apart from the other fields in frames and
	// left out of pushes, history and the chain value, which see Length and CRC.
	Data []byte

	Actor  string
	Reason string
	Nonce  uint64
	Server cluster.ServerID
	Mark   cluster.Mark // of the cluster

	// Metadata is what a holder says with its grant, for whoever looks.
	Metadata string
	// MaxHold ends a grant however often it is renewed; 0 = no end.
	MaxHold time.Duration
	// Heartbeat says that a lease is renewed by the use of its own token only, and not by
	// its client's keep-alives.
	Heartbeat bool
	// Remember says that the table goes on knowing what the binding that ends here used:
	// records of older binaries, which did not, are applied as they always were.
	Remember bool
	// Time is when the primary decided the record, in milliseconds since 1970 by its
	// clock. It is for people: nothing is decided by it.
	Time int64
}

// WaitForever as a Wait means no deadline.
const WaitForever time.Duration = -1
