// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/supervisor"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

func (a *app) serverCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "server --id N --volume DIR | --id N --site DIR [--cell K]",
		Short: "Run one server",
		Long: `Run one server of a volume, on the two addresses that CLUSTER has for its ID: one for
clients, by gRPC, HTTP, WebSocket or lines of text, and one for other servers.

At SIGTERM or SIGINT the server hands over the primary role, if it has it and another
server is able, and ends; at a second signal it ends at once. The exit code is 70 if a call
into the filesystem hangs and the process had to give up: let your supervisor restart it.
It is 78 for a server that was removed from the cluster: do not restart that one.

With --site it runs a server for each cell of that site (see holdfast site), each in a process of
its own, so that a filesystem that hangs ends one cell only. It starts again what ends, but for a
server that was removed; its exit code is 78 when they all were. Ports of the settings below are by
the number of the cell higher, and paths end with that number. --cell K serves one cell, in this process.

Each flag is also a key of the file that --config names, in TOML, and an environment
variable: --log-level is log-level = "info" there, and HOLDFAST_SERVER_LOG_LEVEL. A flag
wins over the environment, that over the file. See holdfast config --help: what is
configured, and how it is changed while the server runs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), a.sources(c.Flags())) },
	}
	serverFlags(c.Flags())
	return c
}

// serverFlags adds the flags of all settings, and the one that names the file.
func serverFlags(fl *pflag.FlagSet) {
	settings.AddFlags(fl, nil)
	fl.String(settings.FileFlag, "", "a file in TOML (or one JSON object) with the names of these flags (default $HOLDFAST_SERVER_CONFIG)")
}

// sources returns where the settings of a command with serverFlags come from.
func (a *app) sources(fl *pflag.FlagSet) settings.Sources {
	file := fl.Lookup(settings.FileFlag).Value.String()
	return settings.Sources{Flags: settings.Given(fl), Getenv: a.Getenv, File: cmp.Or(file, a.Getenv(settings.Prefix+"CONFIG"))}
}

// load is settings.Load with the errors of a command line.
func load(from settings.Sources) (*settings.Server, error) {
	s, err := settings.Load(from)
	if _, ok := errors.AsType[*settings.Error](err); ok {
		return nil, usagef("%v", err)
	}
	return s, err
}

// serve runs the server until a signal comes.
func (a *app) serve(ctx context.Context, from settings.Sources) error {
	s, err := load(from)
	if err != nil {
		return err
	}
	if err := s.Complete(); err != nil {
		return usagef("%v", err)
	}
	if s.Site != "" && s.Cell == settings.AllCells {
		return a.serveSite(ctx, s, from)
	}
	places, err := s.PlacesOf(s.Cell)
	if err != nil {
		return usagef("server: %v", err)
	}
	log, level := a.logger(s.LogLevel, s.LogFormat)
	cell := cluster.CellID(max(s.Cell, 0))
	if s.Site != "" {
		log = log.With().Uint32("cell", uint32(cell)).Logger()
	}
	names, also := s.Deprecated()
	for _, name := range names {
		log.Warn().Msgf("--%s is deprecated, and the next version refuses it: the address for clients serves WebSocket and lines of text, too; let clients use that, and leave the flag out", name)
	}
	r := &reloader{from: from, started: s, now: s, live: serve.NewLive(liveOf(s)), level: level, log: log}
	ctx, stop := a.untilStopped(ctx)
	defer stop()
	defer r.onSignal()()
	err = serve.Run(ctx, serve.Options{
		Server: cluster.ServerID(s.ID), Volume: s.Volume, Site: s.Site, Cell: cell, Secrets: s.Secrets, DataDir: places.DataDir, Bind: s.Bind, Listen: places.Listen, Also: also, Socket: places.Unix,
		Names: s.Names, Connections: s.Connections, TLS12: s.TLSMin == settings.TLS12, Timing: s.Timing(), Live: r.live, Reload: r.reload,
		Version: a.version().Version, UnsafeFilesystem: s.UnsafeFilesystem, History: s.History, Metrics: places.MetricsListen, Slow: s.Slow, Log: log,
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

// logger returns the log of a server or a gateway, and its level, which may be changed. From now on all output passes through a queue, so that no
// write waits for its reader.
func (a *app) logger(least, format string) (zerolog.Logger, *logLevel) {
	var w io.Writer = a.Stderr
	if format == settings.FormatConsole || format == "" && a.format != formatJSON && isTerminal(a.Stderr) {
		w = console(a.Stderr)
	}
	q := newLogQueue(w, `{"level":"warn","dropped":%d,"message":"log lines were dropped: their reader was too slow"}`)
	q.attach(a)
	level := &logLevel{}
	level.set(least)
	return zerolog.New(q).Level(zerolog.TraceLevel).Sample(level).Hook(zerolog.HookFunc(stamp)), level
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

// untilStopped is untilSignal for a server. One that has a supervisor takes no notice of a second signal, see there.
func (a *app) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	if supervisor.Supervises(a.Getenv) {
		return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	}
	return untilSignal(ctx)
}
