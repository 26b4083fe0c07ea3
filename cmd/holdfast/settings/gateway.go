// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
)

// Gateway has the values of all settings of a gateway.
type Gateway struct {
	Listen        string
	Site          string
	MetricsListen string
	Connections   int
	PerAddress    int
	Drain         time.Duration

	LogLevel, LogFormat string

	set
}

// NewGateway returns the defaults of a gateway.
func NewGateway() *Gateway {
	g := &Gateway{}
	g.set = newSet(GatewayPrefix, g.table())
	return g
}

func (g *Gateway) table() []Setting {
	return slices.Concat([]Setting{
		text(&g.Site, "", Setting{Name: "site", Group: Servers, Help: "the servers: their addresses for clients, with commas between, or the path of the volume or of a site, what holdfast join prints, or https:// before addresses of servers with certificates that this machine trusts; where these say how servers are recognized, clients have to speak TLS",
			check: func() error {
				site := join.Split(g.Site)
				if join.IsSite(site) {
					return nil
				}
				_, _, err := join.Resolve(site)
				return need(err == nil, "%q: %v", g.Site, err)
			}}),
		text(&g.Listen, ":7601", Setting{Name: "listen", Group: Clients, Help: "listen for clients, of all kinds, on this HOST:PORT; of a site, for the cell that site names, or the first one of a directory, and for each other cell at the port that is as far from it as their numbers", check: address(&g.Listen)}),
		number(&g.Connections, serve.Connections, Setting{Name: "max-connections", Group: Clients, Help: "how many connections clients may have in all; fewer where file descriptors allow fewer, of which each takes two",
			check: func() error { return need(g.Connections >= 1, "%d: use 1 or more", g.Connections) }}),
		number(&g.PerAddress, serve.ConnectionsPerAddress, Setting{Name: "max-connections-per-address", Group: Clients, Help: "how many connections one address may have; give more where a load balancer speaks for many. This host has no such bound",
			check: func() error { return need(g.PerAddress >= 1, "%d: use 1 or more", g.PerAddress) }}),
		duration(&g.Drain, 5*time.Second, Setting{Name: "drain", Group: Clients, Help: "how long connections may go on when the gateway is to end",
			check: func() error { return need(g.Drain >= 0, "%v: use 0 or more", g.Drain) }}),
		text(&g.MetricsListen, "", Setting{Name: "metrics-listen", Group: Clients, Help: "serve /metrics, /livez and /readyz of the gateway on this HOST:PORT, in plain text and to everybody: they name nothing", check: address(&g.MetricsListen)}),
	}, logging(&g.LogLevel, &g.LogFormat, false))
}

// LoadGateway is Load for a gateway.
func LoadGateway(from Sources) (*Gateway, error) {
	text, err := from.text()
	if err != nil {
		return nil, err
	}
	g := NewGateway()
	if err := g.load(from, from.File, text, func() error { return nil }); err != nil {
		return nil, err
	}
	return g, nil
}

// Complete returns an error if the settings without which no gateway runs are not set.
func (g *Gateway) Complete() error {
	if g.Site == "" {
		return errors.New("gateway: --site is needed, as a flag, in --config or in the environment")
	}
	return nil
}

// AddGatewayFlags adds the flags of all settings of a gateway. Their values are read by GatewayGiven.
func AddGatewayFlags(fl *pflag.FlagSet) { NewGateway().addFlags(fl, nil) }

// GatewayGiven is Given for a gateway.
func GatewayGiven(fl *pflag.FlagSet) map[string][]string { return NewGateway().given(fl) }
