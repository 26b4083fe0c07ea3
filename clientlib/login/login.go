// SPDX-License-Identifier: Apache-2.0

// Package login is how a client logs in by the filesystem: it makes the directory that a server names, in login/ on the
// volume as this host has it mounted, and gets a ticket for the user that it runs as.
//
// A server could name a directory for somebody else, and so log in as this user elsewhere: at another cluster, into whose
// login/ a path leads by a symbolic link, now or after a moment. So a client opens the volume's directory once. It reads there by what to
// recognize servers, asks only one that has proved over TLS to be of that cluster, and makes the directory there: the name
// can lead nowhere but into login/ of the volume of that server.
package login

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// directory is where users make directories, on the volume.
	directory = "login"
	// nonceLength is that of a name that a server gives, in hexadecimal digits.
	nonceLength = 32
	// serverTime bounds what one server may take.
	serverTime = 6 * time.Second
)

var (
	// ErrOff means that the volume takes no logins by its filesystem.
	ErrOff = errors.New("the volume takes no logins by its filesystem: the servers' user switches them on with holdfast access logins --volume DIR")
	// ErrRoot is returned to root, who is root on any host.
	ErrRoot = errors.New("root cannot log in by the filesystem: type it as another user, or use a key")
)

// Ticket is a ticket with what it says.
type Ticket struct {
	Text    string
	Cluster string // the ID
	// Identity and Groups are whom the server took this process for.
	Identity string
	Groups   []string
	Expires  time.Time
}

// Get logs in by the volume whose directory this is. The ticket counts for a period, 0 = as long as is usual. Returns ErrOff where the volume takes
// no logins, and ErrRoot.
func Get(ctx context.Context, dir string, period time.Duration) (*Ticket, error) {
	type result struct {
		t   *Ticket
		err error
	}
	done := make(chan result, 1)
	go func() { // a share may hang
		t, err := get(ctx, dir, period)
		done <- result{t, err}
	}()
	select {
	case r := <-done:
		return r.t, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func get(ctx context.Context, dir string, period time.Duration) (*Ticket, error) {
	if os.Geteuid() == 0 {
		return nil, ErrRoot
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a directory's descriptor
	if info, err := root.Lstat(directory); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, ErrOff
	}
	id, addresses, trust, err := join.InRoot(root)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, a := range addresses {
		t, err := at(ctx, a, trust, root, period)
		if err == nil {
			t.Cluster = id
			return t, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", a, err))
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Status == cluster.StatusUnauthenticated {
			break // others would say the same
		}
	}
	return nil, errors.Join(failures...)
}

// at logs in at one server.
func at(ctx context.Context, address string, trust *join.Trust, root *os.Root, period time.Duration) (t *Ticket, err error) {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	dial := proved(trust.Dialer(join.GRPC, func(ctx context.Context, a string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", a)
	}))
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // it says only that it is closed already
	stub := pb.NewLockServiceClient(conn)
	first, err := stub.Login(ctx, &pb.LoginRequest{})
	if err == nil {
		err = wire.FailureOf(first)
	}
	if err != nil {
		return nil, wire.FromGRPC(err)
	}
	remove, err := makeDirectory(root, first.GetNonce())
	if err != nil {
		return nil, err
	}
	defer remove()
	r, err := stub.Login(ctx, &pb.LoginRequest{Challenge: first.GetChallenge(), ForMs: period.Milliseconds()})
	if err == nil {
		err = wire.FailureOf(r)
	}
	if err != nil {
		return nil, wire.FromGRPC(err)
	}
	return &Ticket{Text: r.GetTicket(), Identity: r.GetIdentity(), Groups: r.GetGroups(), Expires: time.UnixMilli(r.GetExpiresUnixMs())}, nil
}

// makeDirectory makes the directory that a server named. The name must be free: what is there proves somebody else. Remove
// removes it, where the server has not.
func makeDirectory(root *os.Root, nonce string) (remove func(), err error) {
	if len(nonce) != nonceLength || strings.Trim(nonce, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("the server named %.50q, which is no name for a directory of a login", nonce)
	}
	return mkdir(root, nonce)
}

// proved returns a Dialer that refuses connections to servers that have not proved to be of the volume's cluster.
func proved(next join.Dialer) join.Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := next(ctx, address)
		if err != nil {
			return nil, err
		}
		if s, ok := join.StateOf(c); !ok || join.ClusterOf(s) == "" {
			c.Close() //nolint:errcheck // nothing was said
			return nil, errors.New("the server has not proved over TLS that it is of this cluster")
		}
		return c, nil
	}
}
