// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// electing holds the flags and state of one `holdfast elect`.
type electing struct {
	running
	once, leader bool
}

const electHelp = `Run a command on one machine at a time: the leader. All other machines that run elect wait
in the queue, and the first takes over when the leader's command ends, or the leader dies
or is cut off.

  holdfast elect web --value http://h1:8080 -- ./web   campaigns, and runs the command while it leads
  holdfast elect web                                   prints who leads, and each change
  holdfast elect web --leader                          prints who leads, and ends

The command runs as with holdfast run: it finds HOLDFAST_LOCK, HOLDFAST_TOKEN,
HOLDFAST_EPOCH and HOLDFAST_ENDPOINTS in its environment, and is ended with all its
descendants before another machine can lead; see there for --grace, --warn, --on-lost,
--on-ask, --max-hold and --progress-file. The token is the number of the leader's term,
higher than each one before. An election is a lock of the same name.

When the command has ended, with any exit code, or leadership was lost, elect campaigns
again, at most once a second; with --once it does not. Nor does it after SIGINT, SIGTERM
or SIGQUIT, which the command gets too, or when the command died of SIGHUP. While no
server answers it continues to try; with --once it ends.

Exit codes: 1 --leader and no leader, 2 usage, 3 leadership was lost and it does not
campaign again (--lost-exit-code changes it), 4 no service, 126 and 127 as in a shell,
130 interrupted while it waited, else the command's. With -o json it prints a line on the
standard error at the end of each term, and the leader on the standard output.`

func (a *app) electCommand() *cobra.Command {
	e := &electing{running: running{app: a}}
	c := &cobra.Command{
		Use: "elect NAME [flags] [-- COMMAND [ARGUMENTS]]", Short: "Run a command on the one machine that leads, or print who leads", Long: electHelp,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			campaigns := false
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { campaigns = campaigns || f.Changed && f.Name != "leader" })
			if err := e.parse(dash, args, campaigns); err != nil {
				return err
			}
			if dash < 0 {
				return e.observe(c.Context())
			}
			a.outputTaken = true
			return e.run(c.Context())
		},
	}
	fl := c.Flags()
	fl.DurationVar(&e.lease.ttl, "ttl", 30*time.Second, "how long the other candidates wait at most when the leader dies; the same for all")
	fl.StringVar(&e.lease.metadata, "value", "", "a text of at most 4096 bytes about the leader, for example where it serves")
	fl.BoolVar(&e.once, "once", false, "end when the command has ended")
	fl.BoolVar(&e.leader, "leader", false, "print who leads now, and end")
	e.lost.flags(fl)
	e.hung.flags(fl)
	e.lease.wait, e.lease.conflict = "forever", exitHeld
	e.lease.quiet = true // to wait is what a candidate is for
	return c
}

// parse reads the arguments. campaigns is true if there are flags for a command.
func (e *electing) parse(dash int, args []string, campaigns bool) error {
	if dash >= 0 {
		if e.leader || dash != 1 || len(args) < 2 {
			return usagef("elect: use holdfast elect NAME --leader, or holdfast elect NAME -- COMMAND ARGUMENTS")
		}
		return e.running.parse(dash, args)
	}
	if len(args) != 1 {
		return usagef("elect: use holdfast elect NAME, or holdfast elect NAME -- COMMAND ARGUMENTS")
	}
	if campaigns {
		return usagef("elect: only --leader goes without a command: use holdfast elect NAME -- COMMAND ARGUMENTS")
	}
	e.lock = cluster.LockName(args[0])
	if err := e.lock.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// minRound is the shortest time from the beginning of one campaign to that of the next.
const minRound = time.Second

// run campaigns and runs the command, again and again.
func (e *electing) run(ctx context.Context) error {
	path, err := lookPath(e.args[0])
	if err != nil {
		return err
	}
	client, end, err := e.connect()
	if err != nil {
		return err
	}
	defer end()
	for {
		began := time.Now()
		over, err := e.round(ctx, client, path)
		switch {
		case err != nil && (e.once || !passing(err)):
			return err
		case err != nil:
			e.say(fmt.Sprintf("%v: trying on", err))
		case over || e.once:
			return nil
		default:
			e.say("campaigning again")
		}
		if err := e.rest(ctx, minRound-time.Since(began)); err != nil {
			return err
		}
	}
}

// passing reports whether another campaign may succeed after this error.
func passing(err error) bool {
	if _, within := errors.AsType[*withinError](err); within {
		return false
	}
	code := exitCode(err)
	return code == exitUnavailable || code == exitHeld
}

// round runs one campaign, and the term that it wins. over is true after the last round.
func (e *electing) round(ctx context.Context, client *clientlib.Client, path string) (over bool, err error) {
	lock, err := e.acquire(ctx, client)
	if err != nil {
		return false, err
	}
	signals, stop := commandSignals()
	defer stop()
	e.say(fmt.Sprintf("leading %s under token %d", e.lock, lock.Token()))
	passed, ending := passOn(signals)
	result, err := e.command(ctx, lock, path, passed)
	e.release(lock, result.Lost != nil, false)
	over = ending() || result.Code == 128+int(syscall.SIGHUP)
	if err != nil {
		return over, err
	}
	return over, e.end(lock, result)
}

// passOn forwards signals to the channel passed. ending stops that and reports whether one of
// them was to end elect itself.
func passOn(signals <-chan os.Signal) (passed <-chan os.Signal, ending func() bool) {
	out := make(chan os.Signal)
	stop, stopped := make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT {
					over.Store(true)
				}
				select {
				case out <- s:
				case <-stop:
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return out, func() bool {
		close(stop)
		<-stopped
		return over.Load()
	}
}

// rest pauses between two rounds. It returns early with an error when ctx ends.
func (e *electing) rest(ctx context.Context, d time.Duration) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

// leaderBody is the JSON form of a leader.
type leaderBody struct {
	Status  string        `json:"status"`
	Message string        `json:"message"`
	Lock    string        `json:"lock"`
	Token   cluster.Token `json:"token"` // 0 = no leader
	Epoch   cluster.Epoch `json:"epoch"`
	Value   string        `json:"value"`
	Holder  *wire.Holder  `json:"holder"` // null = no leader
	Since   wire.Moment   `json:"since"`  // by the primary's clock
}

// observe prints who leads, once or with each change.
func (e *electing) observe(ctx context.Context) error {
	return e.app.withClient(ctx, func(ctx context.Context, c *clientlib.Client) error {
		x, err := leader.NewElection(c, e.lock, leader.Options{})
		if err != nil {
			return usagef("%v", err)
		}
		return e.follow(ctx, x)
	})
}

func (e *electing) follow(ctx context.Context, x *leader.Election) error {
	if e.leader {
		l, err := x.Leader(ctx)
		if errors.Is(err, leader.ErrNoLeader) {
			e.app.code, err = exitHeld, nil
		}
		if err != nil {
			return err
		}
		return e.tell(l)
	}
	for l, err := range x.Observe(ctx) {
		if err != nil {
			return err
		}
		if err := e.tell(l); err != nil {
			return err
		}
	}
	return nil
}

// tell prints a leader.
func (e *electing) tell(l leader.Info) error {
	b := leaderBody{Status: cluster.StatusOK.String(), Lock: string(e.lock), Token: l.Token, Epoch: l.Epoch, Value: l.Value}
	if l.Present() {
		if !l.Since.IsZero() {
			b.Since = wire.Moment(l.Since.UnixMilli())
		}
		b.Holder = &wire.Holder{Client: l.Client, Token: l.Token, User: l.Holder.User, Host: l.Holder.Host, PID: int64(l.Holder.PID), Command: l.Holder.Command, Since: b.Since}
	}
	return e.app.print(b, func(w io.Writer) {
		if b.Holder == nil {
			fmt.Fprintf(w, "%s: no leader\n", b.Lock)
			return
		}
		fmt.Fprintf(w, "%s: led by %s, token %d, since %s", b.Lock, holderText(b.Holder), b.Token, timeText(l.Since, e.app.now()))
		if b.Value != "" {
			fmt.Fprintf(w, ", says %q", b.Value)
		}
		fmt.Fprintln(w)
	})
}
