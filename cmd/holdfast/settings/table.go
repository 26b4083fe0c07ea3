// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
)

// Server has the values of all settings.
type Server struct {
	ID     uint32
	Volume string
	// Site is the directory of a site, in place of a volume, and Cell the one cell of it to serve; AllCells for a process for each.
	Site string
	Cell int

	DataDir          string
	Secrets          string
	Bind             string
	UnsafeFilesystem bool

	Listen      string
	Unix        string
	Connections int
	PerAddress  int
	Origins     []string
	OldOrigins  []string // of an older name
	// MetricsListen and Slow are for who operates the server.
	MetricsListen string
	Slow          time.Duration
	WSListen      string
	TextListen    string

	TLSMin          string
	Names           []string
	TLSCert, TLSKey string
	ClientCA        string

	LogLevel, LogFormat string

	Trace trace.Config

	History primary.HistoryOptions

	timing          cluster.Timing // without the texts
	policy, pushAck string

	set
}

// Timing returns what must be the same on all servers.
func (s *Server) Timing() cluster.Timing {
	t := s.timing
	t.Policy, t.PushAck = cluster.FailoverPolicy(s.policy), cluster.PushAck(s.pushAck)
	return t
}

// AllOrigins returns the origins of both names.
func (s *Server) AllOrigins() []string { return slices.Concat(s.Origins, s.OldOrigins) }

// The values of tls-min.
const (
	TLS12 = "1.2"
	TLS13 = "1.3"
)

// The values of log-format. "" chooses one.
const (
	FormatJSON    = "json"
	FormatConsole = "console"
)

// table returns the settings. To add one, add a field to Server and a line here; `HOLDFAST_REWRITE=1 go test
// ./cmd/holdfast/settings` writes the documentation anew.
func (s *Server) table() []Setting {
	return slices.Concat(s.identity(), s.clients(), s.tls(), s.logs(), s.traces(), s.history(), s.timings())
}

// with returns a setting whose flag a method of pflag.FlagSet adds.
func with(x Setting, add func(fl *pflag.FlagSet, name, help string)) Setting {
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(fl, x.Name, x.Help)
	x.flag = fl.Lookup(x.Name)
	x.flag.Hidden = x.Hidden
	return x
}

func text(p *string, def string, x Setting) Setting {
	return with(x, func(fl *pflag.FlagSet, name, help string) { fl.StringVar(p, name, def, help) })
}

func duration(p *time.Duration, def time.Duration, x Setting) Setting {
	return with(x, func(fl *pflag.FlagSet, name, help string) { fl.DurationVar(p, name, def, help) })
}

func list(p *[]string, x Setting) Setting {
	return with(x, func(fl *pflag.FlagSet, name, help string) { fl.StringSliceVar(p, name, nil, help) })
}

func number(p *int, def int, x Setting) Setting {
	return with(x, func(fl *pflag.FlagSet, name, help string) { fl.IntVar(p, name, def, help) })
}

func (s *Server) identity() []Setting {
	return []Setting{
		with(Setting{Name: "id", Group: Identity, Help: "the ID of this server"},
			func(fl *pflag.FlagSet, name, help string) { fl.Uint32Var(&s.ID, name, 0, help) }),
		text(&s.Volume, "", Setting{Name: "volume", Group: Identity, Help: "the directory on the share"}),
		text(&s.Site, "", Setting{Name: "site", Group: Identity, Help: "in place of volume, the directory of a site (see holdfast site): run a server for each of its cells, each a process that is started again when it ends"}),
		number(&s.Cell, AllCells, Setting{Name: "cell", Group: Identity, Help: "with site, serve this cell only, in this process; -1 = all of them",
			check: func() error {
				return need(s.Cell >= AllCells && s.Cell < cluster.MaxCells, "%d: use the number of a cell, 0 to %d", s.Cell, cluster.MaxCells-1)
			}}),
		text(&s.DataDir, "", Setting{Name: "data-dir", Group: Identity, Help: "a directory for this server only, on a local disk: it records how far the volume was, so that an old backup in its place is noticed, and a replica's copy of the state; none to have none (default: /var/lib/holdfast/CLUSTER-ID, or below ~/.local/state when not root)"}),
		text(&s.Secrets, "", Setting{Name: "secrets", Group: Identity, Help: "the directory of this host with the secrets of the volume, an absolute path, where the volume was made with init --secrets"}),
		text(&s.Bind, "", Setting{Name: "bind", Group: Identity, Help: "listen on this host instead of the one in CLUSTER (0.0.0.0 in a container)"}),
		with(Setting{Name: "unsafe-filesystem", Group: Identity, Help: "start although the filesystem can break the guarantees (see holdfast doctor); for tests only"},
			func(fl *pflag.FlagSet, name, help string) { fl.BoolVar(&s.UnsafeFilesystem, name, false, help) }),
	}
}

func (s *Server) clients() []Setting {
	const older = "deprecated: also listen for clients, of all kinds, on this HOST:PORT"
	all := []Setting{
		text(&s.Listen, "", Setting{Name: "listen", Group: Clients, Help: "listen for clients on this HOST:PORT instead of their address in CLUSTER, which other servers and clients go on using", check: address(&s.Listen)}),
		text(&s.Unix, "", Setting{Name: "unix", Group: Clients, Help: "also listen on a Unix socket at this path, such as /run/holdfast/holdfast.sock: users of this host are known by it"}),
		text(&s.MetricsListen, "", Setting{Name: "metrics-listen", Group: Clients, Help: "also serve /metrics, /livez and /readyz on this HOST:PORT, in plain text and to everybody: they name nothing", check: address(&s.MetricsListen)}),
		number(&s.Connections, serve.Connections, Setting{Name: "max-connections", Group: Clients, Help: "how many connections clients may have in all; fewer where file descriptors allow fewer",
			check: func() error { return need(s.Connections >= 1, "%d: use 1 or more", s.Connections) }}),
		number(&s.PerAddress, serve.ConnectionsPerAddress, Setting{Name: "max-connections-per-address", Group: Clients, Live: true, Help: "how many connections of clients one address may have; give more where a load balancer speaks for many. This host has no such bound",
			check: func() error { return need(s.PerAddress >= 1, "%d: use 1 or more", s.PerAddress) }}),
		list(&s.Origins, Setting{Name: "web-origins", Group: Clients, Live: true, Help: "let web pages of these origins use this server, such as https://*.example.com; in the host, * stands before a dot and a name only (may be repeated)", check: pages(&s.Origins)}),
		list(&s.OldOrigins, Setting{Name: "ws-origin", Group: Clients, Live: true, Hidden: true, Help: "the older name of web-origins", check: pages(&s.OldOrigins)}),
	}
	for i, name := range deprecated() {
		p := []*string{&s.WSListen, &s.TextListen}[i]
		all = append(all, text(p, "", Setting{Name: name, Group: Clients, Hidden: true, Help: older, check: address(p)}))
	}
	return all
}

// deprecated are settings with which a server had a port for WebSocket, and one for lines of text. They go with the
// next version.
func deprecated() []string { return []string{"ws-listen", "text-listen"} }

// Deprecated returns the deprecated settings that are set, and their addresses.
func (s *Server) Deprecated() (names, addresses []string) {
	for _, name := range deprecated() {
		if addr := s.Find(name).Value(); addr != "" {
			names, addresses = append(names, name), append(addresses, addr)
		}
	}
	return names, addresses
}

func (s *Server) tls() []Setting {
	return []Setting{
		text(&s.TLSMin, TLS13, Setting{Name: "tls-min", Group: TLS, Help: "the oldest version of TLS that clients may speak: 1.3, or 1.2 for those that know no other",
			check: func() error { return oneOf(s.TLSMin, TLS13, TLS12) }}),
		list(&s.Names, Setting{Name: "names", Group: TLS, Help: "further names and addresses by which clients reach this server, for its certificate, and for HTTP in plain text without a credential, such as that of a load balancer"}),
		text(&s.TLSCert, "", Setting{Name: "tls-cert", Group: TLS, Live: true, Help: "a PEM file with a certificate for clients, and those of its authorities, beside the one that the volume's own authority signs; it is read again every 10 s",
			check: func() error {
				return need(s.TLSCert == "" || s.TLSKey != "", "is set and tls-key is not: give both, or none")
			}}),
		text(&s.TLSKey, "", Setting{Name: "tls-key", Group: TLS, Live: true, Help: "a PEM file with the key of tls-cert",
			check: func() error {
				return need(s.TLSKey == "" || s.TLSCert != "", "is set and tls-cert is not: give both, or none")
			}}),
		text(&s.ClientCA, "", Setting{Name: "client-ca", Group: TLS, Live: true, Help: "a PEM file with authorities: a client that shows a certificate of one is cert:NAME, its first URI, else DNS name, else common name"}),
	}
}

func (s *Server) logs() []Setting {
	return append(logging(&s.LogLevel, &s.LogFormat, true),
		duration(&s.Slow, 500*time.Millisecond, Setting{Name: "slow", Group: Logs, Help: "log where the time went of calls that take longer than this, at most one each second; 0 = never",
			check: func() error { return need(s.Slow >= 0, "%v: use 0 or more", s.Slow) }}))
}

// logging returns the settings of a log.
func logging(level, format *string, live bool) []Setting {
	return []Setting{
		text(level, "info", Setting{Name: "log-level", Group: Logs, Live: live, Help: "debug, info, warn or error", check: func() error {
			l, err := zerolog.ParseLevel(*level)
			return need(err == nil && l != zerolog.NoLevel, "%q: use debug, info, warn or error", *level)
		}}),
		text(format, "", Setting{Name: "log-format", Group: Logs, Help: "json or console (default: console on a terminal, else json)", check: func() error {
			return need(*format == "" || *format == FormatJSON || *format == FormatConsole, "%q: use json or console", *format)
		}}),
	}
}

func (s *Server) traces() []Setting {
	c := &s.Trace
	return []Setting{
		text(&c.OTLP, "", Setting{Name: "trace-otlp", Group: Traces, Live: true, Help: "send traces of some calls to the collector at this HOST:PORT, by OTLP over gRPC in plain text; https://HOST:PORT for TLS",
			check: func() error {
				if c.OTLP == "" {
					return nil
				}
				return trace.CheckOTLP(c.OTLP)
			}}),
		with(Setting{Name: "trace-sample", Group: Traces, Live: true, Help: "the share of calls that are traced, from 0 to 1, beside those of clients that send a sampled traceparent; 0 = none, not those either",
			check: func() error { return need(c.Sample >= 0 && c.Sample <= 1, "%v: use 0 to 1", c.Sample) }},
			func(fl *pflag.FlagSet, name, help string) { fl.Float64Var(&c.Sample, name, 0.01, help) }),
	}
}

func (s *Server) history() []Setting {
	o := &s.History
	return []Setting{
		number(&o.Rate, 2000, Setting{Name: "history-rate", Group: History, Help: "how many plain releases a second the history records one by one; those above are counted, -1 counts all",
			check: func() error {
				return need(o.Rate >= 1 || o.Rate == -1, "%d: use 1 or more, or -1 to record no plain release one by one", o.Rate)
			}}),
		with(Setting{Name: "history-bytes", Group: History, Live: true, Help: "how much history is kept, in bytes: the oldest file of at most 16 MiB goes first",
			check: func() error { return need(o.TotalBytes >= 1<<20, "%d: use 1048576 or more", o.TotalBytes) }},
			func(fl *pflag.FlagSet, name, help string) { fl.Int64Var(&o.TotalBytes, name, 256<<20, help) }),
		duration(&o.Age, 90*24*time.Hour, Setting{Name: "history-age", Group: History, Live: true, Help: "how long history is kept",
			check: func() error { return need(o.Age >= time.Hour, "%v: use 1h or more", o.Age) }}),
	}
}

// timings are checked together, by cluster.Timing.Validate.
func (s *Server) timings() (all []Setting) {
	t, d := &s.timing, cluster.DefaultTiming()
	*t = d
	for _, x := range []struct {
		to   *time.Duration
		name string
		help string
	}{
		{&t.Heartbeat, "heartbeat", "how often a replica pings the primary"},
		{&t.Suspicion, "suspicion", "how long the primary may be silent"},
		{&t.MajorityWindow, "majority-window", "how old an answer may be for its server to count as reached"},
		{&t.QuorumTimeout, "quorum-timeout", "how long a primary may miss a majority"},
		{&t.StorageTimeout, "storage-timeout", "how long the volume may not answer"},
		{&t.FencingPeriod, "fencing-period", "the wait between fencing and reading the log; on a filesystem of one host, where nothing stale is shown, at most 50ms of it"},
		{&t.Staleness, "staleness", "how old data the filesystem may show"},
		{&t.MinTTL, "min-ttl", "the shortest lease"},
		{&t.MaxTTL, "max-ttl", "the longest lease"},
		{&t.ClearBuffer, "clear-buffer", "added to the longest lease under failover-policy clear"},
		{&t.ClientRetention, "client-retention", "how long a silent client is remembered"},
		{&t.PushAckTimeout, "push-ack-timeout", "how long a replica may be silent before answers no longer wait for it"},
	} {
		all = append(all, duration(x.to, *x.to, Setting{Name: x.name, Group: Timing, Help: x.help}))
	}
	return append(all,
		text(&s.pushAck, string(d.PushAck), Setting{Name: "push-ack", Group: Timing, Help: "which live replicas must have a record, beside the volume, before it is answered: none, majority or all"}),
		text(&s.policy, string(d.Policy), Setting{Name: "failover-policy", Group: Timing, Help: "preserve keeps the locks across a failover, clear drops them after their leases"}))
}

func need(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func oneOf(got string, all ...string) error {
	return need(slices.Contains(all, got), "%q: use %s or %s", got, all[0], all[1])
}

// address checks where to listen.
func address(p *string) func() error {
	return func() error {
		_, _, err := net.SplitHostPort(*p)
		return need(*p == "" || err == nil, "%q: use HOST:PORT", *p)
	}
}

// pages checks patterns of origins.
func pages(p *[]string) func() error {
	return func() error {
		for _, x := range *p {
			if err := origins.Check(x); err != nil {
				return err
			}
		}
		return nil
	}
}
