// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// DefaultBudget is Options.Budget where none is given.
	DefaultBudget = 15 * time.Second
	// DefaultTTL is AcquireOptions.TTL where none is given.
	DefaultTTL = 30 * time.Second
	// DefaultAttempt is Options.Attempt where none is given.
	DefaultAttempt = time.Second
	// Forever is the Wait that has no end.
	Forever time.Duration = -1
)

// Clock never goes backwards, and runs while the machine sleeps.
type Clock interface {
	// Now is the time since some fixed moment.
	Now() time.Duration
}

// Holder describes the process of a holder, for people who see who holds a lock. It is what the client says of itself: nothing
// proves it, see Identity for that.
type Holder struct {
	// Host is the name of its machine, and PID its number there.
	Host string
	PID  int
	// Command is the name of its program, or of its script.
	Command string
	// User is the operating system's user that runs it.
	User string
}

// Options configure a Client.
type Options struct {
	// Endpoints are the addresses for clients, host:port, of some servers, at least one.
	// Name all of them: the primary is found through any that answers. Servers at such addresses are asked in plain
	// text. Alone, an endpoint may also be the path of the volume as this machine has it, which begins with "/", "./" or
	// "../", or a join string, holdfast://..., as holdfast join prints it. Then servers are asked over TLS, and
	// have to prove that they are of this cluster; see package join. An address that begins with https:// is that of a server
	// with a certificate that this machine trusts.
	Endpoints []string
	// ClientID is a name that the program chooses. Leave it empty unless the name must outlive
	// the process: then the service makes one, which no other client gets, and whose requests are
	// protected against repeats for ever. Only one Client at a time may use a chosen name; it
	// takes over, and releases, what an earlier one still holds. Of a chosen name the service
	// remembers only the last 64 requests. So there is a limit to what is under way: of 24
	// requests from the oldest open one on, the next waits its turn, and a 17th Acquire that
	// waits is refused with ErrInvalidArgument. A wait whose answer is lost and that 64 other
	// requests overtake ends with ErrStaleRequest.
	ClientID ClientID
	// FirstRequest is where the request numbers start. The default is 1, and with a ClientID the
	// time in microseconds, so that a new process does not repeat the numbers of the one before.
	// Where that process ran with a clock that was ahead of this one's, every request is refused
	// with ErrStaleRequest until this clock has caught up, unless FirstRequest is higher.
	FirstRequest RequestID
	// Budget is how long one call may search for a primary that answers. A waiting Acquire does
	// not use it up while it is connected and waits. 0 = DefaultBudget.
	Budget time.Duration
	// Attempt is how long one try may take before the next one, under the same
	// request ID. 0 = DefaultAttempt.
	Attempt time.Duration
	// Holder is what others see of this process. Zero fields come from the
	// operating system; the command is the program's name without arguments, for
	// those may be secret.
	Holder Holder
	// Log gets slow renewals, strays and lost locks. nil = silent.
	Log *slog.Logger
	// Hooks are called when something happens, for metrics. The zero value calls nothing.
	Hooks Hooks
	// Clock is the clock of leases. nil = CLOCK_BOOTTIME where there is one.
	Clock Clock
	// Rand returns random numbers, to several goroutines at once. nil = math/rand/v2.
	Rand func() uint64
	// Dialer connects to an endpoint, as it is spelled in Endpoints or as a server names another one.
	// nil = TCP to host:port, a socket of the filesystem for unix:PATH.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// Credential returns what this client shows to prove who it is, a key or a ticket; nil, or "", = nothing. It is called
	// for each connection, again before a ticket expires, and by several goroutines. cluster is the ID of the cluster
	// that the server has proved to be of, "" if it has proved none. A credential is sent over TLS, or to an address of
	// this host, only: else calls fail. FromEnvironment is one.
	Credential func(ctx context.Context, cluster string) (string, error)
	// Certificate returns the certificate, with its key, by which this client proves who it is to servers that ask for one (holdfast
	// server --client-ca); nil, or one that returns nil, = none. It is shown over TLS only, and a Credential counts instead. It is called for each
	// handshake, and by several goroutines. When it returns one that is good for longer than the one that was shown, connections are
	// made anew before that expires. CertificateFiles returns one, and CertificateFromEnvironment is one.
	Certificate func() (*tls.Certificate, error)

	trust *join.Trust // in the servers at Endpoints, which complete has made addresses; nil = plain text
}

// FromEnvironment is an Options.Credential. It returns the first of these that is there, or "":
//
//	HOLDFAST_KEY                            the credential
//	HOLDFAST_KEY_FILE                       the name of a file with it
//	$CREDENTIALS_DIRECTORY/holdfast.key     which a service manager makes, such as systemd
//	key-file in a configuration of clients  the name of a file with it: ~/.config/holdfast/config.toml or /etc/holdfast/client.toml
//	~/.config/holdfast/CLUSTER.ticket       which holdfast login writes; others must not be able to read it
//
// Where none is there, and the endpoint is the path of a volume that takes logins by its filesystem, the client logs in.
func FromEnvironment(ctx context.Context, cluster string) (string, error) {
	return credential.FromEnvironment(os.Getenv, nil)(ctx, cluster)
}

// CertificateFromEnvironment is an Options.Certificate. It returns the certificate in the files that HOLDFAST_CERT and HOLDFAST_CERT_KEY name, else cert and
// cert-key in a configuration of clients, and nil where none is named. Options.Credential = FromEnvironment makes no ticket then.
func CertificateFromEnvironment() (*tls.Certificate, error) {
	return credential.CertificateFromEnvironment(os.Getenv)()
}

// CertificateFiles returns an Options.Certificate that is in two files in PEM: the certificate, with those of the authorities between it and
// one that servers know, and its key. They are read for each handshake, so a renewed certificate is used without a restart.
func CertificateFiles(cert, key string) func() (*tls.Certificate, error) {
	return join.CertificateFiles(cert, key)
}

// AcquireOptions say how to acquire a lock. The zero value tries once, for a lock alone.
type AcquireOptions struct {
	// TTL is how long the lease lasts without a renewal: how long others wait
	// when this process dies. 0 = DefaultTTL.
	TTL time.Duration
	// Wait is how long to wait in the queue: 0 = try once, Forever = no end. The service counts
	// it, over failovers too; the context bounds the call.
	Wait time.Duration
	// MaxHold ends the grant after this time however often it is renewed: a bound for a
	// holder that hangs. At least TTL; 0 = no end. A failover counts it afresh.
	MaxHold time.Duration
	// Heartbeat leaves the renewals to the caller: it calls Lock.Renew, or uses the token in
	// another way, whenever its work has got on. Nothing else keeps the lock alive.
	Heartbeat bool
	// Metadata is a text that the holder publishes with its grant: UTF-8, at most MaxMetadata
	// bytes. See Lock.SetMetadata.
	Metadata string
	// Shared asks to hold the lock together with others that share it. Turns are phase-fair: it
	// waits for at most one exclusive holder, and delays no request for the lock alone. Under
	// such a grant nothing can be appended, and there is no upgrade: Release, and Acquire again.
	Shared bool
	// AfterToken acquires the lock only if nobody was granted it since it was granted under this token, so that everything it
	// protects is as that holder left it: a cache is valid, a laptop that slept goes on. Else the error is ErrLockChanged,
	// also where nobody knows. It needs a Wait of 0, and a grant of the lock with Remember or AfterToken before. 0 = no condition.
	AfterToken Token
	// Remember has the service remember the lock's last token when nobody holds it any more, for a later AfterToken. The service
	// forgets it when the lock was not acquired for 90 days, and when it remembers something of 65536 locks that were used later.
	Remember bool
	// Once is a slot, such as "2026-11-22" or "build-17", for which something is done once. Release the lock by Lock.Done when it is
	// done: from then on an Acquire of the lock for that slot, or an earlier one, is refused with ErrAlreadyDone, also one that
	// waits. Where the holder fails before, the next one gets the lock. Slots come in order, numbers in them by their
	// value. What is done is remembered as long as with Remember. Printable ASCII without spaces, at most 64 bytes.
	Once string
	// Limit makes the lock a semaphore: it is held by as many at a time as there are permits. All who hold the lock or wait for it have to
	// give the same Limit, else the error is ErrOtherLimit; nobody sets it up before. Whoever comes first is served first, also one that needs
	// much. Each holder has a lease, a token and metadata of its own, and can append nothing. 0 = no limit: see Shared.
	Limit uint32
	// Weight is how many of the permits this holder takes, at most Limit. 0 = 1.
	Weight uint32
}

// BreakOptions say how an operator ends a grant.
type BreakOptions struct {
	// Token is that of the grant to end; 0 = the live one, if there is only one.
	Token Token
	// Grace asks the holder first, and gives it that long to release the lock: see Lock.States. 0
	// = end the grant at once.
	Grace time.Duration
	// Actor and Reason say who ends it and why, to the holder and in the history.
	Actor, Reason string
}

// AppendOption changes one Append or Bind.
type AppendOption func(*appendOptions)

type appendOptions struct {
	adoptExisting bool
	at            *int64
}

// AdoptExisting binds a file that is there already, and not empty, with its content.
func AdoptExisting() AppendOption { return func(o *appendOptions) { o.adoptExisting = true } }

// At appends only if the file ends at this offset, in bytes. Else nothing is appended and the
// error is an *OffsetError with the end of the file. Bind ignores it.
func At(offset int64) AppendOption { return func(o *appendOptions) { o.at = &offset } }

func appendOptionsOf(opts []AppendOption) appendOptions {
	var o appendOptions
	for _, f := range opts {
		f(&o)
	}
	return o
}

// complete fills in the defaults and checks the rest.
func (o Options) complete() (Options, error) {
	var err error
	named := o.Endpoints
	if o.Endpoints, o.trust, err = join.Resolve(o.Endpoints); err != nil {
		return o, err
	}
	o.trust.Show(o.Certificate)
	if o.Credential != nil {
		o.Credential = credential.Source(o.Credential).Beside(o.Certificate)
	}
	if o.Credential != nil && len(named) == 1 && join.IsPath(named[0]) {
		o.Credential = credential.Source(o.Credential).At(named[0], nil)
	}
	if len(o.Endpoints) == 0 {
		return o, errors.New("no endpoints: name at least one server, host:port")
	}
	for _, e := range o.Endpoints {
		if e == "" || strings.ContainsAny(e, " ,") {
			return o, fmt.Errorf("endpoint %q: use host:port, one to an element", e)
		}
		if err := checkEndpoint(e); err != nil {
			return o, err
		}
	}
	if o.ClientID != "" {
		if err := o.ClientID.Validate(); err != nil {
			return o, err
		}
		if o.ClientID.Opened() || o.ClientID.Anonymous() {
			return o, fmt.Errorf("client ID %q: names that begin with @ or ~ are made by the service", o.ClientID)
		}
	}
	if o.Budget < 0 || o.Attempt < 0 {
		return o, errors.New("budget and attempt must not be negative")
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Attempt == 0 {
		o.Attempt = DefaultAttempt
	}
	if o.FirstRequest == 0 {
		o.FirstRequest = 1
		if o.ClientID != "" {
			o.FirstRequest = RequestID(time.Now().UnixMicro())
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = systemClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	o.Holder = o.Holder.complete()
	return o, nil
}

// checkEndpoint refuses an address that cannot be dialed.
func checkEndpoint(e string) error {
	if strings.HasPrefix(e, "unix:") {
		return nil
	}
	for _, scheme := range []string{"dns:", "passthrough:", "http:", "https:"} {
		if rest, ok := strings.CutPrefix(e, scheme); ok {
			return fmt.Errorf("endpoint %q: use %q: host:port, without %s", e, strings.TrimLeft(rest, "/"), scheme)
		}
	}
	_, port, err := net.SplitHostPort(e)
	if err != nil {
		return fmt.Errorf("endpoint %q: use host:port, such as localhost:7601: %w", e, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("endpoint %q: %q is no port: use host:port, such as localhost:7601", e, port)
	}
	return nil
}

// complete fills empty fields with what the operating system knows of this process.
func (h Holder) complete() Holder {
	if h.Host == "" {
		h.Host, _ = os.Hostname() // for people: unknown will do
	}
	if h.PID == 0 {
		h.PID = os.Getpid()
	}
	if h.Command == "" && len(os.Args) > 0 {
		h.Command = filepath.Base(os.Args[0])
	}
	if h.User == "" {
		h.User = userName()
	}
	return h
}

// userName returns the name of the user that runs this process, or the number of one without a name.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

func (h Holder) proto() *pb.Holder { return wire.NewHolder(h.User, h.Host, h.Command, int64(h.PID)) }

func holderOf(h *pb.Holder) Holder {
	return Holder{User: h.GetUser(), Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()}
}
