// SPDX-License-Identifier: Apache-2.0

// Package credential is where a client has its credential from, and to whom it shows it: a key (hfk_...) or a ticket
// (hft_...). Whoever has the text of one is taken for its owner. So it is sent over TLS or to this host only, and no
// error contains it.
package credential

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/clientconfig"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// inDirectory is the name of a credential in the directory that a service manager makes.
const inDirectory = "holdfast.key"

// ErrPlainText means that a credential was not sent, since others could have read it on its way.
var ErrPlainText = errors.New("a credential is sent over TLS, or to this host, only: use the path of the volume, or what holdfast join prints, as the endpoint")

// Source returns the credential for a connection, "" for none. cluster is the ID of the cluster that the server has
// proved to be of, "" if it has proved none: then a ticket, which is one cluster's, is not for it. A Source is called
// for each connection, again before a ticket expires, and by several goroutines.
type Source func(ctx context.Context, cluster string) (string, error)

// FromEnvironment returns the Source that asks environment variables, and the first of these that is there:
//
//	HOLDFAST_KEY                            the credential
//	HOLDFAST_KEY_FILE                       the name of a file with it
//	$CREDENTIALS_DIRECTORY/holdfast.key     which a service manager makes, such as systemd
//	key-file in a configuration of clients  the name of a file with it, see package clientconfig
//	~/.config/holdfast/CLUSTER.ticket       which holdfast login writes; others must not be able to read it
//
// before, if not nil, is asked before the last one. A client that shows a certificate (see Beside) gets no ticket. Where there is no ticket, or only one that has expired, and the Source is
// that of a volume (see At), it logs in by the volume's filesystem, if that takes logins.
func FromEnvironment(getenv func(string) string, before Source) Source {
	return func(ctx context.Context, cluster string) (string, error) {
		if text := getenv("HOLDFAST_KEY"); text != "" {
			return checked(text, "HOLDFAST_KEY")
		}
		if name := getenv("HOLDFAST_KEY_FILE"); name != "" {
			return fromFile(name)
		}
		if dir := getenv("CREDENTIALS_DIRECTORY"); dir != "" {
			text, err := fromFile(filepath.Join(dir, inDirectory))
			if !errors.Is(err, fs.ErrNotExist) {
				return text, err
			}
		}
		config, err := clientconfig.Read(getenv)
		if err != nil {
			return "", err
		}
		if config.KeyFile != "" {
			return fromFile(config.KeyFile)
		}
		if has, err := hasCertificate(ctx); has || err != nil {
			return "", err
		}
		if before != nil {
			if text, err := before(ctx, cluster); text != "" || err != nil {
				return text, err
			}
		}
		text, err := fromTicketFile(getenv, cluster)
		if err != nil || cluster == "" || text != "" && (Expiry(text).IsZero() || time.Until(Expiry(text)) > nearEnd) {
			return text, err
		}
		fresh, err := ofVolume(ctx).get(ctx, cluster)
		return cmp.Or(fresh, text), err
	}
}

// TicketFile returns the name of the file with a user's ticket of a cluster; "" if the user has no directory for it.
func TicketFile(getenv func(string) string, cluster string) string {
	dir := clientconfig.Directory(getenv)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "holdfast", cluster+".ticket")
}

func fromTicketFile(getenv func(string) string, cluster string) (string, error) {
	name := TicketFile(getenv, cluster)
	if name == "" || cluster == "" {
		return "", nil
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the ticket: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("ticket %s: others may read it: type: rm %s   and holdfast login", name, name)
	}
	return fromFile(name)
}

func fromFile(name string) (text string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read the credential: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was read only
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxCredential+2))
	if err != nil {
		return "", fmt.Errorf("read the credential: %w", err)
	}
	return checked(string(b), name)
}

// checked returns a credential without space around it. The error names where it is from, and not the text.
func checked(text, from string) (string, error) {
	text = strings.TrimSpace(text)
	odd := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	if odd || len(text) > wire.MaxCredential || !strings.HasPrefix(text, wire.KeyPrefix) && !strings.HasPrefix(text, wire.TicketPrefix) {
		return "", fmt.Errorf("%s has no credential: it is one word that begins with %s or %s", from, wire.KeyPrefix, wire.TicketPrefix)
	}
	return text, nil
}

// For returns the credential that is sent on a connection, "" for none. It returns ErrPlainText if there is one, and
// others could read it on its way.
func (s Source) For(ctx context.Context, c net.Conn) (string, error) {
	if s == nil {
		return "", nil
	}
	state, isTLS := join.StateOf(c)
	cluster := join.ClusterOf(state)
	text, err := s(ctx, cluster)
	if err == nil && text != "" {
		text, err = checked(text, "what Credential returned")
	}
	if err == nil && text != "" && !isTLS && !ownHost(c.RemoteAddr()) {
		return "", fmt.Errorf("%v: %w", c.RemoteAddr(), ErrPlainText)
	}
	return text, err
}

// ownHost reports whether an address is on this host.
func ownHost(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// Bearer shows a credential with each call over the connections that it made: it implements grpc's
// credentials.PerRPCCredentials. It is for one address.
type Bearer struct {
	source Source
	mu     sync.Mutex
	conn   net.Conn // the newest
}

// Bearer returns one of the Source.
func (s Source) Bearer() *Bearer { return &Bearer{source: s} }

// Dialer returns a Dialer that refuses a connection on which the credential must not be sent.
func (b *Bearer) Dialer(next join.Dialer) join.Dialer {
	if b.source == nil {
		return next
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := next(ctx, address)
		if err != nil {
			return nil, err
		}
		if _, err := b.source.For(ctx, c); err != nil {
			c.Close() //nolint:errcheck // nothing was said
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conn = c
		return c, nil
	}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b *Bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	b.mu.Lock()
	c := b.conn
	b.mu.Unlock()
	if c == nil {
		return nil, nil
	}
	text, err := b.source.For(ctx, c)
	if text == "" || err != nil {
		return nil, err
	}
	return map[string]string{"authorization": wire.Bearer + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: gRPC does not know what the Dialer did.
func (b *Bearer) RequireTransportSecurity() bool { return false }

// Expiry returns when a ticket expires, by what it says; zero for any other credential.
func Expiry(text string) time.Time {
	ticket, ok := strings.CutPrefix(text, wire.TicketPrefix)
	parts := strings.Split(ticket, ".")
	if !ok || len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(b, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
