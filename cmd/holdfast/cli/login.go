// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/clientlib/login"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// The files with the certificate that commands show.
const (
	envCert    = "HOLDFAST_CERT"
	envCertKey = "HOLDFAST_CERT_KEY"
)

// credential returns where this command has its credential from: the environment, a ticket that it signs itself where
// the endpoint is a volume's path and its user can read the volume's secrets, or the ticket of a login.
func (a *app) credential() credential.Source {
	all := a.servers()
	if dir := join.SiteDirectory(all); dir != "" {
		return a.siteCredential(dir)
	}
	if !join.IsPath(all[0]) {
		return credential.FromEnvironment(a.Getenv, nil).Beside(a.certificate())
	}
	return a.volumeCredential(all[0])
}

// siteCredential returns the credential for the servers of each cell of the site in a directory: that of the cell's volume. A volume that hangs
// holds up nobody who asks for another one.
func (a *app) siteCredential(dir string) credential.Source {
	type volume struct {
		path, cluster string
	}
	var mu sync.Mutex
	known := map[string]credential.Source{} // by the cluster
	return func(ctx context.Context, cluster string) (string, error) {
		if cluster == "" { // which no volume is of
			return credential.FromEnvironment(a.Getenv, nil).Beside(a.certificate())(ctx, "")
		}
		mu.Lock()
		of := known[cluster]
		mu.Unlock()
		if of != nil {
			return of(ctx, cluster)
		}
		m, err := sitemap.Read(os.DirFS(dir), dir)
		if err != nil {
			return "", err
		}
		found := make(chan volume, len(m.Cells))
		for _, c := range m.Cells {
			go func() {
				id, err := join.ClusterID(c.Endpoints[0])
				if err != nil {
					id = ""
				}
				found <- volume{c.Endpoints[0], id}
			}()
		}
		of = credential.FromEnvironment(a.Getenv, nil).Beside(a.certificate())
		for range m.Cells {
			select {
			case v := <-found:
				if v.cluster == cluster {
					of = a.volumeCredential(v.path)
					mu.Lock()
					known[cluster] = of
					mu.Unlock()
					return of(ctx, cluster)
				}
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return of(ctx, cluster)
	}
}

// volumeCredential returns the credential for the servers of the volume in a directory.
func (a *app) volumeCredential(dir string) credential.Source {
	own := &ownTicket{dir: dir, secrets: a.secretsDir()}
	return credential.FromEnvironment(a.Getenv, own.get).Beside(a.certificate()).At(dir, func(t *login.Ticket) {
		if name, err := a.ticketFile(t.Cluster); err == nil {
			_ = writeTicket(name, t.Text) // else the next command logs in itself
		}
	})
}

// certificate returns where this command has the certificate from that it shows: flags, the environment, or a file.
func (a *app) certificate() join.Certificate {
	return credential.CertificateFromEnvironment(func(name string) string {
		switch name {
		case envCert:
			return cmp.Or(a.cert, a.Getenv(name))
		case envCertKey:
			return cmp.Or(a.certKey, a.Getenv(name))
		}
		return a.Getenv(name)
	})
}

// certificateVariables returns the variables by which a command that runs under a lock shows the certificate of flags, too, wherever it runs.
func (a *app) certificateVariables() (all []string) {
	for _, x := range []struct{ name, file string }{{envCert, a.cert}, {envCertKey, a.certKey}} {
		if x.file == "" {
			continue
		}
		if whole, err := filepath.Abs(x.file); err == nil {
			x.file = whole
		}
		all = append(all, x.name+"="+x.file)
	}
	return all
}

// ownTicket is the ticket that a command signs itself. It is signed again after half of its time.
type ownTicket struct {
	dir, secrets string
	mu           sync.Mutex
	auth.Ticket
}

// get returns the ticket for a server that has proved to be of the volume's cluster; "" where there is none: then
// holdfast login says why.
func (o *ownTicket) get(ctx context.Context, cluster string) (string, error) {
	if cluster == "" {
		return "", nil
	}
	got := make(chan string, 1)
	go func() { // a share that hangs ends no command: its time does
		o.mu.Lock()
		defer o.mu.Unlock()
		now := time.Now()
		if o.Caller == nil || now.After(o.Caller.Issued.Add(auth.OperatorTime/2)) {
			o.Ticket, _ = auth.OperatorTicket(o.dir, o.secrets, now, auth.OperatorTime)
		}
		if o.Cluster.String() != cluster {
			got <- ""
			return
		}
		got <- o.Text
	}()
	select {
	case text := <-got:
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// loginResult is the answer of login and logout. It never contains the ticket.
type loginResult struct {
	Status   string     `json:"status"`
	Identity string     `json:"identity,omitempty"`
	Groups   []string   `json:"groups,omitempty"`
	Operator bool       `json:"operator,omitempty"`
	Cluster  string     `json:"cluster"`
	File     string     `json:"file"`
	Expires  *time.Time `json:"expires,omitempty"`
	// Removed is true if there was a ticket.
	Removed *bool `json:"removed,omitempty"`
}

const maxLogin = 30 * 24 * time.Hour

func (a *app) loginCommand() *cobra.Command {
	var period time.Duration
	var dir string
	c := &cobra.Command{
		Use: "login --volume DIR", Short: "Get a ticket, which proves to servers who you are", Args: cobra.NoArgs,
		Long: `Get a ticket, and write it to ~/.config/holdfast/CLUSTER.ticket, which only you may read.
Commands and clients of this user show it to servers, over TLS or on the server's own host only.

You show who you are by a directory that you make on the volume: whose it is, a server sees
there. So no key is needed, but the volume has to take such logins (holdfast access logins).
Commands whose endpoint is the path of the volume need no login: they log in themselves.

The user that the servers run as can read the signing key of the volume, and signs a ticket
with it. That is an operator's: whoever has it may do everything until it expires.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if period <= 0 || period > maxLogin {
				return usagef("--for %v: use a duration like 12h, at most %v", period, maxLogin)
			}
			r, err := a.login(c.Context(), dir, period)
			if err != nil {
				return fmt.Errorf("volume %s: %w", dir, err)
			}
			return a.print(r, func(w io.Writer) {
				what := "of"
				if r.Operator {
					what = "an operator of"
				}
				fmt.Fprintf(w, "you are %s until %s, %s cluster %s; the ticket is in %s\n", strings.Join(append([]string{r.Identity}, r.Groups...), ", "), timeText(*r.Expires, a.now()), what, r.Cluster, r.File)
			})
		},
	}
	c.Flags().DurationVar(&period, "for", 12*time.Hour, "how long the ticket counts")
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	required(c, "volume")
	return c
}

// login gets a ticket, as an operator if this user can be one, and writes it.
func (a *app) login(ctx context.Context, dir string, period time.Duration) (*loginResult, error) {
	r, text, err := a.loggedIn(ctx, dir, period)
	if err != nil {
		return nil, err
	}
	if r.File, err = a.ticketFile(r.Cluster); err != nil {
		return nil, err
	}
	r.Status = cluster.StatusOK.String()
	return r, writeTicket(r.File, text)
}

// writeTicket writes a ticket to a file that only its owner may read. Others never see a part of it, and an older file with
// another mode does not stay.
func writeTicket(name, text string) error {
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = writePrivate(name, text+"\n")
	}
	if err != nil {
		return fmt.Errorf("write the ticket: %w", err)
	}
	return nil
}

func (a *app) loggedIn(ctx context.Context, dir string, period time.Duration) (*loginResult, string, error) {
	t, err := auth.OperatorTicket(dir, a.secretsDir(), time.Now(), period)
	if err == nil {
		end := t.Caller.Expires.Truncate(time.Second)
		return &loginResult{Identity: t.Caller.Identity, Operator: t.Caller.Operator, Cluster: t.Cluster.String(), Expires: &end}, t.Text, nil
	}
	if !errors.Is(err, auth.ErrNotOperator) {
		return nil, "", err
	}
	got, loginErr := login.Get(ctx, dir, period)
	switch {
	case errors.Is(loginErr, login.ErrOff), errors.Is(loginErr, login.ErrRoot):
		return nil, "", errors.Join(err, loginErr)
	case loginErr != nil:
		return nil, "", loginErr
	}
	end := got.Expires.Truncate(time.Second)
	return &loginResult{Identity: got.Identity, Groups: got.Groups, Cluster: got.Cluster, Expires: &end}, got.Text, nil
}

func (a *app) ticketFile(id string) (string, error) {
	name := credential.TicketFile(a.Getenv, id)
	if name == "" {
		return "", errors.New("there is no directory for the ticket: set HOME, or XDG_CONFIG_HOME, to an absolute path")
	}
	return name, nil
}

func (a *app) logoutCommand() *cobra.Command {
	return a.onVolume("logout --volume DIR", "Remove the ticket of holdfast login", `Remove ~/.config/holdfast/CLUSTER.ticket, if it is there. A copy of the ticket counts until it
expires.`, func(_ context.Context, dir string, f *osfs.FS) error {
		c, err := volume.ReadCluster(f)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		name, err := a.ticketFile(c.ID.String())
		if err != nil {
			return err
		}
		err = os.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the ticket: %w", err)
		}
		removed := err == nil
		return a.print(&loginResult{Status: cluster.StatusOK.String(), Cluster: c.ID.String(), File: name, Removed: &removed}, func(w io.Writer) {
			if removed {
				fmt.Fprintf(w, "removed %s\n", name)
			} else {
				fmt.Fprintf(w, "there is no ticket: %s\n", name)
			}
		})
	})
}
