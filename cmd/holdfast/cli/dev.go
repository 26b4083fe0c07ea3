// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/dev"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// devServers is how many servers dev runs: the fewest of which one may fail.
const devServers = 3

func (a *app) devCommand() *cobra.Command {
	var dir string
	var base int
	f := &serverFlags{}
	c := &cobra.Command{
		Use:   "dev [--dir DIR] [--base-port 7601]",
		Short: "Run three servers on this machine, to try Holdfast",
		Long: `Run three server processes on this machine over one directory: for clients of all
kinds on base-port and the next two ports, for each other on base-port+200. A directory
that is no volume yet becomes one.
Kill a server and see what happens: dev prints how to start it again. Ctrl-C ends them all.

The servers' logs go to the standard error; with -o json the standard output has
one object with addresses and process IDs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if last := 65536 - (defaultPeerPort - defaultClientPort) - devServers; base < 1 || base > last {
				return usagef("--base-port %d: use 1 to %d", base, last)
			}
			return a.dev(c.Context(), dir, base, a.passOn(c.Flags(), f))
		},
	}
	fl := c.Flags()
	fl.StringVar(&dir, "dir", "", "the directory (default: a fresh one under ./.holdfast)")
	fl.IntVar(&base, "base-port", defaultClientPort, "the first port for clients")
	originFlag(fl, f)
	unsafeFlag(fl, f)
	logFlags(fl, f)
	timingFlags(fl, f)
	return c
}

// passOn returns the arguments of a server's command line, with the flags that were given to dev.
func (a *app) passOn(fl *pflag.FlagSet, f *serverFlags) []string {
	format := f.logFormat
	if format == "" {
		format = "console"
	}
	args := []string{"server", "--log-format", format, "--data-dir", serve.NoDataDir}
	fl.Visit(func(x *pflag.Flag) {
		switch x.Name {
		case "dir", "base-port", "log-format", "output", "endpoints", "timeout":
		default:
			values := []string{x.Value.String()}
			if list, ok := x.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			for _, v := range values {
				args = append(args, "--"+x.Name+"="+v)
			}
		}
	})
	return args
}

func (a *app) dev(ctx context.Context, dir string, base int, args []string) error {
	const host = "127.0.0.1"
	var servers cluster.Members
	var addrs []string
	for i := range devServers {
		m := memberAt(host, base+i)
		m.ID = cluster.ServerID(i + 1)
		servers, addrs = append(servers, m), append(addrs, m.Client, m.Peer)
	}
	if err := dev.CheckPorts(addrs); err != nil {
		return err
	}
	dir, servers, err := devVolume(ctx, dir, servers)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find my own binary: %w", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	newLogQueue(a.Stderr, "dev      | %d lines of logs were dropped: their reader was too slow").attach(a)
	return dev.Run(ctx, dev.Options{
		Command: append([]string{self}, args...), Volume: dir, Servers: servers, Output: a.Stderr,
		Started: func(pids map[cluster.ServerID]int) { a.banner(dir, servers, pids) },
	})
}

// devVolume returns the directory of the volume, which it makes if it is not there, and its servers. Those of an older
// volume have one address more.
func devVolume(ctx context.Context, dir string, servers cluster.Members) (string, cluster.Members, error) {
	if dir == "" {
		dir = filepath.Join(".holdfast", time.Now().Format("20060102-150405"))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return "", nil, err
	}
	c, err := volume.ReadCluster(f)
	err = errors.Join(err, f.Close())
	switch {
	case errors.Is(err, volume.ErrNoCluster):
		if c, err = makeVolume(ctx, dir, servers); err == nil {
			err = signingOn(dir)
		}
	case err == nil && !slices.EqualFunc(c.Servers, servers, func(a, b cluster.Member) bool { a.OldHTTP = ""; return a == b }):
		err = fmt.Errorf("%s is a volume of other servers: server 1 is at %s for clients; use that --base-port, or another --dir", dir, c.Servers[0].Client)
	}
	return dir, c.Servers, err
}

type devBanner struct {
	Volume    string      `json:"volume"`
	Endpoints string      `json:"endpoints"`
	Servers   []devServer `json:"servers"`
}

type devServer struct {
	cluster.Member
	PID int `json:"pid"`
}

func (a *app) banner(dir string, servers cluster.Members, pids map[cluster.ServerID]int) {
	b := devBanner{Volume: dir}
	var endpoints []string
	for _, m := range servers {
		endpoints = append(endpoints, m.Client)
		b.Servers = append(b.Servers, devServer{m, pids[m.ID]})
	}
	b.Endpoints = strings.Join(endpoints, ",")
	a.print(b, func(w io.Writer) { bannerText(w, &b) }) //nolint:errcheck // the servers run all the same
}

func bannerText(w io.Writer, b *devBanner) {
	fmt.Fprintf(w, "Three Holdfast servers over %s\nEach has one port for gRPC, HTTP, WebSocket and lines of text:\n\n", b.Volume)
	for _, s := range b.Servers {
		fmt.Fprintf(w, "  server %d   http://%s   pid %d\n", s.ID, s.Client, s.PID)
	}
	flag := ""
	if b.Endpoints != defaultEndpoints {
		flag = fmt.Sprintf("  export HOLDFAST_ENDPOINTS=%s\n", b.Endpoints)
	}
	fmt.Fprintf(w, `
Try in another terminal:
%s  holdfast status
  holdfast run demo -- sh -c 'echo I hold token $HOLDFAST_TOKEN; sleep 5'
  echo hello | holdfast append demo greetings.log; cat %s/files/greetings.log
  curl -d '{"lock":"demo","ttl":"30s"}' http://%s/v1/acquire
  kill -9 %d; holdfast status
Ctrl-C ends all three.

`, flag, b.Volume, b.Servers[len(b.Servers)-1].Client, b.Servers[0].PID)
}
