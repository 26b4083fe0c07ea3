// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/gateway"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

func (a *app) gatewayCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "gateway --site ADDR,... [--listen HOST:PORT]",
		Short: "Pass connections of clients on to the servers",
		Long: `Pass connections of clients, of all kinds, on to the server that is primary, so that clients
need one address and no way to the servers: gRPC, HTTP, WebSocket, lines of text, and the
client libraries. It keeps nothing and has no rights: TLS and credentials are between client
and server. Run as many as you like, behind a load balancer or not.

The servers' addresses are enough for --site. With the path of the volume, what holdfast join
prints, or https:// the gateway recognizes the servers, and takes clients over TLS only.

Of a site of several volumes, name the directory or servers of one cell. Each cell has a port:
that of the directory's first cell, or of the named one, is --listen, and the others are as far
from it as their numbers.

At SIGTERM or SIGINT it takes no more connections, and ends when those that are open have
ended, or after --drain; at a second signal it ends at once.

Each flag is also a key of the file that --config names, in TOML, and an environment variable:
--site is site = "h1:7601" there, and HOLDFAST_GATEWAY_SITE. A flag wins over the environment,
that over the file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fl := c.Flags()
			file := fl.Lookup(settings.FileFlag).Value.String()
			return a.gateway(c, settings.Sources{
				Flags: settings.GatewayGiven(fl), Getenv: a.Getenv, File: cmp.Or(file, a.Getenv(settings.GatewayPrefix+"CONFIG")),
			})
		},
	}
	settings.AddGatewayFlags(c.Flags())
	c.Flags().String(settings.FileFlag, "", "a file in TOML (or one JSON object) with the names of these flags (default $HOLDFAST_GATEWAY_CONFIG)")
	return c
}

// gateway runs the gateway until a signal comes.
func (a *app) gateway(c *cobra.Command, from settings.Sources) error {
	s, err := settings.LoadGateway(from)
	if _, ok := errors.AsType[*settings.Error](err); ok {
		return usagef("%v", err)
	}
	if err != nil {
		return err
	}
	if err := s.Complete(); err != nil {
		return usagef("%v", err)
	}
	site := endpointsOf(s.Site)
	if err := checkSite(site); err != nil {
		return usagef("--site: %v", err)
	}
	log, _ := a.logger(s.LogLevel, s.LogFormat)
	ctx, stop := untilSignal(c.Context())
	defer stop()
	return gateway.Run(ctx, gateway.Options{
		Listen: s.Listen, Site: site, Metrics: s.MetricsListen, Connections: s.Connections, PerAddress: s.PerAddress, Drain: s.Drain, Log: log,
	})
}

// checkSite refuses texts that cannot be addresses of servers: a gateway would ask there for ever. A Unix socket is none: a server knows its
// callers by the user that connects to it, and a gateway speaks for others.
func checkSite(site []string) error {
	for _, s := range site {
		if join.Whole(s) {
			continue // which settings has checked
		}
		if err := checkAddress(s); err != nil {
			return fmt.Errorf("%w: use HOST:PORT, with commas between", err)
		}
	}
	return nil
}
