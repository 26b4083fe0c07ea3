// SPDX-License-Identifier: Apache-2.0

// Package serving declares what front ends need of the server that they run in: a Backend,
// its Term while it is primary, and the requests and results that pass between them. Every
// server has a Backend, whatever its role, so no front end knows a role.
package serving

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/wal"
)

// Backend is the server behind the front ends. All methods are safe for use by several
// goroutines. A status in an Outcome or Reading is an answer, StatusSecondaryMode where a
// server that is not primary cannot give one; an error is a context that ended, unless the
// method says otherwise.
type Backend interface {
	// Do executes a request and takes it over: the caller must not change it any more, its
	// data included. A repeat of a request, also of one that still waits, gets the same
	// answer. When ctx ends first the request goes on; a cancel ends it. The caller is
	// q.Identity, and not that of ctx.
	Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error)
	// Term returns the term of this server, nil if it is not primary.
	Term() Term
	// Renew extends the lease of a grant, whichever client asks: its identity has to be that of
	// the caller of ctx, see CallerOf.
	Renew(ctx context.Context, lock cluster.LockName, token cluster.Token) (locktable.Outcome, error)
	// KeepAlive renews all that a client holds and waits for. Where the client does not hold
	// what it believes, grants lists what it holds, and is not nil even if that is nothing.
	// Asks are the release requests to holders among its grants. The client has to belong to the
	// identity of the caller of ctx, or to none.
	KeepAlive(ctx context.Context, client cluster.ClientID, b Belief) (
		grants []locktable.Grant, asks []locktable.Ask, out locktable.Outcome, err error)
	// Read calls f with a view of the table: the primary's, or a replica's own, which may be
	// old. What f saw may leave the process when Read returns OK. After an error f may still run.
	Read(ctx context.Context, f func(View)) (Reading, error)
	// Recent returns the grants that ended lately, as far as this server has them in memory.
	Recent() history.Recent
	// SearchHistory looks through the files of the history, newest first, until ctx ends.
	// Its errors are those of the volume.
	SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (historydir.Result, error)
	// File returns the state of a protected file once every append up to that state is
	// written to the file. Bound reports whether the name is bound to a lock. Only a primary
	// answers. A message, if any, is for people and says why there is no state.
	File(ctx context.Context, name cluster.FileName) (state locktable.FileState, bound bool, r Reading, message string, err error)
	// OpenFile opens a protected file of the volume for reading. It may take as long as the
	// filesystem does, as may every use of what it returns. Its errors are those of the volume.
	OpenFile(name cluster.FileName) (SharedFile, error)
	// Blame reads the index of protected files on the volume. It may take as long as the
	// filesystem does. Its errors are those of the volume.
	Blame(ctx context.Context, q index.Query) (index.Blame, error)
	// Hub returns the hub of this server's events, the same in every role.
	Hub() *watch.Hub
	// Primary returns the server that is believed to be primary, and the epoch of its term;
	// ok reports whether one is believed to be.
	Primary() (m cluster.Member, epoch cluster.Epoch, ok bool)
	// Handover moves the primary role to a server, with 0 to the able one that comes first, and returns
	// which. With an error, a server other than 0 means that the term ends nevertheless.
	Handover(ctx context.Context, to cluster.ServerID) (cluster.ServerID, error)
	// Upgrade raises the feature level of the cluster, if every server has said for long enough that it knows that level.
	Upgrade(ctx context.Context, level uint32) (locktable.Outcome, error)
	// Takeover is an operator's permission for this server to be primary once without a majority. It is refused where a
	// primary lives or a majority needs no permission.
	Takeover() locktable.Outcome
	// Status describes all servers as this one sees them. It never touches the volume.
	Status() ClusterStatus
	// Timing returns the durations that requests are validated against.
	Timing() cluster.Timing
}

// Term is the term of a server that is primary, or becomes it. It takes requests without
// waiting for their outcomes.
type Term interface {
	// Epoch returns the number of the term.
	Epoch() cluster.Epoch
	// LSN returns the last one that is committed.
	LSN() cluster.LSN
	// Serving is closed when the takeover is complete and requests are executed.
	Serving() <-chan struct{}
	// Submit hands in requests, in this order, and takes them over, see Backend.Do.
	Submit([]*AsyncRequest)
	// Ended is closed when the term has ended. Requests without an outcome are UNKNOWN then.
	Ended() <-chan struct{}
}

// AsyncRequest is a request that is handed in without waiting for its outcome.
type AsyncRequest struct {
	Request locktable.Request
	// To gets the outcome: exactly once while the term lives, at most once when it ends.
	To ResultSink
	// Correlation and Bytes are the caller's, for its own use in Answer.
	Correlation uint64
	Bytes       int64
	// Abandoned is set when the caller no longer waits for the outcome: the request then
	// does not keep its place in a queue alive. Requests may share it; it is not nil.
	Abandoned *atomic.Bool
	// Trace is the trace of the call, nil for one that is not traced.
	Trace Trace
}

// Unknown returns the outcome of a request that was in flight when the term ended: the next term
// may adopt it or not.
func Unknown() locktable.Outcome {
	return locktable.Outcome{Status: cluster.StatusUnknown, Message: "the term ended: ask again with the same request ID"}
}

// ResultSink receives outcomes. Both methods are called by goroutines of the term and must
// not block.
type ResultSink interface {
	// Answer delivers the outcome of a request.
	Answer(*AsyncRequest, locktable.Outcome)
	// Flush follows the last of some Answers: what they delivered need not wait for more.
	Flush()
}

// Belief is what a client says with a keep-alive that it holds.
type Belief struct {
	// Held is how many tokens the client believes to hold; negative where it does not say.
	Held int
	// Digest is that of those tokens. If it is not nil, Held is ignored.
	Digest *cluster.Digest
	// PlacesOnly leaves the client's grants alone: they are neither renewed nor listed.
	PlacesOnly bool
}

// View is what a read sees: the table at a position. It is valid during the call only. The
// functions are nil at a replica, which knows no leases.
type View struct {
	Table *locktable.Table
	// At is the end of the log that made the table; zero at a replica, see Reading.LSN.
	At wal.Position
	// Remaining returns what is left of a live lease.
	Remaining func(cluster.LockName, cluster.Token) time.Duration
	// Grace returns what is left to a holder that was asked to release.
	Grace func(cluster.Token) time.Duration
	// Heard reports whether the client was heard in this term.
	Heard func(cluster.ClientID) bool
	// Quotas compares what the primary counts for quotas with the table, which takes time in proportion to it; for tests.
	Quotas func() error
}

// Reading says which table a read saw.
type Reading struct {
	// Status is OK, or why there was nothing to read.
	Status cluster.Status
	// LSN and Epoch are those of the table that was read.
	LSN   cluster.LSN
	Epoch cluster.Epoch
	// Local reports whether a replica answered from its own table, which may be old.
	Local bool
	// Age is how long ago the replica heard of its primary; 0 at the primary.
	Age time.Duration
}

// SharedFile is an open file of the volume.
type SharedFile interface {
	io.ReaderAt
	io.Closer
	// Inode returns the identity of the file, which its name may lose.
	Inode() uint64
}

// ClusterStatus is what one server knows of all.
type ClusterStatus struct {
	ClusterID string
	Server    cluster.ServerID // the server that answers
	Epoch     cluster.Epoch    // the highest known
	Servers   []ServerStatus   // in order of ID
	// Level is the feature level of the cluster, as far as this server knows; 0 if it does not.
	Level uint32
	// Next is the highest level that a server knows which this one hears, and NextWaits why the cluster cannot be raised to
	// it. Next is 0 where it is not above Level, and at a server that is not primary.
	Next      uint32
	NextWaits []string
	// Members is the version of the list of servers, and HighestID the highest ID that any version listed.
	Members   uint64
	HighestID cluster.ServerID
	// Own is what this cell owns, which never changes, and Cells are those of the site, this one included, as far as this server knows;
	// nil for a volume of no site.
	Own   *cluster.Own
	Cells []CellServers
}

// CellServers is where a cell of a site is served, for whom to ask. It may be old.
type CellServers struct {
	Cell    cluster.CellID
	Clients []string // HOST:PORT of each of its servers, for clients; empty where that is not known
	// ClusterID is that of its servers, "" where it is not known, and Pin that of their authority, "" where there is none.
	ClusterID, Pin string
	// TLSOnly reports that they take no plain text from other hosts.
	TLSOnly bool
}

// ServerStatus describes one server in a ClusterStatus.
type ServerStatus struct {
	Member cluster.Member
	// Role is primary, replica, fencing, candidate or unreachable.
	Role  string
	Epoch cluster.Epoch
	LSN   cluster.LSN
	PID   int // 0 if not known
	// Able reports whether the server could become primary.
	Able bool
	// Heard is how long ago it was heard; 0 for the server that answers, negative for never.
	Heard time.Duration
	// Storage is the age of its last volume check or write that returned.
	Storage time.Duration
	// Filesystem is the kind of the volume, of the server that answers. Network reports
	// whether it is shared over a network.
	Filesystem string
	Network    bool
	// FreeBytes is the free space of the volume, as of a moment ago; 0 if not known.
	FreeBytes int64
	// Full reports whether the log cannot grow; only a primary knows.
	Full bool
	// Version and Uptime are of the server that answers, Path is its volume's directory.
	Version string
	Uptime  time.Duration
	Path    string
	// Warnings say what is wrong with the volume, for people.
	Warnings []string
	// Canary is how old the reads of the server that answers were.
	Canary CanaryStatus
	// Unwaited reports whether answers should wait for this replica, and do not.
	Unwaited bool
	// FeatureLevel is the highest level of records that it can apply; 0 if not known.
	FeatureLevel uint32
	// Restart are settings of the server that answers which were changed, and count after its restart only.
	Restart []string
	// Conflict reports whether two processes use this ID.
	Conflict bool
	// Joins says why a server that joins is no member yet; only a primary knows.
	Joins string
}

// CanaryStatus says what a replica saw of the number that its primary raises on the volume
// every second. It is zero at a primary.
type CanaryStatus struct {
	// Looks counts the comparisons.
	Looks uint64
	// Age is how long ago the last one was.
	Age time.Duration
	// MaxLag is the longest time for which a plain read showed an older value than the
	// primary had announced.
	MaxLag time.Duration
	// StaleReads counts such reads, StaleDirectReads the reads past the caches that were
	// old, of which there must be none.
	StaleReads, StaleDirectReads uint64
}
