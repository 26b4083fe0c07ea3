// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const flockHelp = `Run a command under a lock of the whole cluster, with the command line of flock(1):

  flock -n /var/lock/report.lock ./report.sh            before
  holdfast flock -n /var/lock/report.lock ./report.sh   after: once in the cluster, not once on this host

Options come before LOCK. -s, -x, -e, -n, -w SECONDS, -E CODE and -c 'COMMAND' mean what they
mean there; as there, the command is waited for without an end unless -n or -w is given, and
the exit code is 1 if the lock was not acquired. -o, -F and --verbose are accepted and
change nothing. The options of holdfast run with long names are accepted, too.

LOCK is the name of a lock, as everywhere else. A name that begins with /, ./ or ../ is that
of a file: the lock is named like its absolute path without the first slash, so that
/var/lock/report.lock is the lock var/lock/report.lock, on every host. The file is not
created, opened or locked: programs that use flock(1) itself do not see this lock.

What differs from flock(1):
  - The path counts as it is typed, so that it means one lock on all hosts. Symbolic links are
    not followed: two paths of one file, such as /var/lock/x and /run/lock/x, are two locks.
  - Processes that the command leaves running are ended with it. flock(1) leaves them, and
    they keep the lock.
  - If the lock is lost, the command is ended: see holdfast run, exit code 3.
  - The form for a file descriptor (flock 9) and -u are refused: a descriptor belongs to
    one host. Use a command, or holdfast acquire and holdfast release.`

// flocking holds the flags of `holdfast flock` beside those of run.
type flocking struct {
	running
	unlock, ignored bool
}

func (a *app) flockCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "flock [-sxn] [-w SECONDS] [-E CODE] LOCK COMMAND [ARGUMENTS]",
		Short:              "Run a command under a lock, with the command line of flock(1)",
		Long:               flockHelp,
		DisableFlagParsing: true, // -o means something else here, and what follows LOCK is the command's
		RunE: func(c *cobra.Command, args []string) error {
			x := &flocking{running: running{app: a}}
			err := x.parse(c, args)
			switch {
			case errors.Is(err, pflag.ErrHelp):
				return c.Help()
			case err != nil:
				return err
			}
			a.outputTaken = true
			return x.run(c.Context())
		},
	}
}

// parse reads a command line of flock.
func (x *flocking) parse(c *cobra.Command, args []string) error {
	fl := x.flags(c)
	err := fl.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return usagef("flock: %v; see holdfast flock --help", err)
	}
	if err := c.Root().PersistentPreRunE(c, nil); err != nil { // it ran before the flags were read
		return err
	}
	args = fl.Args()
	if x.unlock || len(args) == 1 && isDescriptor(args[0]) {
		return usagef("flock: the forms for a file descriptor, and -u, do not work for a lock of the cluster: use holdfast flock LOCK COMMAND, or holdfast acquire and holdfast release")
	}
	if len(args) < 2 {
		return usagef("flock: use holdfast flock LOCK COMMAND ARGUMENTS, or holdfast flock LOCK -c 'COMMAND'")
	}
	lock, err := lockOfPath(args[0])
	if err != nil {
		return err
	}
	command := args[1:]
	if command[0] == "-c" || command[0] == "--command" {
		if len(command) != 2 {
			return usagef("flock: %s: want one argument, the command for the shell, not %d", command[0], len(command)-1)
		}
		command = x.app.shell(command[1])
	}
	return x.running.parse(1, append([]string{lock}, command...))
}

// flags returns the flags of flock, of run, and the global ones.
func (x *flocking) flags(c *cobra.Command) *pflag.FlagSet {
	fl := pflag.NewFlagSet("flock", pflag.ContinueOnError)
	fl.SetInterspersed(false)
	fl.Usage = func() {}
	x.running.flags(fl)
	fl.AddFlag(&pflag.Flag{Name: "timeout", Value: fl.Lookup("wait").Value}) // flock's other name for it
	fl.BoolVarP(&x.lease.exclusive, "exclusive-lock", "e", false, "")
	fl.BoolVar(&x.lease.nonblock, "nb", false, "")
	fl.BoolVarP(&x.unlock, "unlock", "u", false, "")
	fl.BoolVarP(&x.ignored, "close", "o", false, "")
	fl.BoolVarP(&x.ignored, "no-fork", "F", false, "")
	fl.BoolVar(&x.ignored, "verbose", false, "")
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if fl.Lookup(f.Name) == nil {
			long := *f
			long.Shorthand = ""
			fl.AddFlag(&long)
		}
	})
	fl.VisitAll(acceptSeconds)
	return fl
}

func isDescriptor(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

// lockOfPath returns the name of the lock for an argument of flock: the name as it is, or that of a
// file's absolute path.
func lockOfPath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "./") && !strings.HasPrefix(text, "../") {
		return text, nil
	}
	path, err := filepath.Abs(text)
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(path, "/")
	if err := cluster.LockName(name).Validate(); err != nil {
		return "", usagef("flock: the path %s makes no name of a lock: %v: use the name of a lock", path, err)
	}
	return name, nil
}

// shell returns the command line that runs a command in the user's shell, as flock does.
func (a *app) shell(command string) []string {
	return []string{cmp.Or(a.Getenv("SHELL"), "/bin/sh"), "-c", command}
}
