// SPDX-License-Identifier: Apache-2.0

// Manual writes what a package of Holdfast has of its commands: a manual page for each, in man1, and the completions of shells, in
// completions. They are made when a package is made, and not kept.
//
//	go run ./faulttests/deploy/manual -version v0.1.0 -date 2026-11-28T00:00:00Z DIR
//
// It is in the module of the tests, since the library that makes manual pages is nothing that the product or its users need.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/deploy"
)

func main() {
	version := flag.String("version", "", "the version that the pages name")
	date := flag.String("date", time.Now().UTC().Format(time.RFC3339), "the date that the pages name: the same one makes the same pages")
	flag.Parse()
	if err := run(flag.Arg(0), *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func run(dir, version, date string) error {
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	if dir == "" {
		return fmt.Errorf("name a directory for the pages and completions")
	}
	return deploy.WriteManual(dir, version, at)
}
