// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// The ports of a server whose address names none.
const (
	defaultGRPCPort = 7601
	defaultHTTPPort = 7701
	defaultPeerPort = 7801
)

func (a *app) initCommand() *cobra.Command {
	var dir string
	var servers []string
	c := &cobra.Command{
		Use:   "init --volume DIR --server 1=HOST --server 2=HOST --server 3=HOST",
		Short: "Make an empty directory on the share a volume",
		Long: `Make an empty directory on the share a volume. Once, from any host.

A server is ID=HOST for the ports 7601 (gRPC), 7701 (HTTP) and 7801 (peers),
ID=HOST:PORT for PORT, PORT+100 and PORT+200, or ID=GRPC,HTTP,PEER with three
addresses. The directory is made if its parent is there: a parent that is
missing may mean that the share is not mounted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			members, err := parseServers(servers)
			if err != nil {
				return err
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			info, err := makeVolume(c.Context(), dir, members)
			if err != nil {
				return err
			}
			out := initResult{Status: cluster.StatusOK.String(), Volume: dir, Cluster: info}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is the volume of cluster %s\n", dir, info.ID)
				initText(w, &out)
			})
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	c.Flags().StringArrayVar(&servers, "server", nil, "a server, see above; once for each")
	required(c, "volume", "server")
	return c
}

type initResult struct {
	Status string `json:"status"`
	Volume string `json:"volume"`
	volume.Cluster
}

// initText says what to do next, in commands that can be pasted.
func initText(w io.Writer, r *initResult) {
	var endpoints []string
	for _, m := range r.Servers {
		data := ""
		if dir, err := serve.DefaultDataDir(r.ID, m.ID); err == nil {
			data = " --data-dir " + dir
		}
		fmt.Fprintf(w, "start on its host:  holdfast server --id %d --volume %s%s   (gRPC %s, HTTP %s, peers %s)\n", m.ID, r.Volume, data, m.GRPC, m.HTTP, m.Peer)
		endpoints = append(endpoints, m.GRPC)
	}
	fmt.Fprintf(w, "and for clients:    export HOLDFAST_ENDPOINTS=%s\n", strings.Join(endpoints, ","))
}

// notInside refuses a directory within a volume: what its servers write would lie among the
// protected files or the log of others.
func notInside(dir string) error {
	for at := filepath.Dir(filepath.Clean(dir)); ; at = filepath.Dir(at) {
		f, err := osfs.Open(at)
		if err == nil {
			_, err = volume.ReadCluster(f)
			err = errors.Join(err, f.Close())
		}
		switch {
		case err == nil:
			return fmt.Errorf("%s is inside the volume %s: make a volume beside others, not in one", dir, at)
		case at == filepath.Dir(at):
			return nil
		}
	}
}

// required marks flags that the command cannot do without.
func required(c *cobra.Command, names ...string) {
	for _, n := range names {
		if err := c.MarkFlagRequired(n); err != nil {
			panic(err) // a flag that is not there: a mistake in this package
		}
	}
}

// makeVolume makes the directory where only it is missing, and inits it.
func makeVolume(ctx context.Context, dir string, members cluster.Members) (volume.Cluster, error) {
	if err := notInside(dir); err != nil {
		return volume.Cluster{}, err
	}
	err := os.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return volume.Cluster{}, fmt.Errorf("make %s: %s is not there: is the share mounted? Make the parent yourself if it should be new", dir, filepath.Dir(filepath.Clean(dir)))
	case err != nil && !errors.Is(err, fs.ErrExist):
		return volume.Cluster{}, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return volume.Cluster{}, err
	}
	c, err := volume.Init(ctx, f, members, rand.Reader)
	if errors.Is(err, volume.ErrExists) {
		err = fmt.Errorf("%s: %w: start servers on it, or give another directory", dir, err)
	}
	return c, errors.Join(err, f.Close())
}

// parseServers reads --server flags.
func parseServers(flags []string) (cluster.Members, error) {
	var members cluster.Members
	for _, f := range flags {
		id, addr, ok := strings.Cut(f, "=")
		n, err := strconv.ParseUint(id, 10, 32)
		if !ok || err != nil || n == 0 || addr == "" {
			return nil, usagef("--server %q: use ID=HOST, ID=HOST:PORT or ID=GRPC,HTTP,PEER, IDs from 1", f)
		}
		m, err := parseAddresses(addr)
		if err != nil {
			return nil, usagef("--server %q: %v", f, err)
		}
		m.ID = cluster.ServerID(n)
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
	if err := members.Validate(); err != nil {
		return nil, usagef("--server: %v", err)
	}
	return members, nil
}

func parseAddresses(addr string) (cluster.Member, error) {
	parts := strings.Split(addr, ",")
	switch len(parts) {
	case 1:
	case 3:
		for _, p := range parts {
			if err := checkAddress(p); err != nil {
				return cluster.Member{}, err
			}
		}
		return cluster.Member{GRPC: parts[0], HTTP: parts[1], Peer: parts[2]}, nil
	default:
		return cluster.Member{}, fmt.Errorf("%d addresses: give one, or three with commas between", len(parts))
	}
	host, base := addr, defaultGRPCPort
	if h, p, err := net.SplitHostPort(addr); err == nil {
		n, err := strconv.Atoi(p)
		if last := maxPort - defaultPeerPort + defaultGRPCPort; h == "" || err != nil || n < 1 || n > last {
			return cluster.Member{}, fmt.Errorf("address %s: use HOST:PORT with a port from 1 to %d, for two more lie above it", addr, last)
		}
		host, base = h, n
	}
	m := memberAt(host, base)
	return m, checkAddress(m.GRPC)
}

// maxPort is the last port there is.
const maxPort = 1<<16 - 1

// checkAddress wants a host and the number of a port.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > maxPort {
		return fmt.Errorf("address %s: host or port is missing, or is none", addr)
	}
	if strings.ContainsAny(host, "/@ \t\n") || !utf8.ValidString(host) {
		return fmt.Errorf("address %s: %q is no host", addr, host)
	}
	return nil
}

// memberAt is a server whose three ports lie 100 apart.
func memberAt(host string, base int) cluster.Member {
	host = strings.Trim(host, "[]")
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	return cluster.Member{GRPC: at(base), HTTP: at(base + defaultHTTPPort - defaultGRPCPort), Peer: at(base + defaultPeerPort - defaultGRPCPort)}
}

func (a *app) fsckCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "fsck --volume DIR",
		Short: "Compare everything on a volume with everything else; only reads",
		Long: `Compare CLUSTER, epochs, fences, logs, checkpoints, receipts, protected files
and views with each other, and say of each finding where it is, how bad it is
and what to type. It only reads. Servers may run: what does not fit is read again
before it counts. The exit code is 1 when there are errors.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			f, err := osfs.Open(dir)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			r, err := volume.Fsck(c.Context(), f, volume.FsckOptions{Dir: dir, Progress: a.progress()})
			if err != nil {
				return fmt.Errorf("fsck %s: %w", dir, err)
			}
			if r.Errors > 0 {
				a.code = exitFindings
			}
			return a.print(r, func(w io.Writer) { fsckText(w, dir, r) })
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	required(c, "volume")
	return c
}

// slowFsck is how long fsck works before it says where it is.
const slowFsck = 2 * time.Second

// progress tells on the standard error what is looked at, about once in slowFsck.
func (a *app) progress() func(string) {
	last := time.Now()
	return func(what string) {
		if time.Since(last) >= slowFsck {
			last = time.Now()
			fmt.Fprintf(a.Stderr, "fsck: %s\n", what)
		}
	}
}

func fsckText(w io.Writer, dir string, r *volume.Report) {
	for _, f := range r.Findings {
		where := f.Path
		if f.Offset > 0 {
			where += fmt.Sprintf(" at %d", f.Offset)
		}
		if f.LSN > 0 {
			where += fmt.Sprintf(" (LSN %d)", f.LSN)
		}
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Severity, where, f.Problem)
		if f.Advice != "" {
			fmt.Fprintf(w, "         %s\n", f.Advice)
		}
	}
	fmt.Fprintf(w, "%s: cluster %s, epoch %d of %d, LSN %d (%d records behind the base at %d), %d locks, %d clients, %d files (%d bytes compared)\n",
		dir, r.Cluster, r.Epoch, r.Epochs, r.LSN, r.Records, r.Base, r.Locks, r.Clients, r.Files, r.Bytes)
	fmt.Fprintf(w, "%d errors\n", r.Errors)
}
