// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
)

// doctorFlags are the flags of `holdfast doctor`.
type doctorFlags struct {
	hosts, rounds int
	listen, peer  string
}

func (a *app) doctorCommand() *cobra.Command {
	f := &doctorFlags{}
	c := &cobra.Command{
		Use:   "doctor DIR…",
		Short: "Check whether a directory's filesystem keeps what Holdfast needs",
		Long: `Check the filesystem, its mount options and the calls that Holdfast needs, and
print the commands that correct what is wrong. The exit code is 1 if a volume
must not be there.

To test what one host sees of another one's changes, name two mounts of the directory
on this host:

  holdfast doctor /mnt/one /mnt/two

or, better, with two hosts:

  holdfast doctor --listen HOST:7600 DIR     on the first
  holdfast doctor --peer HOST:7600 DIR       on the second; both print the verdict

With all caches filled first, each side takes over from the other --rounds times
with the servers' own claim, fence, log scan and check; both race for names, locks
and parts of one page; and doctor measures how old names and views may be. That takes
seconds on a local disk and some minutes on a slow share.

--listen has no authentication: while it runs, everyone who reaches the port can
make small files in a directory that doctor makes under DIR and removes again.

Doctor can find faults, but cannot prove that there are none: it cannot see
asynchronous exports, lying disks, and locks that end unnoticed in a partition.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("doctor: name a directory")
			case len(args) > 1 && (f.listen != "" || f.peer != ""):
				return usagef("doctor: with --listen or --peer name one directory")
			case f.listen != "" && f.peer != "":
				return usagef("doctor: --listen is for one host and --peer for the other")
			case f.rounds < 1 || f.rounds > doctor.MaxRounds:
				return usagef("--rounds %d: use 1 to %d", f.rounds, doctor.MaxRounds)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilSignal(c.Context())
			defer stop()
			all, err := a.examine(ctx, args, f)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Verdict == doctor.Refuse {
					a.code = exitFindings
				}
			}
			return a.print(map[string]any{"reports": all}, func(w io.Writer) { doctorText(w, all) })
		},
	}
	fl := c.Flags()
	fl.IntVar(&f.hosts, "hosts", 0, "how many hosts will run servers on it (default: what CLUSTER says)")
	fl.IntVar(&f.rounds, "rounds", doctor.DefaultRounds, "how often two mounts repeat each probe")
	fl.StringVar(&f.listen, "listen", "", "wait at HOST:PORT for a doctor on another host (no authentication)")
	fl.StringVar(&f.peer, "peer", "", "probe together with the doctor that listens at HOST:PORT")
	return c
}

func (a *app) examine(ctx context.Context, dirs []string, f *doctorFlags) ([]*doctor.Report, error) {
	line := &progressLine{w: a.Stderr, live: isTerminal(a.Stderr)}
	defer line.end()
	opt := doctor.Options{Hosts: f.hosts, Rounds: f.rounds, Progress: line.show, Waiting: line.say, Holder: holderCommandLine()}
	if f.listen == "" && f.peer == "" {
		return doctor.Examine(ctx, dirs, opt)
	}
	var r *doctor.Report
	var err error
	if f.peer != "" {
		r, err = doctor.ExamineWith(ctx, dirs[0], f.peer, opt)
	} else {
		var l net.Listener
		if l, err = net.Listen("tcp", f.listen); err != nil {
			return nil, err
		}
		fmt.Fprintf(a.Stderr, "holdfast: waiting at %s, without authentication, for: holdfast doctor --peer %s DIR\n", l.Addr(), l.Addr())
		line.quiet = true // the other side prints the progress
		r, err = doctor.Listen(ctx, l, dirs[0], opt)
	}
	if err != nil {
		return nil, err
	}
	return []*doctor.Report{r}, nil
}

// progressLine prints the progress of a trial: on a terminal in one line that changes,
// elsewhere in one line for each probe.
type progressLine struct {
	w     io.Writer
	live  bool
	quiet bool

	check string
	shown time.Time
}

// showEvery is the shortest time between two updates of a terminal.
const showEvery = 100 * time.Millisecond

func (l *progressLine) show(p doctor.Progress) {
	now := time.Now()
	fresh := p.Check != l.check
	switch {
	case l.quiet || !fresh && (!l.live || now.Sub(l.shown) < showEvery):
		return
	case l.live && p.Rounds > 0:
		fmt.Fprintf(l.w, "\r\033[K%s: %d of %d", p.Check, p.Round, p.Rounds)
	case l.live:
		fmt.Fprintf(l.w, "\r\033[K%s", p.Check)
	case p.Rounds > 0:
		fmt.Fprintf(l.w, "holdfast: %s, %d rounds\n", p.Check, p.Rounds)
	}
	l.check, l.shown = p.Check, now
}

// say prints why the doctor waits, on a separate line.
func (l *progressLine) say(why string) {
	l.end()
	fmt.Fprintf(l.w, "holdfast: %s\n", why)
}

func (l *progressLine) end() {
	if l.live && l.check != "" {
		fmt.Fprint(l.w, "\r\033[K")
	}
}

func doctorText(w io.Writer, all []*doctor.Report) {
	for i, r := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s on %s)\n", r.Path, r.Source, r.MountPoint)
		for _, f := range r.Findings {
			fmt.Fprintf(w, "  %-6s %s: %s\n", f.Verdict, f.Check, f.Detail)
			for _, fix := range f.Fix {
				fmt.Fprintf(w, "           $ %s\n", fix)
			}
		}
		fmt.Fprintf(w, "verdict: %s\n", r.Verdict)
		if r.Rounds == 0 && r.Network {
			fmt.Fprintf(w, "What other hosts see was not tested: name a second mount, or use --listen there and --peer here.\n")
		}
	}
}

// holderName is the hidden command of a process that holds a lock until doctor kills it.
const holderName = "holder-of-doctor"

func holderCommandLine() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, holderName}
}

func (a *app) holderCommand() *cobra.Command {
	return &cobra.Command{
		Use: holderName + " DIR NAME", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return doctor.Hold(args[0], args[1], a.Stdin, a.Stdout) },
	}
}
