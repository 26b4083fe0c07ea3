// SPDX-License-Identifier: Apache-2.0

// Holdfast gives machines that share a filesystem locks that really protect
// something. This is its one binary: the servers and the command line.
package main

import (
	"os"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
)

// linked is the version, which the linker sets: -ldflags "-X main.linked=v0.1.0". See the Makefile.
var linked string

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Process(linked)))
}
