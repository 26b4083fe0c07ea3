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

A number is a descriptor that the calling shell has open, as with flock(1):

  exec 9>/var/lock/report.lock        or   ( holdfast flock -n 9 || exit 1
  holdfast flock -w 60 9 || exit 1           ...
  ...                                      ) 9>/var/lock/report.lock
  holdfast flock -u 9

The lock is that of the file's path, as the kernel resolves it, or that of --lock NAME. It is
held until no process has the descriptor open any more: the shell, and whatever it started
that has inherited it. -u releases it before. A second flock of the same descriptor
changes nothing, or with the other of -s and -x releases the lock and acquires it anew. A
descriptor has one lock at a time: flock refuses another name until -u has released it.
Two small processes stay in the background meanwhile. One renews the lease. If the lock is lost,
it prints a line on the shell's standard error and sends SIGTERM, and then SIGKILL, to the
processes that have the descriptor open, before the lease can end; --on-lost and --grace
change that as in holdfast run. If it is killed, the other one kills those processes at
once, and releases the lock. It takes a moment until a closed descriptor is noticed, a tenth of a
second on an idle host. With -o json the lock and its token are printed.

What differs from flock(1):
  - The path of a LOCK counts as it is typed, so that it means one lock on all hosts. Symbolic
    links are not followed: two paths of one file, such as /var/lock/x and /run/lock/x, are two
    locks. Of a descriptor only the resolved path is known.
  - Processes that the command leaves running are ended with it. flock(1) leaves them, and
    they keep the lock. With a descriptor they keep it here, too.
  - If the lock is lost, the command is ended: see holdfast run, exit code 3.
  - A process of another user that has the descriptor is not seen, unless this user is root.
    One that has it for two seconds and then becomes another user's, as by su, counts as
    having it until it ends; after a loss it may be left to end by itself.
  - A descriptor needs a kernel that compares open files (kcmp). Where a container's profile
    forbids that, flock says so: use a command there.`

// flocking holds the flags of `holdfast flock` beside those of run.
type flocking struct {
	running
	unlock, ignored bool
	// name is the lock of a descriptor, "" for that of its file's path.
	name string
	// descriptor is the number of the shell's descriptor, -1 for a command.
	descriptor int
}

func (a *app) flockCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "flock [-sxn] [-w SECONDS] [-E CODE] LOCK COMMAND [ARGUMENTS] | flock [-sxnu] DESCRIPTOR",
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
			case x.descriptor >= 0:
				return x.forDescriptor(c.Context(), args)
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
	c.Flag("output").Changed = fl.Changed("output")
	if err := c.Root().PersistentPreRunE(c, nil); err != nil { // it ran before the flags were read
		return err
	}
	args, x.descriptor = fl.Args(), -1
	if len(args) == 1 {
		if n, err := strconv.ParseUint(args[0], 10, 31); err == nil {
			x.descriptor = int(n)
			if err := checkOpen(x.descriptor); err != nil {
				return err
			}
			return x.parseDescriptor(fl)
		}
	}
	if x.unlock || x.name != "" {
		return usagef("flock: -u and --lock go with a descriptor, as in holdfast flock -u 9")
	}
	if len(args) < 2 {
		return usagef("flock: use holdfast flock LOCK COMMAND ARGUMENTS, holdfast flock LOCK -c 'COMMAND', or holdfast flock DESCRIPTOR")
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
	fl.StringVar(&x.name, "lock", "", "")
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
