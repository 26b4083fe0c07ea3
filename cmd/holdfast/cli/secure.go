// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

func (a *app) secureCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "secure",
		Short: "Show, offer and require TLS",
		Long: `Servers of a volume speak TLS to each other, with keys that they draw when they start and
find on the volume: there is nothing to configure, to copy or to renew.

The servers of a volume that init made accept each other over TLS only. Those of a volume
of an older version take plain text, too, until you type holdfast secure require.

Servers offer TLS to clients if the volume has a certificate authority: ca.crt, with its key in
secrets/. The volumes that init makes have one, others get one by holdfast secure offer.`,
		Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		a.secureOn("status --volume DIR", "Show which servers speak TLS to each other", `Show the process that ran last under each ID, by what is on the volume, and whether it
speaks TLS to other servers.`, nil),
		a.audited(a.secureOfferCommand()),
		a.audited(a.secureRequireCommand()),
		a.secureRotateCommand(),
	)
	return c
}

func (a *app) secureRotateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rotate", Short: "Make new keys", Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	atOnce := false
	signing := a.onVolume("signing --volume DIR", "Have servers sign tickets and proofs with a new key", `Make a new key to sign with, and put its public half into keys.json. Servers show it at
GET /v1/keys within seconds, and begin to sign with it after an hour, so that resources with a
copy of keys.json can get a new one first. What the keys before it signed counts for 30 days
more: tickets and proofs go on. A second call in that hour makes no further key.

If a key has leaked, this is not enough: see docs/security.md.`, func(_ context.Context, dir string, f *osfs.FS) error {
		now := time.Now()
		from := now.Add(volume.SigningDelay)
		if atOnce {
			from = now.Add(volume.SigningLeast)
		}
		k, err := volume.RotateSigning(f, rand.Reader, now, from)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		out := rotateResult{cluster.StatusOK.String(), dir, k.ID, k.From.UTC()}
		return a.print(out, func(w io.Writer) {
			fmt.Fprintf(w, "the key %s is in keys.json; servers sign with it from %s on\n", k.ID, timeText(out.SignsFrom, time.Now()))
		})
	})
	signing.Flags().BoolVar(&atOnce, "now", false, "sign with it in half a minute, when all servers have seen it: until they have the new keys.json, resources with a copy refuse proofs")
	c.AddCommand(a.audited(signing), a.audited(a.secureRotateAuthorityCommand()))
	return c
}

func (a *app) secureRotateAuthorityCommand() *cobra.Command {
	leaked := false
	c := a.onVolume("ca --volume DIR", "Have clients know the servers by a new certificate authority", `Make a new certificate authority, wait until all servers that run use it, and put its certificate into
ca.crt. Clients that know the one before, by a join string, a copy of ca.crt or a path, recognize the
servers for a year more: the old authority vouches for the new one. Connections that are open go on.

With --now, after a leak of secrets/ca.key, the old authority counts no more at once. Clients need a new
join string or a new copy of ca.crt; those that have the volume's path as their endpoint find it themselves.

After an error, type it again: it goes on where it ended.`, func(ctx context.Context, dir string, f *osfs.FS) error {
		out, err := a.rotateAuthority(ctx, f, leaked)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		out.Status, out.Volume = cluster.StatusOK.String(), dir
		return a.print(out, func(w io.Writer) {
			fmt.Fprintf(w, "ca.crt has the new authority; the new join string is\n%s\n", out.Join)
			if out.Until != nil {
				fmt.Fprintf(w, "who knows the old one recognizes the servers until %s\n", timeText(*out.Until, time.Now()))
			}
		})
	})
	c.Flags().BoolVar(&leaked, "now", false, "the old authority counts no more: its join strings, and copies of its certificate, are of no use from now on")
	return c
}

type rotateAuthorityResult struct {
	Status string `json:"status"`
	Volume string `json:"volume"`
	Join   string `json:"join"`
	// Until is when clients that know the authority before this one do not recognize the servers any more, nil = now.
	Until *time.Time `json:"old_until,omitempty"`
}

func (a *app) rotateAuthority(ctx context.Context, f *osfs.FS, leaked bool) (out rotateAuthorityResult, err error) {
	c, err := volume.ReadClusterNow(f)
	if err != nil {
		return out, err
	}
	made, err := volume.RotateAuthority(f, rand.Reader, leaked, func(old volume.Authority) (volume.Authority, error) {
		if leaked {
			return certs.Replace(c.ID, old)
		}
		return certs.Succeed(c.ID, old, time.Now())
	})
	if errors.Is(err, certs.ErrCannotVouch) {
		err = fmt.Errorf("%w; with --now, the old one ends without that", err)
	}
	if err != nil {
		return out, err
	}
	issuer, err := certs.NewIssuer(c.ID, made)
	if err != nil {
		return out, err
	}
	if until := issuer.VouchedUntil(); !until.IsZero() {
		out.Until = &until
		if err := a.awaitAuthority(ctx, c, issuer.Certificate()); err != nil {
			return out, err
		}
	}
	if err := volume.PublishAuthority(f); err != nil {
		return out, err
	}
	out.Join, err = joinString(f)
	return out, err
}

// rotationTime bounds how long servers that run may take to use a new authority: they look every two seconds.
const rotationTime = 30 * time.Second

// awaitAuthority returns when no server shows a certificate of another authority than this one. A server that does not answer is left out:
// it finds the authority when it starts.
func (a *app) awaitAuthority(ctx context.Context, c volume.Cluster, ca *x509.Certificate) error {
	limited, cancel := context.WithTimeout(ctx, rotationTime)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for _, m := range c.Servers {
		for told := false; ; told = true {
			err := tryTLS(limited, c, ca, m.Client)
			if !errors.Is(err, join.ErrUntrusted) {
				break
			}
			if !told {
				fmt.Fprintf(a.Stderr, "waiting for server %d to use the new authority\n", m.ID)
			}
			select {
			case <-limited.Done():
				return fmt.Errorf("server %d does not use the new authority yet (its log says why): mend or stop it, and type the command again: %w", m.ID, err)
			case <-again.C:
			}
		}
	}
	return ctx.Err()
}

// tryTLS connects to a server, as a client that knows the authority does.
func tryTLS(ctx context.Context, c volume.Cluster, ca *x509.Certificate, address string) error {
	ctx, cancel := context.WithTimeout(ctx, askEachTime)
	defer cancel()
	conn, err := join.WithCertificate(ca, c.ID.String()).Dialer(frames.Protocol, func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	})(ctx, address)
	if err == nil {
		conn.Close() //nolint:errcheck // it was to be made
	}
	return err
}

type rotateResult struct {
	Status    string    `json:"status"`
	Volume    string    `json:"volume"`
	Key       string    `json:"key"`
	SignsFrom time.Time `json:"signs_from"`
}

func (a *app) secureOfferCommand() *cobra.Command {
	return a.secureOn("offer --volume DIR", "Have servers offer TLS to clients", `Give the volume a certificate authority, unless it has one: ca.crt for everybody, and its key in
secrets/, which only the owner may read. The same for the key with which tickets are signed, and
keys.json. Servers that run offer TLS to clients within seconds, on the
same port, and go on taking plain text. Type it as the user that the servers run as.`, func(_ context.Context, fsys *osfs.FS, s *secureStatus) error {
		c, err := volume.ReadClusterNow(fsys)
		if err == nil {
			err = offerTLS(fsys, c.ID)
		}
		s.ClientTLS = err == nil
		return err
	})
}

func (a *app) joinCommand() *cobra.Command {
	return a.onVolume("join --volume DIR", "Print the join string: what clients elsewhere need to connect over TLS", `Print the join string of a volume: the addresses of its servers, and a pin by which
clients recognize them. It is no secret. Give it to clients that do not have the volume
mounted, as an endpoint:

  export HOLDFAST_ENDPOINTS="$(holdfast join --volume DIR)"

Clients that have it mounted can use its path as the endpoint instead.`, func(_ context.Context, dir string, f *osfs.FS) error {
		out, err := joinString(f)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		return a.print(joinResult{cluster.StatusOK.String(), out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	})
}

type joinResult struct {
	Status string `json:"status"`
	Join   string `json:"join"`
}

func joinString(fsys *osfs.FS) (string, error) {
	c, ca, err := recognized(fsys)
	if err != nil {
		return "", err
	}
	var addresses []string
	for _, m := range c.Servers.Voters() {
		addresses = append(addresses, m.Client)
	}
	return join.Text(addresses, join.Pin(ca)), nil
}

// recognized returns a cluster, and the certificate of the authority by which clients recognize its servers. It reads
// only what clients may read.
func recognized(fsys *osfs.FS) (c volume.Cluster, ca *x509.Certificate, err error) {
	if c, err = volume.ReadClusterNow(fsys); err != nil {
		return c, nil, err
	}
	b, err := volume.ReadCertificate(fsys)
	if err != nil {
		return c, nil, err
	}
	if ca, err = join.ParseCertificate(b); err != nil {
		return c, nil, fmt.Errorf("the certificate of the authority: %w", err)
	}
	return c, ca, nil
}

func (a *app) secureRequireCommand() *cobra.Command {
	force, clients := false, false
	c := a.secureOn("require --volume DIR", "Have servers refuse each other in plain text", `Have the servers of this volume accept each other over TLS only. They do so within
seconds, without a restart, and close connections in plain text.

It is refused while a server of an older version is on the volume: the others would not
hear it any more. To take it back, remove servers/tls-required and start all servers again.

With --clients, it is about clients instead: servers refuse those of other hosts in plain text,
within seconds, and take it from their own host only. Connections that are open go on. It is
refused unless all servers answer clients over TLS. To take it back, remove
servers/client-tls-required and start all servers again.`, func(ctx context.Context, fsys *osfs.FS, s *secureStatus) error {
		if clients {
			return requireOfClients(ctx, fsys, s, force)
		}
		if old := s.without(); len(old) > 0 && !force {
			return fmt.Errorf("server %s last ran without a key, or what ran last cannot be read (see holdfast secure status): upgrade it and start it, or use --force to leave it out", strings.Join(old, ", "))
		}
		if err := volume.RequireTLS(fsys); err != nil {
			return err
		}
		s.Required = true
		return nil
	})
	c.Flags().BoolVar(&force, "force", false, "also where servers, or their clients, are left out by that")
	c.Flags().BoolVar(&clients, "clients", false, "require TLS of clients on other hosts")
	return c
}

// requireOfClients requires TLS of clients, if all servers serve it.
func requireOfClients(ctx context.Context, fsys *osfs.FS, s *secureStatus, force bool) error {
	c, ca, err := recognized(fsys)
	if err != nil {
		return err
	}
	for _, m := range c.Servers {
		if err := tryTLS(ctx, c, ca, m.Client); err != nil && !force {
			return fmt.Errorf("server %d does not answer clients over TLS: %w; start it, or use --force", m.ID, err)
		}
	}
	if err := volume.RequireClientTLS(fsys); err != nil {
		return err
	}
	s.ClientTLSRequired = true
	return nil
}

// secureOn returns a command that changes something on a volume, unless change is nil, and shows its state.
func (a *app) secureOn(use, short, long string, change func(context.Context, *osfs.FS, *secureStatus) error) *cobra.Command {
	return a.onVolume(use, short, long, func(ctx context.Context, dir string, f *osfs.FS) error {
		s, err := readSecureStatus(f)
		if err == nil && change != nil {
			err = change(ctx, f, s)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		s.Status, s.Volume = cluster.StatusOK.String(), dir
		return a.print(s, func(w io.Writer) { secureText(w, s) })
	})
}

type secureStatus struct {
	Status string `json:"status"`
	Volume string `json:"volume"`
	// Required is true if servers accept each other over TLS only.
	Required bool `json:"tls_required"`
	// ClientTLS is true if the servers offer TLS to clients.
	ClientTLS bool `json:"client_tls"`
	// ClientTLSRequired is true if they refuse plain text from clients of other hosts.
	ClientTLSRequired bool           `json:"client_tls_required"`
	Servers           []secureServer `json:"servers"`
}

type secureServer struct {
	ID cluster.ServerID `json:"id"`
	// State is what the process that ran last under this ID speaks to other servers.
	State string `json:"state"`
	// Process is that process, nil if there was none.
	Process *volume.Process `json:"process"`
	// Keys are those of this server on the volume, the newest first.
	Keys []string `json:"keys"`
}

// The states of a server.
const (
	secureTLS     = "tls"     // TLS
	securePlain   = "plain"   // plain text: it is of an older version
	secureUnknown = "unknown" // it has a key that is not on the volume: it cannot write there, or a cache is old
	secureUnread  = "unread"  // what it is cannot be read now
	secureNone    = "none"    // no process ran yet
)

func readSecureStatus(fsys *osfs.FS) (*secureStatus, error) {
	c, err := volume.ReadClusterNow(fsys)
	if err != nil {
		return nil, err
	}
	s := &secureStatus{}
	if s.Required, err = volume.TLSRequired(fsys); err != nil {
		return nil, err
	}
	if s.ClientTLSRequired, err = volume.ClientTLSRequired(fsys); err != nil {
		return nil, err
	}
	if _, err := volume.ReadCertificate(fsys); err == nil {
		s.ClientTLS = true
	} else if !errors.Is(err, volume.ErrNoAuthority) {
		return nil, err
	}
	for _, id := range c.Servers.IDs() {
		x := secureServer{ID: id, State: secureNone, Keys: []string{}}
		keys, err := volume.Keys(fsys, id)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			x.Keys = append(x.Keys, k.ID.String())
		}
		switch p, err := volume.Offline(fsys, c).ReadProcess(id); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil: // perhaps the read met a write: then a server runs
			x.State = secureUnread
		default:
			x.Process, x.State = &p, stateOf(&p, x.Keys)
		}
		s.Servers = append(s.Servers, x)
	}
	return s, nil
}

// stateOf returns the state of a server whose process this is, and that has these keys on the volume.
func stateOf(p *volume.Process, keys []string) string {
	switch {
	case p.Key == "":
		return securePlain
	case slices.Contains(keys, p.Key):
		return secureTLS
	}
	return secureUnknown
}

// without returns the IDs of the servers that would not be heard any more if TLS was required, or may not.
func (s *secureStatus) without() (ids []string) {
	for _, x := range s.Servers {
		if x.State != secureTLS && x.State != secureNone {
			ids = append(ids, fmt.Sprint(x.ID))
		}
	}
	return ids
}

func secureText(w io.Writer, s *secureStatus) {
	for _, x := range s.Servers {
		text := "has not run yet"
		if x.State == secureUnread {
			text = "WHAT RAN LAST CANNOT BE READ: try again"
		}
		if x.Process != nil {
			text = map[string]string{
				secureTLS: "TLS", securePlain: "PLAIN TEXT, it is of an older version", secureUnknown: "NO KEY ON THE VOLUME, see its log",
			}[x.State] + fmt.Sprintf(": process %d on host %s", x.Process.PID, x.Process.Host)
		}
		fmt.Fprintf(w, "server %d   %s\n", x.ID, text)
	}
	if s.Required {
		fmt.Fprintln(w, "servers accept each other over TLS only")
	} else {
		fmt.Fprintf(w, "servers accept each other in plain text, too: when all speak TLS, type holdfast secure require --volume %s\n", s.Volume)
	}
	switch {
	case s.ClientTLSRequired:
		fmt.Fprintln(w, "clients of other hosts are served over TLS only")
	case s.ClientTLS:
		fmt.Fprintf(w, "clients are offered TLS, beside plain text: to end that, type holdfast secure require --clients --volume %s\n", s.Volume)
	default:
		fmt.Fprintf(w, "clients are served in plain text only: to offer TLS, type holdfast secure offer --volume %s\n", s.Volume)
	}
}
