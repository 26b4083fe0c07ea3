// SPDX-License-Identifier: Apache-2.0

// Holdfast-bench measures Holdfast:
//
//	holdfast-bench run                          all workloads but noisy, starved and churn, against three servers of its own
//	holdfast-bench run own --workers 256        one workload
//	holdfast-bench run churn --duration 1h      whether memory or disk usage grows
//	holdfast-bench run watch --watchers 10000 --watch-own
//	holdfast-bench run own --clients each       each worker with a client and connection of its own
//	holdfast-bench run own ceiling              with what this machine allows, in the same run
//	holdfast-bench run connections --connections 15000 --lease 30s
//	holdfast-bench run watchers --watchers 5000 --rate 1000
//	holdfast-bench run starved --duration 10m   busy loops and a disk load beside the servers
//	holdfast-bench run holders --holders-kills 5
//	holdfast-bench run own --endpoints h1:7601,h2:7601,h3:7601
//	holdfast-bench run -o json > figures.json   for programs
//	holdfast-bench compare                      the same work against etcd, Redis and PostgreSQL
//
// Package work describes the workloads, package bench how they are measured.
// To reproduce figures, build and run on a machine that does nothing else,
// in a directory on the filesystem in question:
//
//	make build && go build -o bin/ ./cmd/holdfast-bench
//	bin/holdfast-bench run --dir /mnt/share/bench
//
// compare needs the client libraries of the peers. Because of them this directory is a module of
// its own, so that a program that uses Holdfast does not depend on them:
//
//	go build -o bin/holdfast-bench-compare ./cmd/holdfast-bench/compare
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
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

func main() {
	bench.CollectRarely()
	helper.Main(work.Helpers())
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
