// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

func (a *app) secureCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "secure",
		Short: "Show and require TLS between servers",
		Long: `Servers of a volume speak TLS to each other, with keys that they draw when they start and
find on the volume: there is nothing to configure, to copy or to renew.

The servers of a volume that init made accept each other over TLS only. Those of a volume
of an older version take plain text, too, until you type holdfast secure require.`,
		Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		a.secureOn("status --volume DIR", "Show which servers speak TLS to each other", `Show the process that ran last under each ID, by what is on the volume, and whether it
speaks TLS to other servers.`, nil),
		a.secureRequireCommand(),
	)
	return c
}

func (a *app) secureRequireCommand() *cobra.Command {
	force := false
	c := a.secureOn("require --volume DIR", "Have servers refuse each other in plain text", `Have the servers of this volume accept each other over TLS only. They do so within
seconds, without a restart, and close connections in plain text.

It is refused while a server of an older version is on the volume: the others would not
hear it any more. To take it back, remove servers/tls-required and start all servers again.`, func(fsys *osfs.FS, s *secureStatus) error {
		if old := s.without(); len(old) > 0 && !force {
			return fmt.Errorf("server %s last ran without a key, or what ran last cannot be read (see holdfast secure status): upgrade it and start it, or use --force to leave it out", strings.Join(old, ", "))
		}
		if err := volume.RequireTLS(fsys); err != nil {
			return err
		}
		s.Required = true
		return nil
	})
	c.Flags().BoolVar(&force, "force", false, "also where servers of an older version are left out by that")
	return c
}

// secureOn returns a command that changes something on a volume, unless change is nil, and shows its state.
func (a *app) secureOn(use, short, long string, change func(*osfs.FS, *secureStatus) error) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			f, err := osfs.Open(dir)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			s, err := readSecureStatus(f)
			if err == nil && change != nil {
				err = change(f, s)
			}
			if err != nil {
				return fmt.Errorf("volume %s: %w", dir, err)
			}
			s.Status, s.Volume = cluster.StatusOK.String(), dir
			return a.print(s, func(w io.Writer) { secureText(w, s) })
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	required(c, "volume")
	return c
}

type secureStatus struct {
	Status string `json:"status"`
	Volume string `json:"volume"`
	// Required is true if servers accept each other over TLS only.
	Required bool           `json:"tls_required"`
	Servers  []secureServer `json:"servers"`
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
	c, err := volume.ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	s := &secureStatus{}
	if s.Required, err = volume.TLSRequired(fsys); err != nil {
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
}
