// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// running holds the flags and state of one `holdfast run`.
type running struct {
	app  *app
	lock cluster.LockName
	args []string
	// waiter is the process that waits, as servers are told of it; 0 = this one.
	waiter int
	lease  lease
	lost   lossFlags
	hung   hungFlags
	// proof is the file that has a proof of the lock, "" for none.
	proof string
	// shellCommand is a command for the shell, "" for none.
	shellCommand string
	once         onceFlags
}

const runHelp = `Run a command under a lock, and pass on its exit code. The command finds
HOLDFAST_LOCK, HOLDFAST_TOKEN, HOLDFAST_EPOCH and HOLDFAST_ENDPOINTS in its environment.
append, renew, release, metadata, downgrade, verify and file take the token from there for
this lock, unless other servers are named. A run or elect of the same lock inside the
command, or an acquire that waits, would wait for the command's end: it fails at once, with
the exit code for a lock that was not acquired.

The lock is in jeopardy when no renewal was answered for half of --ttl. Run prints a line
then, and another when it is safe again; --warn sends the command's process group a signal
each time.

When the lock is lost, or could not be renewed in time, --on-lost decides what happens:
  terminate  The command and all its descendants get SIGTERM, and SIGKILL --grace later
             but before the lease could expire: by a local timer, also when the network
             is gone.
  kill       SIGKILL at once; when no renewal is answered, just before the lease could
             expire.
  leave      Nothing. The command continues while another client may have the lock; only
             its token tells the two apart. This is for commands that check that
             themselves. The command also survives if this process is killed.
The exit code is 3 then (--lost-exit-code changes it), whatever the command's was.

A command that hangs would keep its lock: with --progress-file the lock is renewed only
while the command makes progress, and --max-hold bounds the time in any case. When an
operator asks for the lock (holdfast break --grace), run prints a line, and --warn or
--on-ask sends the command a signal.

With --proof-file, the file has a proof of the lock (see holdfast proof) from before the
command starts until it has ended, always a fresh one. HOLDFAST_PROOF_FILE names it.

When the command ends, processes that it left running are ended too, daemons as well, and
the lock is released.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group. When
this process is killed, or stopped until the lease runs out, a guard process kills the
command and its descendants. If this process was killed, the guard then releases the lock,
so that others need not wait for the end of the lease; not while a process of the command's
group still runs. The guard finds orphans by HOLDFAST_RUN in their environment: it cannot
find a process that has lost its parent and wiped that as well. Nor can it if this process had children before, as after exec in a
shell that has background jobs. And nothing is ended while the whole machine is frozen.
If the command writes to anything but protected files, have the token checked there.

While run waits for the lock it says on the standard error who holds it: on a terminal in one
line that is removed at the end, else after a second and then ever more rarely; not with
--quiet, nor with -o json.

A process that cannot be ended, because it hangs in a filesystem or belongs to another
user, is named every minute; run keeps the lock and waits for it. When the guard itself is
killed, or reads nothing for minutes, the command is ended as if the lock was lost.

Ctrl-Z on a terminal is undone: the command would hold the lock and do nothing.

With --once SLOT, the command runs only if that slot of the lock is not done yet, nor a
later one, and when it ends with exit code 0 under the lock, the slot is done: nobody runs
it again. Others that wait for the same slot learn that; if the command fails, or its host
does, the next one runs it. --once-per 24h makes the slot of the time at which run
begins: the beginning of its day, in UTC, by the clock of this host.

With --limit N, at most N commands run under the lock at a time, or fewer where some take
more than one permit by --weight. All have to give the same limit.

Exit codes: 1 the lock was not acquired (-E changes it), 2 usage, 3 lost while the
command ran, 4 no service, 7 its slot is done (--done-exit-code changes it), 126 and 127 as in a shell, 128+n for signal n, else the
command's. With -o json the last line on the standard error has the result, and of a loss
its reason, actor, the successor's token and the last append that was accepted.`

func (a *app) runCommand() *cobra.Command {
	r := &running{app: a}
	c := &cobra.Command{
		Use:   "run LOCK [flags] -- COMMAND [ARGUMENTS]",
		Short: "Run a command under a lock",
		Long:  runHelp,
		Example: `  holdfast run nightly/backup -- ./backup.sh      wait for the lock, then run
  holdfast run -n nightly/backup -- ./backup.sh   give up at once if it is held (exit code 1)
  holdfast run -w 60 nightly/backup -c 'dump | gzip > db.gz'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.outputTaken = true
			dash := c.ArgsLenAtDash()
			if c.Flags().Changed("command") {
				if len(args) != 1 || dash >= 0 {
					return usagef("run: with -c the command is one argument: use holdfast run LOCK -c 'COMMAND'")
				}
				dash, args = 1, append(args, a.shell(r.shellCommand)...)
			}
			if err := firstError(r.once.slot(&r.lease, a.now()), r.lease.checkPermit(c.Flags())); err != nil {
				return err
			}
			if err := r.parse(dash, args); err != nil {
				return err
			}
			return r.once.done(r, r.run(c.Context()))
		},
	}
	r.flags(c.Flags())
	r.lease.markFlags(c.Flags())
	r.lease.permitFlags(c.Flags())
	r.once.flags(c.Flags())
	c.Flags().StringVarP(&r.shellCommand, "command", "c", "", "run this command line in $SHELL, or in /bin/sh")
	return c
}

func (r *running) flags(fl *pflag.FlagSet) {
	r.lease.flags(fl, "forever")
	r.lease.sharedFlag(fl)
	r.lost.flags(fl)
	r.hung.flags(fl)
	fl.StringVar(&r.proof, "proof-file", "", "keep a fresh proof of the lock in this file, for resources outside Holdfast")
}

func (r *running) parse(dash int, args []string) error {
	if err := r.lease.check(); err != nil {
		return err
	}
	if dash != 1 || len(args) < 2 {
		return usagef("run: use holdfast run LOCK -- COMMAND ARGUMENTS, or holdfast run LOCK -c 'COMMAND'")
	}
	if err := firstError(r.lost.check(r.lease.ttl, r.margin()), r.hung.check(r.lease.ttl)); err != nil {
		return err
	}
	if r.proof != "" {
		path, err := filepath.Abs(r.proof) // the command may change its directory
		if err != nil {
			return err
		}
		r.proof = path
	}
	r.lock, r.args = cluster.LockName(args[0]), args[1:]
	r.app.subjects[aLock] = args[0] // also of holdfast flock, where it is a path
	if err := r.lock.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// margin returns how long before the end of the lease the command must be dead.
func (r *running) margin() time.Duration {
	return max(min(r.lease.ttl/20, time.Second), 50*time.Millisecond)
}

func (r *running) run(ctx context.Context) error {
	// A missing command is noticed before the lock is waited for.
	path, err := lookPath(r.args[0])
	if err != nil {
		return err
	}
	client, end, err := r.connect()
	if err != nil {
		return err
	}
	defer end()
	lock, err := r.acquire(ctx, client)
	if err != nil {
		return err
	}
	// From here on signals are for the command.
	signals, stop := commandSignals()
	defer stop()
	result, err := r.command(ctx, lock, path, signals)
	r.release(lock, result.Lost != nil, err == nil && result.Code == 0 && result.Lost == nil && r.lease.once != "")
	if err != nil {
		return err
	}
	return r.end(lock, result)
}

// say prints what happens to the command. With -o json it prints nothing: the last line has it all.
func (r *running) say(text string) {
	if r.app.format == formatText {
		fmt.Fprintf(r.app.Stderr, "holdfast: %s\n", wire.Visible(text))
	}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w (%w)", os.ErrNotExist, err)
	}
	return "", &child.StartError{Path: name, Err: err}
}

// acquire waits for the lock until it is granted, --wait is over, or a signal comes.
func (r *running) acquire(ctx context.Context, client *clientlib.Client) (*clientlib.Lock, error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	wait, err := r.lease.waitFor()
	if err != nil {
		return nil, err
	}
	if wait == forever {
		wait = clientlib.Forever
	}
	above, err := r.app.above(string(r.lock))
	if err != nil {
		return nil, err
	}
	opt := clientlib.AcquireOptions{
		TTL: r.lease.ttl, Wait: wait, Metadata: r.lease.metadata, Shared: r.lease.shared, MaxHold: r.hung.maxHold, Heartbeat: r.hung.progress != "",
		AfterToken: cluster.Token(r.lease.after), Remember: r.lease.remember, Once: r.lease.once,
	}
	opt.Limit, opt.Weight = r.lease.permit()
	defer r.app.reportWait(ctx, string(r.lock), &r.lease, waiting{host: hostname(), pid: cmp.Or(r.waiter, os.Getpid())})()
	var lock *clientlib.Lock
	if above != 0 {
		lock, err = r.acquireWithin(ctx, client, above, opt)
	} else {
		lock, err = client.Acquire(ctx, r.lock, opt)
	}
	if err != nil && ctx.Err() != nil {
		return nil, errInterrupted
	}
	if errors.Is(err, wire.ErrLeaseExpired) { // each grant had ended before it came
		return nil, &conflictError{err: err, code: r.lease.conflict}
	}
	return lock, r.lease.conflicts(err)
}

// environment returns this process's environment with the lock's variables. Those of an outer
// run are removed first: of two entries with one name, C programs see the first.
func (r *running) environment(lock *clientlib.Lock) []string {
	servers := strings.Join(r.app.servers(), ",")
	own := []string{
		envLock + "=" + string(r.lock),
		envToken + "=" + strconv.FormatUint(uint64(lock.Token()), 10),
		envEpoch + "=" + strconv.FormatUint(uint64(lock.Epoch()), 10),
		envEndpoints + "=" + servers,
		envTokenEndpoints + "=" + servers,
	}
	if r.proof != "" {
		own = append(own, envProofFile+"="+r.proof)
	}
	own = append(own, r.app.certificateVariables()...) // the grant is of that identity
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, envProofFile+"=") || slices.ContainsFunc(own, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return strings.HasPrefix(e, name+"=")
		})
	})
	return append(env, own...)
}

// held adapts a lock to child.Lease.
type held struct{ *clientlib.Lock }

// Remaining returns how long the lease certainly lasts, by the client library's count.
func (h held) Remaining() time.Duration { return time.Until(h.Expires()) }

// Jeopardy returns why renewals fail if the lock is in jeopardy, else nil.
func (h held) Jeopardy() error {
	if s := h.State(); s.Phase == clientlib.PhaseJeopardy {
		return s.Err
	}
	return nil
}

// Asked describes who asks for the lock and why; "" if no one does.
func (h held) Asked() string {
	a := h.State().Asked
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s asks to let go of lock %s: %q: it is taken at %s", wire.OneLine(a.Actor), h.Name(), a.Reason, timeText(a.Until, time.Now()))
}

// releaseWait bounds the release: the grant ends with its lease anyway.
const releaseWait = 5 * time.Second

// release gives the lock back; done is set if its slot is done then.
func (r *running) release(lock *clientlib.Lock, lost, done bool) {
	if lock.Context().Err() != nil && !done {
		return
	}
	wait := releaseWait
	if lost {
		wait = lossWait // no server has answered for long
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if done {
		if err := lock.Done(ctx); err != nil {
			fmt.Fprintf(r.app.Stderr, "holdfast: the command has ended, and it is not known that slot %s is marked as done: it may run again: %v\n", r.lease.once, err)
		}
		return
	}
	if err := lock.Release(ctx); err != nil {
		fmt.Fprintf(r.app.Stderr, "holdfast: the lock could not be released and ends with its lease: %v\n", err)
	}
}

type runResult struct {
	Status   string        `json:"status"`
	Message  string        `json:"message,omitempty"`
	Lock     string        `json:"lock"`
	Token    cluster.Token `json:"token"`
	Epoch    cluster.Epoch `json:"epoch"`
	ExitCode int           `json:"exit_code"`      // of the command
	Loss     *lossResult   `json:"loss,omitempty"` // nil if it was not lost
}

// end turns the command's exit code into that of run. JSON goes to the standard error: the
// standard output is the command's.
func (r *running) end(lock *clientlib.Lock, result child.Result) error {
	out := runResult{Status: cluster.StatusOK.String(), Lock: string(r.lock), Token: lock.Token(), Epoch: lock.Epoch(), ExitCode: result.Code}
	r.app.code = result.Code
	if result.Lost != nil {
		out.Status, out.Message = cluster.StatusLeaseExpired.String(), result.Lost.Error()
		out.Loss = r.loss(lock, result.Lost)
		r.app.code = r.lost.code
		if text := out.Loss.text(); text != "" {
			r.say(text)
		}
	}
	if r.app.format == formatJSON {
		return writeJSON(r.app.Stderr, out)
	}
	return nil
}

// guardName is the hidden command of the guard process.
const guardName = "guard-of-run"

// guardCommandLine returns the command of the guard process for a grant of this lock.
func (a *app) guardCommandLine(lock cluster.LockName, token cluster.Token) []string {
	self, err := os.Executable()
	if err != nil {
		return nil // without /proc only PR_SET_PDEATHSIG protects
	}
	return append(append([]string{self}, a.globalFlags()...), guardName, "--", string(lock), strconv.FormatUint(uint64(token), 10))
}

// globalFlags returns the flags with which another process of this binary asks the same servers.
// It finds the rest in its environment and in the same files.
func (a *app) globalFlags() []string {
	flags := []string{"--timeout", a.budget.String()}
	if a.endpoints != "" {
		flags = append(flags, "--endpoints", a.endpoints)
	}
	if a.ca != "" {
		flags = append(flags, "--ca", a.ca)
	}
	if a.cert != "" {
		flags = append(flags, "--cert", a.cert)
	}
	if a.certKey != "" {
		flags = append(flags, "--cert-key", a.certKey)
	}
	return flags
}

// guardCommand is the guard process. When the wrapper was killed and all of its command is dead, it
// releases the lock, as the wrapper would have. However late the request arrives, it ends that
// one grant only.
func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{
		Use: guardName + " LOCK TOKEN", Hidden: true, Args: exactly("LOCK", "TOKEN"),
		RunE: func(c *cobra.Command, args []string) error {
			token, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return usagef("%s: %v", guardName, err)
			}
			if dead := child.Guard(os.Stdin); !dead {
				return nil // the grant ends with its lease
			}
			return a.atName(c.Context(), args[0], func(ctx context.Context, c *remote.Caller) error {
				_, err := a.release(ctx, c, args[0], token, a.drawn(), false)
				return err
			})
		},
	}
}

// connect returns a client for a command under a lock; end closes it.
func (r *running) connect() (c *clientlib.Client, end func(), err error) {
	c, err = r.app.newClient(clientlib.Options{
		Holder: r.app.holderOf(r.args),
		// This command prints what the client warns of itself.
		Log: slog.New(slog.NewTextHandler(r.app.Stderr, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: withoutTime})),
	})
	if err != nil {
		return nil, nil, err
	}
	return c, func() {
		if err := c.Close(); err != nil {
			fmt.Fprintf(r.app.Stderr, "holdfast: %v\n", err)
		}
	}, nil
}

// commandSignals returns a channel of the signals that are passed on to a command, until stop
// is called.
func commandSignals() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) { // nohup
			signal.Notify(signals, s)
		}
	}
	return signals, func() { signal.Stop(signals) }
}

// command runs the command under a lock and waits for its end.
func (r *running) command(ctx context.Context, lock *clientlib.Lock, path string, signals <-chan os.Signal) (child.Result, error) {
	if r.hung.progress != "" {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go renewAsItGetsOn(ctx, lock, r.hung.progress)
	}
	if r.proof != "" {
		end, err := (&proofFile{lock, r.proof, r.say}).begin(ctx)
		if err != nil {
			return child.Result{}, err
		}
		defer end()
	}
	return child.Run(held{lock}, child.Options{
		Path: path, Args: r.args, Env: r.environment(lock), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		OnLost: child.OnLost(r.lost.onLost), Warn: r.lost.warning(), OnAsk: r.lost.asked(), Grace: r.lost.grace, Margin: r.margin(),
		Signals: signals, Guard: r.app.guardCommandLine(r.lock, lock.Token()), Say: r.say,
	})
}
