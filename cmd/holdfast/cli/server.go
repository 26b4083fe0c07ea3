// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// serverFlags are the flags of `holdfast server`. dev forwards those of the timing.
type serverFlags struct {
	id         uint32
	volume     string
	data       string
	config     string
	bind       string
	logLevel   string
	logFormat  string
	timing     cluster.Timing
	policy     string
	pushAck    string
	unsafe     bool
	history    primary.HistoryOptions
	listen     string
	also       []string // addresses, by oldListenFlags
	origins    []string
	wsOrigins  []string // further ones, by the older name
	names      []string
	tlsMin     string
	socket     string
	tlsCert    string
	tlsKey     string
	clientCA   string
	perAddress int
	metrics    string
	slow       time.Duration
}

func (a *app) serverCommand() *cobra.Command {
	f := &serverFlags{}
	c := &cobra.Command{
		Use:   "server --id N --volume DIR",
		Short: "Run one server",
		Long: `Run one server of a volume, on the two addresses that CLUSTER has for its ID: one for
clients, by gRPC, HTTP, WebSocket or lines of text, and one for other servers.

At SIGTERM or SIGINT the server hands over the primary role, if it has it and another
server is able, and ends; at a second signal it ends at once. The exit code is 70 if a call
into the filesystem hangs and the process had to give up: let your supervisor restart it.

A configuration file is a JSON object with the names of the flags:
  {"id": 1, "volume": "/mnt/share/holdfast", "suspicion": "500ms"}
Flags win over the file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := readConfig(c.Flags(), f.config); err != nil {
				return err
			}
			return a.serve(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.Uint32Var(&f.id, "id", 0, "the ID of this server")
	fl.StringVar(&f.volume, "volume", "", "the directory on the share")
	fl.StringVar(&f.data, "data-dir", "", "a directory for this server only, on a local disk: it records how far the volume was, so that an old backup in its place is noticed, and a replica's copy of the state; none to have none (default: /var/lib/holdfast/CLUSTER-ID, or below ~/.local/state when not root)")
	fl.StringVar(&f.config, "config", "", "a JSON file with the names of these flags")
	fl.StringVar(&f.bind, "bind", "", "listen on this host instead of the one in CLUSTER (0.0.0.0 in a container)")
	unsafeFlag(fl, f)
	logFlags(fl, f)
	timingFlags(fl, f)
	historyFlags(fl, &f.history)
	listenFlags(fl, f)
	fl.StringVar(&f.metrics, "metrics-listen", "", "also serve /metrics, /livez and /readyz on this HOST:PORT, in plain text and to everybody: they name nothing")
	slowFlag(fl, f)
	return c
}

// slowFlag adds --slow, which server and dev have.
func slowFlag(fl *pflag.FlagSet, f *serverFlags) {
	fl.DurationVar(&f.slow, "slow", 500*time.Millisecond, "log where the time went of calls that take longer than this, at most one each second; 0 = never")
}

// historyFlags adds the flags that bound the history of ended grants.
func historyFlags(fl *pflag.FlagSet, o *primary.HistoryOptions) {
	fl.IntVar(&o.Rate, "history-rate", 2000, "how many plain releases a second the history records one by one; those above are counted, -1 counts all")
	fl.Int64Var(&o.TotalBytes, "history-bytes", 256<<20, "how much history is kept, in bytes: the oldest file of at most 16 MiB goes first")
	fl.DurationVar(&o.Age, "history-age", 90*24*time.Hour, "how long history is kept")
}

// checkHistory refuses bounds out of range.
func checkHistory(o primary.HistoryOptions) error {
	switch {
	case o.Rate < -1 || o.Rate == 0:
		return usagef("--history-rate %d: use 1 or more, or -1 to record no plain release one by one", o.Rate)
	case o.TotalBytes < 1<<20:
		return usagef("--history-bytes %d: use 1048576 or more", o.TotalBytes)
	case o.Age < time.Hour:
		return usagef("--history-age %v: use 1h or more", o.Age)
	}
	return nil
}

func unsafeFlag(fl *pflag.FlagSet, f *serverFlags) {
	fl.BoolVar(&f.unsafe, "unsafe-filesystem", false, "start although the filesystem can break the guarantees (see holdfast doctor); for tests only")
}

func logFlags(fl *pflag.FlagSet, f *serverFlags) {
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fl.StringVar(&f.logFormat, "log-format", "", "json or console (default: console on a terminal, else json)")
}

// timingFlags adds the flags that must be the same on all servers of a volume.
func timingFlags(fl *pflag.FlagSet, f *serverFlags) {
	t, d := &f.timing, cluster.DefaultTiming()
	f.timing = d
	for _, x := range []struct {
		to   *time.Duration
		name string
		is   time.Duration
		use  string
	}{
		{&t.Heartbeat, "heartbeat", d.Heartbeat, "how often a replica pings the primary"},
		{&t.Suspicion, "suspicion", d.Suspicion, "how long the primary may be silent"},
		{&t.MajorityWindow, "majority-window", d.MajorityWindow, "how old an answer may be for its server to count as reached"},
		{&t.QuorumTimeout, "quorum-timeout", d.QuorumTimeout, "how long a primary may miss a majority"},
		{&t.StorageTimeout, "storage-timeout", d.StorageTimeout, "how long the volume may not answer"},
		{&t.FencingPeriod, "fencing-period", d.FencingPeriod, "the wait between fencing and reading the log; on a filesystem of one host, where nothing stale is shown, at most 50ms of it"},
		{&t.Staleness, "staleness", d.Staleness, "how old data the filesystem may show"},
		{&t.MinTTL, "min-ttl", d.MinTTL, "the shortest lease"},
		{&t.MaxTTL, "max-ttl", d.MaxTTL, "the longest lease"},
		{&t.ClearBuffer, "clear-buffer", d.ClearBuffer, "added to the longest lease under failover-policy clear"},
		{&t.ClientRetention, "client-retention", d.ClientRetention, "how long a silent client is remembered"},
		{&t.PushAckTimeout, "push-ack-timeout", d.PushAckTimeout, "how long a replica may be silent before answers no longer wait for it"},
	} {
		fl.DurationVar(x.to, x.name, x.is, x.use)
	}
	fl.StringVar(&f.pushAck, "push-ack", string(d.PushAck), "which live replicas must have a record, beside the volume, before it is answered: none, majority or all")
	fl.StringVar(&f.policy, "failover-policy", string(d.Policy), "preserve keeps the locks across a failover, clear drops them after their leases")
}

// readConfig sets the flags that are in the file but not on the command line.
func readConfig(flags *pflag.FlagSet, path string) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	var config map[string]any
	if err := dec.Decode(&config); err != nil {
		return usagef("%s: %v: want one JSON object with the names of flags", path, err)
	}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	for name, value := range config {
		name = strings.ReplaceAll(name, "_", "-")
		if !slices.Contains(known, name) || name == "config" || name == "help" {
			return usagef("%s: %q is no flag of holdfast server", path, name)
		}
		if flags.Changed(name) {
			continue
		}
		values, ok := value.([]any)
		if !ok {
			values = []any{value}
		}
		for _, v := range values { // several for a flag that may be repeated
			if err := flags.Set(name, fmt.Sprint(v)); err != nil {
				return usagef("%s: %s: %v", path, name, err)
			}
		}
	}
	return nil
}

// The values of --tls-min.
const (
	tls12 = "1.2"
	tls13 = "1.3"
)

// serve runs the server until a signal comes.
func (a *app) serve(ctx context.Context, f *serverFlags) error {
	if f.id == 0 || f.volume == "" {
		return usagef("server: --id and --volume are needed, as flags or in --config")
	}
	log, err := a.logger(f)
	if err != nil {
		return err
	}
	f.timing.Policy, f.timing.PushAck = cluster.FailoverPolicy(f.policy), cluster.PushAck(f.pushAck)
	if err := f.timing.Validate(); err != nil {
		return usagef("%v", err)
	}
	if err := checkHistory(f.history); err != nil {
		return err
	}
	if f.slow < 0 {
		return usagef("--slow %v: use 0 or more", f.slow)
	}
	if err := checkListen("metrics-listen", f.metrics); err != nil {
		return err
	}
	if f.tlsMin != tls12 && f.tlsMin != tls13 {
		return usagef("--tls-min %q: use %s or %s", f.tlsMin, tls13, tls12)
	}
	also, warnings, err := f.listening()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn().Msg(w)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = serve.Run(ctx, serve.Options{
		Server: cluster.ServerID(f.id), Volume: f.volume, DataDir: f.data, Bind: f.bind, Listen: f.listen, Also: also, Socket: f.socket, PerAddress: f.perAddress, TLSCert: f.tlsCert, TLSKey: f.tlsKey, ClientCA: f.clientCA, Origins: f.origins, Names: f.names, TLS12: f.tlsMin == tls12, Timing: f.timing, Metrics: f.metrics, Slow: f.slow,
		Version: readVersion().Version, UnsafeFilesystem: f.unsafe, History: f.history, Log: log,
		Stuck: func(err error) {
			log.Error().Err(err).Msg("ending the process: nothing else can end a call that hangs in the filesystem")
			a.flush()
			os.Exit(exitStuck)
		},
	})
	switch {
	case errors.Is(err, volume.ErrSameID):
		return fmt.Errorf("%w: is this server running already, here or on another host? Each server needs an ID of its own", err)
	case err != nil:
		return err
	}
	log.Info().Msg("ended")
	return nil
}

// logFlush bounds how long a server waits for the reader of its log before it exits.
const logFlush = time.Second

// logger returns the server's log. From now on all output passes through a queue, so that no
// write waits for its reader.
func (a *app) logger(f *serverFlags) (log zerolog.Logger, err error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil || level == zerolog.NoLevel {
		return log, usagef("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	var w io.Writer = a.Stderr
	switch f.logFormat {
	case formatJSON:
	case "console":
		w = console(a.Stderr)
	case "":
		if a.format != formatJSON && isTerminal(a.Stderr) {
			w = console(a.Stderr)
		}
	default:
		return log, usagef("--log-format %q: use json or console", f.logFormat)
	}
	q := newLogQueue(w, `{"level":"warn","dropped":%d,"message":"log lines were dropped: their reader was too slow"}`)
	q.attach(a)
	return zerolog.New(q).Level(level).Hook(zerolog.HookFunc(stamp)), nil
}

// stamp adds the time with milliseconds, which zerolog does only by a global setting.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

func console(w io.Writer) io.Writer {
	return zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w), TimeFormat: "15:04:05.000"}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// untilSignal returns a context that ends with SIGINT or SIGTERM. A second signal has its default
// effect and ends the process.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
