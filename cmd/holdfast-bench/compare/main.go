// SPDX-License-Identifier: Apache-2.0

// Holdfast-bench-compare runs the same workloads with Holdfast and with other services
// that are used for locks, alternating on one machine, and prints the ratios. The
// driver is that of holdfast-bench; each repetition of each row runs Holdfast first
// and then each peer, while all the others are up and idle.
//
// Own, contended and append run twice, see --clients: with a client for each worker, as users have whose
// programs are separate processes, and with one client for all workers. Where a peer has both shapes, like is
// compared with like; Redis and PostgreSQL have a connection per worker, and stand against both.
//
//	etcd        three members, fsync on; one client for the process or one per worker, one
//	            concurrency.Session per worker, NewMutex.Lock and Unlock. An append is a
//	            Txn that puts a new key if the mutex is still owned. It is replicated
//	            like Holdfast and survives the loss of a server
//	etcd-hasty  only for failover: the same with each attempt limited to 300 ms. Without
//	            that, a call that meets a moment without a leader waits for 7 s
//	redis       one server, appendonly yes, appendfsync always; SET NX PX and a Lua
//	            compare-and-delete, one connection per worker; a waiting worker retries
//	            after 2 to 8 ms, at random. An append is a Lua script that checks the lock
//	ceiling     no service: a transport and a synced log alone, which bounds what own and append
//	            can reach on this machine. It takes part in these two only
//	postgres    one server, fsync and synchronous_commit on; a row per lock, INSERT ON
//	            CONFLICT and DELETE, one connection per worker; a waiting worker retries
//	            as with Redis. An append inserts a row while it holds the lock's row
//
// Redis and PostgreSQL are single servers here, without a failover. A peer
// whose binary is not found is left out, with a note on how to get it.
package main

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

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

func main() {
	bench.CollectRarely()
	helper.Main(work.Helpers())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends at once
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-bench-compare:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	work.Options
	peers                   []string
	binary, etcd, redis, pg string
	dir, output             string
}

func (o *options) validate() error {
	switch o.output {
	case "table", "json":
	case "markdown":
		if o.Repeat < bench.MarkdownRuns {
			return fmt.Errorf("--output markdown with --repeat %d: use --repeat %d or more, published figures are medians", o.Repeat, bench.MarkdownRuns)
		}
	default:
		return fmt.Errorf("--output %q: use table, json or markdown", o.output)
	}
	for _, p := range o.peers {
		if !slices.ContainsFunc(peers(), func(x peerKind) bool { return x.name == p }) {
			return fmt.Errorf("--peers %q: use %s", p, strings.Join(peerNames(), ", "))
		}
	}
	return o.Validate()
}

// report is a bench.Report with the ratios.
type report struct {
	bench.Report
	Ratios []bench.Ratio `json:"ratios"`
}

// write writes the report in the form that was asked for.
func (r *report) write(w io.Writer, form string) error {
	switch form {
	case "table":
		return bench.WriteComparison(w, &r.Report, r.Ratios)
	case "markdown":
		return bench.WriteMarkdown(w, &r.Report, work.Name)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func command() *cobra.Command {
	o := &options{Options: work.DefaultOptions()}
	o.Sizes = []int{100}
	c := &cobra.Command{
		Use:           "holdfast-bench-compare [WORKLOAD...]",
		Short:         "Measure Holdfast beside etcd, Redis and PostgreSQL",
		Long:          "Measure Holdfast beside etcd, Redis and PostgreSQL, all started by this program.\n\nWorkloads (default: all): " + strings.Join(workloadNames(), ", "),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, args []string) error {
			chosen, err := find(args)
			if err = errors.Join(err, o.validate()); err != nil {
				return err
			}
			r := &report{}
			r.Options = map[string]string{}
			bench.FlagOptions(c.Flags(), r.Options)
			err = run(c.Context(), o, chosen, &r.Report)
			if len(r.Rows) == 0 {
				return err
			}
			r.Ratios = bench.Ratios(r.Rows, work.Name)
			return errors.Join(err, r.write(c.OutOrStdout(), o.output))
		},
	}
	c.CompletionOptions.HiddenDefaultCmd = true
	fl := c.Flags()
	fl.StringSliceVar(&o.peers, "peers", peerNames(), "whom to compare with")
	fl.StringVar(&o.binary, "binary", "", "holdfast to run (default: beside this program or in PATH)")
	fl.StringVar(&o.etcd, "etcd", "etcd", "etcd to run")
	fl.StringVar(&o.redis, "redis", "redis-server", "redis-server to run")
	fl.StringVar(&o.pg, "postgres", "", "directory with initdb and postgres (default: PATH, or the newest of /usr/lib/postgresql)")
	fl.StringVar(&o.dir, "dir", ".holdfast", "where all servers have their directories; the user postgres must be able to get there")
	fl.StringVarP(&o.output, "output", "o", "table", "table, json, or markdown for docs/performance.md")
	o.BindLoads(fl)
	o.BindStrokes(fl)
	return c
}

// run starts all services and fills the report.
func run(ctx context.Context, o *options, chosen []workload, r *bench.Report) (err error) {
	dir, err := servers.FreshDir(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r.Begin(dir)
	defer func() { r.Seconds = time.Since(r.Began).Seconds() }()
	c := &comparison{options: o, dir: dir, report: r, say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(ctx); err != nil {
		return err
	}
	for _, w := range chosen {
		if err := w.run(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}
