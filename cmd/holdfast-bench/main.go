// SPDX-License-Identifier: Apache-2.0

// Holdfast-bench measures Holdfast:
//
//	holdfast-bench run                          every workload but churn, against three servers of its own
//	holdfast-bench run own --workers 256        one workload
//	holdfast-bench run churn --duration 1h      does something grow?
//	holdfast-bench run watch --watchers 10000 --watch-own
//	holdfast-bench run holders --holders-kills 5
//	holdfast-bench run own --endpoints h1:7601,h2:7601,h3:7601
//	holdfast-bench run -o json > figures.json   for programs
//	holdfast-bench compare                      the same work against etcd, Redis and PostgreSQL
//
// What each workload does is said in package work, how it is measured in package
// bench. To reproduce figures, build and run on a machine that does nothing else,
// in a directory on the filesystem in question:
//
//	make build && go build -o bin/ ./cmd/holdfast-bench
//	bin/holdfast-bench run --dir /mnt/share/bench
//
// compare has the clients of the peers, and is a module of its own so that nobody
// who uses Holdfast gets them:
//
//	go build -C cmd/holdfast-bench/compare -o ../../../bin/holdfast-bench-compare
//	bin/holdfast-bench compare
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

func main() {
	bench.CollectRarely()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends at once
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-bench:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "holdfast-bench",
		Short:         "Measure Holdfast, alone or beside its peers",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.CompletionOptions.HiddenDefaultCmd = true
	c.AddCommand(runCommand(), compareCommand())
	return c
}
