// SPDX-License-Identifier: Apache-2.0

// Holdfast gives machines that share a filesystem locks that really protect
// something. This is its one binary: the servers and the command line.
package main

import (
	"os"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Process()))
}
