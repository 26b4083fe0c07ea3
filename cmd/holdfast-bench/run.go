// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

// flags are those of run.
type flags struct {
	work.Options
	endpoints string
	binary    string
	dir       string
	output    string
	named     bool // the workloads were named
}

func (f *flags) validate() error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("--output %q: use table or json", f.output)
	}
	if f.endpoints != "" && f.binary != "" {
		return errors.New("--endpoints and --binary: give one, for servers that run or for own ones")
	}
	return f.Options.Validate()
}

func runCommand() *cobra.Command {
	f := &flags{Options: work.DefaultOptions()}
	c := &cobra.Command{
		Use:   "run [WORKLOAD...]",
		Short: "Run workloads, against own servers or with --endpoints against others",
		Long:  "Run workloads. Without endpoints, each one gets three fresh servers on loopback and\na fresh volume, which is removed afterwards.\n\n" + workloadHelp(),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			chosen, err := work.Find(args)
			if err != nil {
				return err
			}
			r := &bench.Report{Options: map[string]string{}}
			bench.FlagOptions(c.Flags(), r.Options)
			f.named = len(args) > 0
			err = run(c.Context(), f, chosen, r)
			return errors.Join(err, f.write(c.OutOrStdout(), r))
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.endpoints, "endpoints", "", "servers that run: addresses for clients, a volume or a join string, see package join (default: three own ones)")
	fl.StringVar(&f.binary, "binary", "", "holdfast to run (default: beside this program, in PATH, or built from the source here)")
	fl.StringVar(&f.dir, "dir", ".holdfast", "where own servers have their directory: put it on the filesystem in question")
	fl.StringVarP(&f.output, "output", "o", "table", "table or json")
	f.Bind(fl)
	return c
}

func workloadHelp() string {
	var b strings.Builder
	b.WriteString("Workloads (default: all but noisy, starved and churn):\n")
	for _, w := range work.All() {
		fmt.Fprintf(&b, "  %-11s %s\n", w.Name, w.About)
	}
	return b.String()
}

// write prints what was measured, also when something failed later.
func (f *flags) write(w io.Writer, r *bench.Report) error {
	if len(r.Rows) == 0 && len(r.Skipped) == 0 {
		return nil
	}
	if f.output == "table" {
		return bench.WriteTable(w, r)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// run fills the report.
func run(ctx context.Context, f *flags, chosen []work.Workload, r *bench.Report) (err error) {
	dir, err := servers.FreshDir(f.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	r.Begin(dir)
	if f.endpoints == "" {
		if f.binary, err = servers.FindBinary(f.binary, dir); err != nil {
			return err
		}
		r.Versions["holdfast"] = servers.Version(f.binary)
		say("servers: %s, %s, in %s on %s", f.binary, r.Versions["holdfast"], dir, r.Machine.Filesystem)
		if r.Machine.Filesystem == "tmpfs" {
			say("warning: %s is in memory, nothing is durable there: give --dir on a disk", dir)
		}
	}
	defer func() { r.Seconds = time.Since(r.Began).Seconds() }()
	if chosen, err = f.possible(chosen, r); err != nil {
		return err
	}
	for _, w := range chosen {
		rows, err := runOne(ctx, f, w, dir, say)
		r.Rows = append(r.Rows, rows...)
		if err != nil {
			return err // it says in what
		}
	}
	return nil
}

// possible prepares workloads before any server starts, and notes which are left out: those that need
// servers of their own where others are to be used, and unless they were named, those that the machine
// does not allow.
func (f *flags) possible(chosen []work.Workload, r *bench.Report) (all []work.Workload, err error) {
	for _, w := range chosen {
		if w.OwnServers && f.endpoints != "" {
			r.Skipped = append(r.Skipped, w.Name+": it does this only to servers of its own")
			continue
		}
		if w.Prepare != nil {
			err = w.Prepare(f.Options)
		}
		switch {
		case err == nil:
			all = append(all, w)
		case f.named:
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		default:
			r.Skipped, err = append(r.Skipped, fmt.Sprintf("%s: %v", w.Name, err)), nil
		}
	}
	return all, nil
}

// runOne runs one workload, against fresh servers unless there are others.
func runOne(ctx context.Context, f *flags, w work.Workload, dir string, say bench.Progress) (rows []bench.Row, err error) {
	e := &work.Env{Options: f.Options, Endpoints: join.Split(f.endpoints), Dir: dir, Say: say}
	if f.endpoints == "" && !w.NoServers {
		if e.Servers, err = servers.Start(ctx, f.binary, dir, w.Servers); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.Servers.Close()) }()
		e.Endpoints = e.Servers.Endpoints()
	}
	return w.Run(ctx, e)
}
