// SPDX-License-Identifier: Apache-2.0

// Package api is how clients reach a server: thin front ends, gRPC and
// HTTP/JSON, over one Backend. A front end translates and nothing else; what is
// allowed, decided and committed is the Backend's business.
//
// Every server runs every front end. A replica answers reads from its own
// table, saying how old they are, and SECONDARY_MODE to gRPC writes; its HTTP
// front end forwards writes to the primary.
//
// # Calls without IDs
//
// The server that receives a call without client_id and request_id makes them,
// before it decides or forwards, and returns them with protected = false. It
// also cleans up behind such a call: when it ends before its answer, nobody else
// can ever ask for that answer, so the acquire is cancelled, and released if it
// was granted meanwhile.
//
// A call that brought IDs leaves its place in the queue when it ends. Its client
// may come back for it over another connection, perhaps before this one is
// known to be broken: to cancel or release then would take a lock from a client
// that was just told it has it. Such a place lives by its client's open calls and
// keep-alives; a client that gives up says Cancel.
//
// # Sessions
//
// A session is a stream within one reign. Operations are handed in without waiting
// for them, and their answers leave as they come, many in one message. Nothing is
// bound to the stream: what a client holds or waits for lives by its keep-alives, on
// whichever stream or call they come.
//
// # Watches
//
// A watch is served from the hub of its server, which has one for its life, so by
// every server that is fed. It goes on over changes of role where the log does;
// where events are missing it goes on with a reset that says why, and never with one to an
// earlier state than was told. It ends, with a message that says why, when its server's
// reign does, when a replica is not fed for the storage timeout, or when its client reads
// too slowly.
//
// Over HTTP it is a stream of server-sent events: sse.go says which.
//
// # Forwarding
//
// What any primary would refuse, whatever its table, is refused here. The
// rest is forwarded. Only a call that came from a client is, never one that was
// forwarded, so it makes one hop. A forward that certainly did nothing is tried
// again for a short while. One that may have been executed is tried a few times more,
// with the same IDs, if that makes it a repeat; without repeat protection
// (a made client ID has none but for grants) the answer is UNKNOWN. A call that
// the end of this server's own reign left unknown is such an attempt.
package api

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// Backend is the server behind the front ends. All methods are safe for use by
// several goroutines. A status in an Outcome or Reading is an answer; an error
// is a context that ended.
type Backend interface {
	// Do executes a request and takes it over. See primary.Primary.Do.
	Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error)
	// Reign is the reign of this server, nil if it has none.
	Reign() Reign
	// Renew extends the lease of a grant.
	Renew(ctx context.Context, lock cluster.LockName, token cluster.Token) (locktable.Outcome, error)
	// KeepAlive renews all that a client holds and waits for, see primary.Primary.KeepAlive.
	KeepAlive(ctx context.Context, client cluster.ClientID, b primary.Belief) (
		grants []locktable.Grant, asks []locktable.Ask, out locktable.Outcome, err error)
	// Read lets f look at a table, during the call: the primary's, or a replica's own.
	Read(ctx context.Context, f func(primary.View)) (Reading, error)
	// Recent is what ended lately, as far as this server has it in memory.
	Recent() history.Recent
	// SearchHistory looks through the files of the history, newest first, until ctx ends.
	SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (volume.History, error)
	// File is what the table knows of a protected file all of whose bytes are in it, see
	// primary.Primary.File. Only a primary tells. A message may say why there is nothing.
	File(ctx context.Context, name cluster.FileName) (state locktable.FileState, bound bool, r Reading, message string, err error)
	// OpenFile opens a protected file of the volume for reading. It may take as long as the
	// filesystem does, as may every use of what it returns.
	OpenFile(name cluster.FileName) (SharedFile, error)
	// Blame reads the index of protected files on the volume. It may take as long as the
	// filesystem does.
	Blame(ctx context.Context, q volume.BlameQuery) (volume.Blame, error)
	// Hub is where this server's events are, whatever its role. It is the same for ever.
	Hub() *watch.Hub
	// Primary is who is believed to reign.
	Primary() (m cluster.Member, epoch cluster.Epoch, ok bool)
	// Handover moves the reign to a server, with 0 to the lowest able one, and says to which.
	Handover(ctx context.Context, to cluster.ServerID) (cluster.ServerID, error)
	// Status describes all servers as this one sees them. It never touches the volume.
	Status() ClusterStatus
	// Timing is what requests are validated against.
	Timing() cluster.Timing
}

// SharedFile is an open file of the volume.
type SharedFile interface {
	io.ReaderAt
	io.Closer
	// Inode is its identity.
	Inode() uint64
}

// Reading says what a read saw.
type Reading struct {
	// Status is OK, or why there was nothing to read.
	Status cluster.Status
	LSN    cluster.LSN
	Epoch  cluster.Epoch
	// Local is true for a replica's answer, which may be old.
	Local bool
	// Age is how long ago the replica heard of its primary; 0 at the primary.
	Age time.Duration
}

// ClusterStatus is what one server knows of all.
type ClusterStatus struct {
	ClusterID string
	Server    cluster.ServerID // who answers
	Epoch     cluster.Epoch    // the highest known
	Servers   []ServerStatus   // in order of ID
}

// CanaryStatus says what a replica saw of the number that its primary raises on
// the volume every second. A primary looks at none.
type CanaryStatus struct {
	// Looks counts the comparisons.
	Looks uint64
	// Age is how long ago the last one was.
	Age time.Duration
	// MaxLag is the longest time for which a plain read showed an older value than was told.
	MaxLag time.Duration
	// StaleReads counts those, StaleDirectReads the reads past the caches that
	// were old, of which there must be none.
	StaleReads, StaleDirectReads uint64
}

// ServerStatus is one server in a ClusterStatus.
type ServerStatus struct {
	Member cluster.Member
	// Role is primary, replica, fencing, candidate or unreachable.
	Role  string
	Epoch cluster.Epoch
	LSN   cluster.LSN
	PID   int // 0 where it is not known
	Able  bool
	// Heard is how long ago it was heard; 0 for the server that answers.
	Heard time.Duration
	// Storage is the age of its last volume check or write that came back.
	Storage time.Duration
	// Filesystem is the kind of the volume, of the server that answers.
	Filesystem string
	Network    bool
	// FreeBytes is what the volume has room for, as of a moment ago; 0 where it is not known.
	FreeBytes int64
	// Full says that the log cannot grow; a primary knows.
	Full bool
	// Version and Uptime are of the server that answers, Path is its volume's directory.
	Version string
	Uptime  time.Duration
	Path    string
	// Warnings say what is wrong with the volume, for people.
	Warnings []string
	// Canary says how old the reads of the server that answers were.
	Canary CanaryStatus
	// Unwaited says that answers should wait for this replica, and do not.
	Unwaited bool
	// FeatureLevel is up to which it can apply records; 0 where it is not known.
	FeatureLevel uint32
	// Conflict says that two processes use this ID.
	Conflict bool
}
