// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config check FILE | show | reload",
		Short: "Check, show and reload the configuration of a server",
		Long: `Check, show and reload the configuration of a server.

A file has the names of the flags of holdfast server, in TOML:
  id = 1
  volume = "/mnt/share/holdfast"
  log-level = "info"
  web-origins = ["https://app.example.com"]
Each is an environment variable, too, such as HOLDFAST_SERVER_LOG_LEVEL. A flag wins over
the environment, that over the file, and that over the default. docs/configuration.md has
all settings, and which of them a running server takes.`,
		Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.configCheckCommand(), a.configShowCommand(), a.configReloadCommand())
	return c
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Say whether a configuration file is good, and where it is not", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := load(settings.Sources{File: args[0]})
			if err != nil {
				return err
			}
			set := 0
			for _, x := range s.All() {
				if s.OriginOf(x.Name) != (settings.Origin{}) {
					set++
				}
			}
			return a.print(struct {
				File     string `json:"file"`
				Settings int    `json:"settings"`
			}{args[0], set}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is good: it sets %s\n", args[0], counted(uint64(set), "setting"))
			})
		},
	}
}

// shownSetting is a setting as config show tells it.
type shownSetting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Origin  string `json:"origin"`
	Default string `json:"default"`
	// Live reports whether a running server takes a change.
	Live bool `json:"live"`
}

func (a *app) configShowCommand() *cobra.Command {
	client := false
	c := &cobra.Command{
		Use:   "show [--config FILE] [FLAG...] | show --client",
		Short: "Show the value of each setting of a server, and where it is from",
		Long: `Show the value of each setting of a server that was started with these flags, this file
and this environment, and where it is from. A running server takes the settings that are
marked with + by holdfast config reload; others need its restart.

With --client, show instead which servers commands and clients on this host ask, and with
which credential: of flags, else of the environment, else of ~/.config/holdfast/config.toml,
else of /etc/holdfast/client.toml.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if client {
				return a.showClient(c.Flags().Changed("output"))
			}
			s, err := load(a.sources(c.Flags()))
			if err != nil {
				return err
			}
			var all []shownSetting
			for _, x := range s.All() {
				at := s.OriginOf(x.Name)
				if x.Hidden && at == (settings.Origin{}) {
					continue
				}
				all = append(all, shownSetting{x.Name, x.Value(), at.String(), x.Default(), x.Live})
			}
			return a.print(struct {
				Settings []shownSetting `json:"settings"`
			}{all}, func(w io.Writer) { settingsText(w, all) })
		},
	}
	c.Flags().BoolVar(&client, "client", false, "show what clients on this host use")
	serverFlags(c.Flags())
	return c
}

func settingsText(w io.Writer, all []shownSetting) {
	table(w, func(row func(...any)) {
		row("NAME", "VALUE", "FROM")
		for _, x := range all {
			name := x.Name
			if x.Live {
				name += " +"
			}
			row(name, cmp.Or(x.Value, "-"), x.Origin)
		}
	})
}

func (a *app) configReloadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "reload [--config FILE] [--data-dir DIR]",
		Short: "Have the server on this host read its configuration anew",
		Long: `Have a running server on this host read its configuration anew. It is found by its data
directory: name it with --data-dir, or give the file or the flags with which the server
was started. SIGHUP to a server that has --config does the same, without an answer.

A file with a mistake changes nothing. Else the settings that a running server takes count
from now on, and the exit code is 6 if others were changed, too: these need a restart.
No lock and no connection is lost.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(a.sources(c.Flags()))
			if err != nil {
				return err
			}
			if s.Site != "" && s.Volume == "" && s.Cell == settings.AllCells {
				return a.reloadSite(c.Context(), s)
			}
			dir, err := dataDirOf(c.Context(), s)
			if err != nil {
				return err
			}
			return a.reload(c.Context(), dir)
		},
	}
	serverFlags(c.Flags())
	return c
}

func (a *app) reload(ctx context.Context, dir string) error {
	r, err := serve.AskReload(ctx, dir)
	switch {
	case errors.Is(err, serve.ErrNoControl):
		return &noServerError{err}
	case err != nil:
		return fmt.Errorf("reload: %w", err)
	}
	return a.reloaded(r)
}

// reloaded says what became of a reload.
func (a *app) reloaded(r serve.Reloaded) error {
	if r.Error != "" {
		return usagef("the server has changed nothing: %s", r.Error)
	}
	if len(r.Restart) > 0 {
		a.code = exitRestart
	}
	return a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "changed: %s\n", cmp.Or(strings.Join(r.Changed, ", "), "nothing"))
		for _, name := range r.Restart {
			fmt.Fprintf(w, "needs a restart: %s\n", name)
		}
	})
}

// noServerError reports that no server takes a reload.
type noServerError struct{ err error }

func (e *noServerError) Error() string { return e.err.Error() }
func (e *noServerError) Unwrap() error { return e.err }

// dataDirOf returns the data directory of a server with these settings.
func dataDirOf(ctx context.Context, s *settings.Server) (string, error) {
	p, err := s.PlacesOf(s.Cell)
	switch {
	case err != nil:
		return "", usagef("reload: %v", err)
	case p.DataDir == serve.NoDataDir:
		return "", usagef("reload: the server has no data directory: send it SIGHUP")
	case p.DataDir != "":
		return p.DataDir, nil
	}
	if err := s.Complete(); err != nil {
		return "", usagef("reload: --data-dir, or --id and --volume, or --id and --site, are needed to find the server, as flags, in --config or in the environment")
	}
	dir := s.Volume
	if s.Site != "" {
		site, err := serve.ReadSite(ctx, s.Site, serve.Options{})
		if err != nil {
			return "", err
		}
		if dir, err = site.Volume(cluster.CellID(s.Cell)); err != nil {
			return "", err
		}
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	c, err := volume.ReadCluster(f)
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", dir, err)
	}
	return serve.DefaultDataDir(c.ID, cluster.ServerID(s.ID))
}
