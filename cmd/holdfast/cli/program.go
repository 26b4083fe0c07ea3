// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// What other people see of a holder or waiter is what its command finds out of itself: host, user, program and process.
// Nothing proves it. Of a command line only the name of the program or of the script is told: arguments may be secret.

// These name the user and the program in place of what the command finds out.
const (
	envUser    = "HOLDFAST_USER"
	envProgram = "HOLDFAST_PROGRAM"
)

// holderOf describes this process and the command that it runs. A command line such as sh -c '...' says little: then
// the script that called this process is named, if there is one.
func (a *app) holderOf(args []string) clientlib.Holder {
	name, exact := programName(args)
	if !exact {
		if script, ok := programName(argumentsOf(os.Getppid())); ok {
			name = script
		}
	}
	return clientlib.Holder{User: a.Getenv(envUser), Command: cmp.Or(a.Getenv(envProgram), name)}
}

// ownHolder describes this process, which uses a lock itself: by the script that called it, if there is one.
func (a *app) ownHolder() clientlib.Holder {
	h := a.holderOf(nil)
	h.Command = cmp.Or(h.Command, a.command)
	return h
}

// callersHolder describes the process that called this one, which uses the lock when this one has ended.
func (a *app) callersHolder() *pb.Holder {
	pid := os.Getppid()
	name, _ := programName(argumentsOf(pid))
	return wire.NewHolder(cmp.Or(a.Getenv(envUser), userName()), hostname(), cmp.Or(a.Getenv(envProgram), name, "holdfast"), int64(pid))
}

// holderOfProcess describes a process of this host.
func (a *app) holderOfProcess(pid int) clientlib.Holder {
	name, _ := programName(argumentsOf(pid))
	return clientlib.Holder{User: a.Getenv(envUser), Command: cmp.Or(a.Getenv(envProgram), name), PID: pid}
}

// userName returns the name of the user that runs this process, or the number of one without a name.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// maxArguments bounds how much of a command line is read: the name of a script is at its beginning.
const maxArguments = 8 << 10

// argumentsOf returns the beginning of the command line of a process of this host, nil if it cannot be read.
func argumentsOf(pid int) []string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil // no Linux, or the process is hidden or has ended
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxArguments))
	if err != nil || len(b) == 0 {
		return nil
	}
	var args []string
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	return args
}

// programName returns the name of the script that a command line runs or, if it runs none, of its program. exact is
// false for an interpreter without a script: its commands come from its arguments or its input, and are not told.
func programName(args []string) (name string, exact bool) {
	if len(args) == 0 || args[0] == "" {
		return "", false
	}
	name = strings.TrimPrefix(filepath.Base(args[0]), "-") // a login shell
	harmless, interpreter := interpreterOptions(name)
	if !interpreter {
		return name, true
	}
	for _, arg := range args[1:] {
		switch option := strings.TrimPrefix(arg, "-"); {
		case option == arg && arg != "":
			return filepath.Base(arg), true
		case option == "" || strings.Trim(option, harmless) != "":
			return name, false // what follows may be a command, or an option's value
		}
	}
	return name, false
}

// interpreterOptions reports whether a program runs scripts, and returns its one-letter options after which the name of a script may
// follow: none that takes a command or a value.
func interpreterOptions(program string) (letters string, ok bool) {
	switch strings.TrimRight(program, "0123456789.") {
	case "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh":
		return "abefhkmnptuvxBCEHPT", true
	case "python", "pypy":
		return "bBdEiIOqsSuv", true
	case "perl":
		return "stTuUwWX", true
	case "ruby":
		return "lpwW", true
	case "node", "php", "lua", "fish", "Rscript":
		return "", true
	}
	return "", false
}
