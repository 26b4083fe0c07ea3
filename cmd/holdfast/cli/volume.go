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

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/secrets"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// The ports of a server whose address names none.
const (
	defaultClientPort = 7601
	defaultPeerPort   = 7801
)

func (a *app) initCommand() *cobra.Command {
	var dir string
	var servers []string
	e := &equipment{}
	c := &cobra.Command{
		Use:   "init --volume DIR --server 1=HOST --server 2=HOST --server 3=HOST",
		Short: "Make an empty directory on the share a volume",
		Long: `Make an empty directory on the share a volume. Once, from any host, as the user that the servers
run as: that user owns the volume's secrets.

A server is ID=HOST for the ports 7601 (clients) and 7801 (other servers),
ID=HOST:PORT for PORT and PORT+200, or ID=CLIENT,PEER with two addresses. The directory is made if its parent is there: a parent that is
missing may mean that the share is not mounted.

Clients of other hosts are served over TLS only, and callers need a credential: those of the servers'
user make it themselves, others get one by holdfast key create. With --policy strict, each has a part of
the locks; with --policy open, nobody needs a credential. With --plain, clients of other hosts may speak
plain text beside TLS, and the policy is open unless --policy says otherwise: whoever reaches a server
may do everything then, so let a firewall decide who does. All of that can be changed later, see
holdfast access and holdfast secure.
With --secrets DIR, an absolute path, the keys of the volume are in DIR on this host, and not on the
volume: for shares that hosts with an untrusted root can read. Copy DIR to the host of each server.
With --logins, users of hosts that have the volume mounted log in without a key; see holdfast login.

Then init measures how fast the share is, for at most some seconds. If the default timing
of servers is too tight for it, the printed commands have the flags that servers need.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			members, err := parseServers(servers)
			if err != nil {
				return err
			}
			if err := e.check(c); err != nil {
				return err
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			e.Secrets = a.secrets // not that of the environment, which is another volume's
			if e.Secrets != "" {
				if e.Secrets, err = filepath.Abs(e.Secrets); err != nil {
					return err
				}
			}
			info, err := makeVolume(dir, members, nil, e)
			if err != nil {
				return err
			}
			out := initResult{Status: cluster.StatusOK.String(), Volume: dir, Cluster: info, equipment: *e, Timing: a.measure(dir), Notes: serverNotes(members)}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is the volume of cluster %s\n", dir, info.ID)
				initText(w, &out)
			})
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	c.Flags().StringArrayVar(&servers, "server", nil, "a server, see above; once for each")
	e.flags(c)
	required(c, "volume", "server")
	return c
}

type initResult struct {
	Status string `json:"status"`
	Volume string `json:"volume"`
	volume.Cluster
	equipment
	// Timing is how fast the share is, and the flags that all servers need for it; nil if it could
	// not be measured.
	Timing *doctor.Timing `json:"timing"`
	// Notes say what this choice of servers means.
	Notes []string `json:"notes"`
}

// serverNotes returns what to know of a choice of servers, while it can still be changed.
func serverNotes(servers cluster.Members) []string {
	notes := []string{}
	switch n := len(servers); {
	case n == 1:
		notes = append(notes, "while the only server is down, nothing is served: 3 go on without 1 of them")
	case n == 2:
		notes = append(notes, "when one of 2 servers is gone, the other one follows after some 3 seconds, by the vote of the volume: of 3, after less than one")
	case n%2 == 0:
		notes = append(notes, fmt.Sprintf("%d servers go on without %d of them, as %d would: take an odd number", n, (n-1)/2, n-1))
	}
	numbered := slices.ContainsFunc(servers, func(m cluster.Member) bool {
		host, _, err := net.SplitHostPort(m.Client)
		ip := net.ParseIP(host)
		return err == nil && ip != nil && !ip.IsLoopback()
	})
	if numbered {
		notes = append(notes, "with names of hosts for numbers, another host could take the place of a lost one without a change of the list of servers: see holdfast member")
	}
	return notes
}

// measure measures how fast the share is. The volume works without that, so an error is only
// printed, and the result is nil.
func (a *app) measure(dir string) *doctor.Timing {
	measure := a.Measure
	if measure == nil {
		measure = doctor.Measure
	}
	t, err := measure(dir)
	if err != nil {
		fmt.Fprintf(a.Stderr, "holdfast: how slow the share is could not be measured: %v; try holdfast doctor %s\n", err, dir)
		return nil
	}
	return t
}

// initText prints what to do next, as commands that can be pasted.
func initText(w io.Writer, r *initResult) {
	flags := ""
	if t := r.Timing; t != nil && len(t.Flags) > 0 {
		flags = " " + strings.Join(t.Flags, " ")
		fmt.Fprintf(w, "the default timing is too tight here: %s. All servers need the same flags, as below\n", t)
	}
	secretsFlag := ""
	if r.Secrets != "" {
		secretsFlag = " --secrets " + r.Secrets
		fmt.Fprintf(w, "the secrets are in %s on this host only: copy it to the host of each server, for example by rsync -a, and keep its modes\n", r.Secrets)
		fmt.Fprintf(w, "for the commands of this user:  export HOLDFAST_SECRETS=%s\n", r.Secrets)
	}
	var endpoints []string
	for _, m := range r.Servers {
		data := ""
		if dir, err := serve.DefaultDataDir(r.ID, m.ID); err == nil {
			data = " --data-dir " + dir
		}
		fmt.Fprintf(w, "start on its host:  holdfast server --id %d --volume %s%s%s%s   (clients %s, peers %s)\n", m.ID, r.Volume, data, secretsFlag, flags, m.Client, m.Peer)
		endpoints = append(endpoints, m.Client)
	}
	who, others := "clients:  ", "where the volume is not mounted"
	if r.Private {
		who, others = "this user:", "for other users, and "+others
	}
	if r.Plain {
		fmt.Fprintf(w, "and for clients:    export HOLDFAST_ENDPOINTS=%s\n", strings.Join(endpoints, ","))
		fmt.Fprintf(w, "or, over TLS:       export HOLDFAST_ENDPOINTS=%s   (%s: what holdfast join prints)\n", r.Volume, others)
	} else {
		fmt.Fprintf(w, "and for %s  export HOLDFAST_ENDPOINTS=%s\n", who, r.Volume)
		fmt.Fprintf(w, "                    export HOLDFAST_ENDPOINTS=\"$(holdfast join --volume %s)\"   (what that prints, %s)\n", r.Volume, others)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s (to begin again, remove %s)\n", note, r.Volume)
	}
	switch r.Policy {
	case rules.Open:
		fmt.Fprintf(w, "ANYBODY who reaches a server may do everything; to change that: holdfast access set --policy team --volume %s\n", r.Volume)
	default:
		fmt.Fprintf(w, `this user may do everything, with that directory as the endpoint. For everybody else, make a key:
                    holdfast key create ci --volume %s
its owner types:    export HOLDFAST_KEY=hfk_...
                    holdfast whoami
who may do what:    holdfast access edit --volume %s
`, r.Volume, r.Volume)
	}
}

// notInside refuses a directory within another volume: the files of the two would be mixed.
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

// secretsDir returns the directory of the secrets of a volume that does not have them, "" = none is named.
func (a *app) secretsDir() string { return cmp.Or(a.secrets, a.Getenv("HOLDFAST_SECRETS")) }

// required marks flags as required.
func required(c *cobra.Command, names ...string) {
	for _, n := range names {
		if err := c.MarkFlagRequired(n); err != nil {
			panic(err) // there is no such flag: a mistake in this package
		}
	}
}

// makeDir makes a directory, if its parent is there and it is not.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("make %s: %s is not there: is the share mounted? Make the parent yourself if it should be new", dir, filepath.Dir(filepath.Clean(dir)))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// makeVolume makes the directory, if its parent is there, and initializes it as a volume with this equipment, which owns what own says as a
// cell of a site; nil if it is none.
func makeVolume(dir string, members cluster.Members, own *cluster.Own, e *equipment) (volume.Cluster, error) {
	if err := notInside(dir); err != nil {
		return volume.Cluster{}, err
	}
	if err := makeDir(dir); err != nil {
		return volume.Cluster{}, err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return volume.Cluster{}, err
	}
	c, err := volume.InitCell(f, volume.FeatureLevel, members, own, rand.Reader, func(c volume.Cluster) error {
		if e != nil && e.Private { // only now: this is no volume of somebody's
			if err := os.Chmod(dir, 0o700); err != nil {
				return fmt.Errorf("--private: %w", err)
			}
		}
		if e != nil && e.Secrets != "" {
			if err := secrets.Begin(f, c.ID, e.Secrets); err != nil {
				return err
			}
		}
		return e.add(f, c)
	})
	if errors.Is(err, volume.ErrExists) {
		err = fmt.Errorf("%s: %w: start servers on it, or give another directory", dir, err)
	}
	return c, errors.Join(err, f.Close())
}

// parseServers parses --server flags.
func parseServers(flags []string) (cluster.Members, error) {
	var members cluster.Members
	for _, f := range flags {
		id, addr, ok := strings.Cut(f, "=")
		n, err := strconv.ParseUint(id, 10, 32)
		if !ok || err != nil || n == 0 || addr == "" {
			return nil, usagef("--server %q: use ID=HOST, ID=HOST:PORT or ID=CLIENT,PEER, IDs from 1", f)
		}
		m, err := parseAddresses(addr)
		if parts := strings.Split(addr, ","); len(parts) == 3 {
			err = fmt.Errorf("three addresses: gRPC and HTTP have one together now, use --server %s=%s,%s", id, parts[0], parts[2])
		}
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
	case 2:
		for _, p := range parts {
			if err := checkAddress(p); err != nil {
				return cluster.Member{}, err
			}
		}
		return cluster.Member{Client: parts[0], Peer: parts[1]}, nil
	default:
		return cluster.Member{}, fmt.Errorf("%d addresses: give one, or two with a comma between", len(parts))
	}
	host, base := addr, defaultClientPort
	if h, p, err := net.SplitHostPort(addr); err == nil {
		n, err := strconv.Atoi(p)
		if last := maxPort - defaultPeerPort + defaultClientPort; h == "" || err != nil || n < 1 || n > last {
			return cluster.Member{}, fmt.Errorf("address %s: use HOST:PORT with a port from 1 to %d, for that of the peers lies above it", addr, last)
		}
		host, base = h, n
	}
	m := memberAt(host, base)
	return m, checkAddress(m.Client)
}

// maxPort is the highest port number.
const maxPort = 1<<16 - 1

// checkAddress returns an error unless addr is a host and a port number.
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

// memberAt returns a server whose clients use the port base.
func memberAt(host string, base int) cluster.Member {
	host = strings.Trim(host, "[]")
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	return cluster.Member{Client: at(base), Peer: at(base + defaultPeerPort - defaultClientPort)}
}

// onVolume returns a command that works on the files of a volume.
func (a *app) onVolume(use, short, long string, run func(ctx context.Context, dir string, f *osfs.FS) error) *cobra.Command {
	return a.onVolumeWith(cobra.NoArgs, use, short, long, func(ctx context.Context, dir string, f *osfs.FS, _ []string) error { return run(ctx, dir, f) })
}

// onVolumeWith is onVolume for a command with arguments.
func (a *app) onVolumeWith(args cobra.PositionalArgs, use, short, long string, run func(ctx context.Context, dir string, f *osfs.FS, args []string) error) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := secrets.Open(dir, a.secretsDir())
			if err != nil {
				return err
			}
			return errors.Join(run(c.Context(), dir, f, args), f.Close())
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory")
	required(c, "volume")
	return c
}

func (a *app) fsckCommand() *cobra.Command {
	return a.onVolume("fsck --volume DIR", "Compare everything on a volume with everything else; only reads", `Compare CLUSTER, epochs, fences, logs, checkpoints, receipts, protected files
and views with each other, and print for each finding where it is, how bad it is
and what to type. It only reads. Servers may run: a mismatch is read again before it
counts. Pending bytes are those of appends that the log has and a file lacks, for example
after a power cut: the next primary writes them. The exit code is 1 if there are errors.`, func(ctx context.Context, dir string, f *osfs.FS) error {
		r, err := fsck.Run(ctx, f, fsck.Options{Dir: dir, Progress: a.progress()})
		if err != nil {
			return fmt.Errorf("fsck %s: %w", dir, err)
		}
		if r.Errors > 0 {
			a.code = exitFindings
		}
		return a.print(r, func(w io.Writer) { fsckText(w, dir, r) })
	})
}

// slowFsck is how often fsck prints what it is checking.
const slowFsck = 2 * time.Second

// progress returns a function that prints on the standard error what is being checked, about
// once in slowFsck.
func (a *app) progress() func(string) {
	last := time.Now()
	return func(what string) {
		if time.Since(last) >= slowFsck {
			last = time.Now()
			fmt.Fprintf(a.Stderr, "fsck: %s\n", what)
		}
	}
}

func fsckText(w io.Writer, dir string, r *fsck.Report) {
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
	fmt.Fprintf(w, "%s: cluster %s, epoch %d (%s on the volume), LSN %d (%s after the base at %d), %s, %s, %s (%s compared)\n",
		dir, r.Cluster, r.Epoch, counted(uint64(r.Epochs), "epoch"), r.LSN, counted(uint64(r.Records), "record"), r.Base,
		counted(uint64(r.Locks), "lock"), counted(uint64(r.Clients), "client"), counted(uint64(r.Files), "file"), counted(uint64(r.Bytes), "byte"))
	if r.PendingBytes > 0 {
		fmt.Fprintf(w, "pending: %s of %s, in the log and not in the files: the next primary writes them; start the servers if none run\n",
			counted(uint64(r.PendingBytes), "byte"), counted(uint64(r.PendingFiles), "file"))
	}
	fmt.Fprintln(w, counted(uint64(r.Errors), "error"))
}
