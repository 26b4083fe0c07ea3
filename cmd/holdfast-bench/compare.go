// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// comparer is the program that has the peers' clients.
const comparer = "holdfast-bench-compare"

var errNoComparer = errors.New(comparer + " is neither beside this program nor in PATH: build it in the source with " +
	"go build -o bin/" + comparer + " ./cmd/holdfast-bench/compare")

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "compare [FLAGS]",
		Short:              "Do the same work with etcd, Redis and PostgreSQL, see compare --help",
		DisableFlagParsing: true, // they are the other program's
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findComparer()
			if err != nil {
				return err
			}
			// It takes this process's place, and so its signals.
			return fmt.Errorf("run %s: %w", path, syscall.Exec(path, append([]string{comparer}, args...), os.Environ()))
		},
	}
}

func findComparer() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), comparer)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(comparer)
	if err != nil {
		return "", errNoComparer
	}
	return filepath.Abs(path)
}
