// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/dev"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// devServers is how many servers dev runs: the fewest of which one may fail.
const devServers = 3

func (a *app) devCommand() *cobra.Command {
	var dir string
	var base, metrics int
	secure := false
	c := &cobra.Command{
		Use:   "dev [--dir DIR] [--base-port 7601] [--secure]",
		Short: "Run three servers on this machine, to try Holdfast",
		Long: `Run three server processes on this machine over one directory: for clients of all
kinds on base-port and the next two ports, for each other on base-port+200. A directory
that is no volume yet becomes one.
Kill a server and see what happens: dev prints how to start it again. Ctrl-C ends them all.

They speak plain text, on loopback, and everybody who reaches them may do everything. With --secure,
the volume is one as holdfast init makes it: TLS, access rules of the policy team, and credentials.

The servers' logs go to the standard error; with -o json the standard output has
one object with addresses and process IDs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if last := 65536 - (defaultPeerPort - defaultClientPort) - devServers; base < 1 || base > last {
				return usagef("--base-port %d: use 1 to %d", base, last)
			}
			if last := 65536 - devServers; metrics < 0 || metrics > last {
				return usagef("--metrics-port %d: use 0 to %d", metrics, last)
			}
			return a.dev(c.Context(), devSite{dir, base, secure, metrics}, a.passOn(c.Flags()))
		},
	}
	fl := c.Flags()
	fl.StringVar(&dir, "dir", "", "the directory (default: a fresh one under ./.holdfast)")
	fl.IntVar(&base, "base-port", defaultClientPort, "the first port for clients")
	fl.BoolVar(&secure, "secure", false, "with TLS, access rules and credentials")
	settings.AddFlags(fl, forDev)
	fl.IntVar(&metrics, "metrics-port", 0, "serve each server's /metrics, /livez and /readyz on this port and the next two, too; 0 = only on the ports for clients")
	return c
}

// forDev reports whether dev has a setting of its servers as a flag.
func forDev(x *settings.Setting) bool {
	switch x.Name {
	case "web-origins", "ws-origin", "unsafe-filesystem":
		return true
	}
	return x.Group == settings.Logs || x.Group == settings.Traces || x.Group == settings.Timing
}

// passOn returns the arguments of a server's command line, with the flags that were given to dev.
func (a *app) passOn(fl *pflag.FlagSet) []string {
	given := settings.Given(fl)
	if given["log-format"] == nil {
		given["log-format"] = []string{settings.FormatConsole}
	}
	args := []string{"server", "--data-dir", serve.NoDataDir}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, v := range given[name] {
			args = append(args, "--"+name+"="+v)
		}
	}
	return args
}

// devSite is what dev runs.
type devSite struct {
	dir    string
	base   int
	secure bool
	// metrics is the first port for metrics, 0 for none.
	metrics int
}

func (a *app) dev(ctx context.Context, site devSite, args []string) error {
	const host = "127.0.0.1"
	var servers cluster.Members
	var addrs []string
	for i := range devServers {
		m := memberAt(host, site.base+i)
		m.ID = cluster.ServerID(i + 1)
		servers, addrs = append(servers, m), append(addrs, m.Client, m.Peer)
	}
	metrics := map[cluster.ServerID]string{}
	for i := 0; i < devServers && site.metrics > 0; i++ {
		at := net.JoinHostPort(host, strconv.Itoa(site.metrics+i))
		metrics[cluster.ServerID(i+1)], addrs = at, append(addrs, at)
	}
	if err := dev.CheckPorts(addrs); err != nil {
		return err
	}
	b, err := devVolume(site, servers)
	if err != nil {
		return err
	}
	for i := range b.Servers {
		b.Servers[i].Metrics = metrics[b.Servers[i].ID]
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find my own binary: %w", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	newLogQueue(a.Stderr, "dev      | %d lines of logs were dropped: their reader was too slow").attach(a)
	return dev.Run(ctx, dev.Options{
		Command: append([]string{self}, args...), Volume: b.Volume, Servers: servers, Metrics: metrics, Output: a.Stderr,
		Started: func(pids map[cluster.ServerID]int) { a.banner(b, pids) },
	})
}

// devVolume returns what there is to say of the volume, which it makes if it is not there. The servers of an older volume
// have one address more.
func devVolume(site devSite, servers cluster.Members) (*devBanner, error) {
	dir := site.dir
	if dir == "" {
		dir = filepath.Join(".holdfast", time.Now().Format("20060102-150405"))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	c, err := volume.ReadCluster(f)
	switch {
	case errors.Is(err, volume.ErrNoCluster) && site.secure:
		c, err = makeVolume(dir, servers, nil, &equipment{Policy: rules.Team})
	case errors.Is(err, volume.ErrNoCluster):
		c, err = makeVolume(dir, servers, nil, nil)
	case err == nil && !slices.EqualFunc(c.Servers, servers, func(a, b cluster.Member) bool { a.OldHTTP = ""; return a == b }):
		err = fmt.Errorf("%s is a volume of other servers: server 1 is at %s for clients; use that --base-port, or another --dir", dir, c.Servers[0].Client)
	}
	if err != nil {
		return nil, err
	}
	b := &devBanner{Volume: dir}
	for _, m := range c.Servers {
		b.Servers = append(b.Servers, devServer{Member: m})
	}
	ruled, err := newestVersion(f)
	if err != nil {
		return nil, err
	}
	if ruled > 0 {
		b.Join, err = joinString(f)
	} else if site.secure {
		err = fmt.Errorf("%s is an open volume: use another --dir, or give it access rules (holdfast access set --policy team --volume %s) and an authority (holdfast secure offer --volume %s)", dir, dir, dir)
	}
	return b, err
}

type devBanner struct {
	Volume    string `json:"volume"`
	Endpoints string `json:"endpoints"`
	// Join is the join string of a volume with access rules, "" for an open one.
	Join string `json:"join,omitempty"`
	// Page is the address of the page of the first server. On loopback it needs no certificate that a browser trusts.
	Page    string      `json:"page"`
	Servers []devServer `json:"servers"`
}

type devServer struct {
	cluster.Member
	PID int `json:"pid"`
	// Metrics is the address for its metrics and probes, "" for that for clients.
	Metrics string `json:"metrics,omitempty"`
}

func (a *app) banner(b *devBanner, pids map[cluster.ServerID]int) {
	var endpoints []string
	for i := range b.Servers {
		s := &b.Servers[i]
		s.PID = pids[s.ID]
		endpoints = append(endpoints, s.Client)
	}
	b.Endpoints, b.Page = strings.Join(endpoints, ","), "http://"+endpoints[0]+"/"
	if b.Join != "" {
		b.Endpoints = b.Volume
	}
	a.print(b, func(w io.Writer) { bannerText(w, b) }) //nolint:errcheck // the servers run all the same
}

func bannerText(w io.Writer, b *devBanner) {
	scheme, said := "http", "They speak plain text, and everybody who reaches them may do everything (with TLS, access rules and credentials: --secure)"
	if b.Join != "" {
		scheme, said = "https", "They speak TLS, and go by access rules: callers need a credential"
	}
	fmt.Fprintf(w, "Three Holdfast servers over %s\nEach has one port for gRPC, HTTP, WebSocket and lines of text. %s:\n\n", b.Volume, said)
	for _, s := range b.Servers {
		metrics := ""
		if s.Metrics != "" {
			metrics = "   http://" + s.Metrics + "/metrics"
		}
		fmt.Fprintf(w, "  server %d   %s://%s   pid %d%s\n", s.ID, scheme, s.Client, s.PID, metrics)
	}
	flag := ""
	if b.Endpoints != defaultEndpoints {
		flag = fmt.Sprintf("  export HOLDFAST_ENDPOINTS=%s\n", b.Endpoints)
	}
	last := b.Servers[len(b.Servers)-1].Client
	fmt.Fprintf(w, "\nLook at them in a browser: %s shows servers, locks and files as they change; %spage/example.html holds a lock.\n", b.Page, b.Page)
	fmt.Fprintf(w, `
Try in another terminal:
%s  holdfast status
  holdfast run demo -- sh -c 'echo I hold token $HOLDFAST_TOKEN; sleep 5'
  echo hello | holdfast append demo greetings.log; cat %s/files/greetings.log
`, flag, b.Volume)
	if b.Join == "" {
		fmt.Fprintf(w, `  curl -d '{"lock":"demo","ttl":"30s"}' http://%s/v1/acquire
`, last)
	} else {
		fmt.Fprintf(w, `  holdfast whoami
You own the volume's secrets, so you may do everything. As a service with a key, from any host:
  export HOLDFAST_KEY=$(holdfast key create ci --volume %s)
  export HOLDFAST_ENDPOINTS='%s'
  holdfast whoami
  holdfast can break demo
  curl --cacert %s/ca.crt -H "Authorization: Bearer $HOLDFAST_KEY" -d '{"lock":"demo","ttl":"30s"}' https://%s/v1/acquire
`, b.Volume, b.Join, b.Volume, last)
	}
	fmt.Fprintf(w, `  kill -9 %d; holdfast status
Ctrl-C ends all three.

`, b.Servers[0].PID)
}
