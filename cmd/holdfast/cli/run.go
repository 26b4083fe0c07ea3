// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// running is one `holdfast run`.
type running struct {
	app   *app
	lock  cluster.LockName
	args  []string
	lease lease
	lost  lossFlags
	hung  hungFlags
}

func (a *app) runCommand() *cobra.Command {
	r := &running{app: a}
	c := &cobra.Command{
		Use:   "run LOCK [flags] -- COMMAND [ARGUMENTS]",
		Short: "Run a command under a lock",
		Long: `Run a command under a lock, and pass on its exit code. The command finds
HOLDFAST_LOCK, HOLDFAST_TOKEN, HOLDFAST_EPOCH and HOLDFAST_ENDPOINTS in its environment.
append, renew, release, metadata, downgrade, verify and file take the token from there for
this lock, unless other servers are named. A run or elect of the same lock in there, or an
acquire that waits, would wait for its end: it says so at once, as of a lock that was not gotten.

The lock is in jeopardy when no renewal was answered for half of --ttl. A line says so,
and when it is safe again; --warn sends the command's process group a signal each time.

When the lock is lost, or could not be renewed in time, --on-lost says what happens:
  terminate  The command and everything that descends from it gets SIGTERM, and SIGKILL
             --grace later but before the lease could expire: by a local timer, also
             when the network is gone.
  kill       SIGKILL at once; when no renewal is answered, just before the lease could
             expire.
  leave      Nothing. The command runs on while somebody else may have the lock; only
             its token tells the two apart. This is for commands that check that
             themselves. It also outlives this process when that is killed.
The exit code is 3 then (--lost-exit-code changes it), whatever the command's was.

Alive is not the same as getting on: with --progress-file the lock is renewed only as
the command gets on, and --max-hold ends it in any case. When an operator asks for the
lock (holdfast break --grace), a line says so, and --warn or --on-ask tells the command.

When the command ends, what it has left running is ended too, daemons as well, and
the lock is released.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group. When
this process is killed, or stopped until the lease runs out, a guard process kills the
command and what descends from it. Of a killed one it finds orphans by HOLDFAST_RUN in
their environment: a process that has lost its parent and wiped that as well is on its
own. It is, too, where this process had children before, as after exec in a shell that
has background jobs. So is everything when the whole machine freezes and goes on later.
Who writes to something else than protected files should have the token checked there.

What cannot be ended, because it hangs in a filesystem or belongs to another user, is
named every minute, and waited for with the lock. When the guard itself is killed, or
reads nothing for minutes, the command is ended as if the lock was lost.

Ctrl-Z on a terminal is undone: the command would hold the lock and do nothing.

Exit codes: 1 the lock was not gotten (-E changes it), 2 usage, 3 lost while the
command ran, 4 no service, 126 and 127 as in a shell, 128+n for signal n, else the
command's. With -o json the last line on the standard error tells all, also of a loss:
reason, actor, the successor's token and the last append that was accepted.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.outputTaken = true
			if err := r.parse(c.ArgsLenAtDash(), args); err != nil {
				return err
			}
			return r.run(c.Context())
		},
	}
	r.lease.flags(c.Flags(), "forever")
	r.lease.sharedFlag(c.Flags())
	r.lost.flags(c.Flags())
	r.hung.flags(c.Flags())
	return c
}

func (r *running) parse(dash int, args []string) error {
	if err := r.lease.check(); err != nil {
		return err
	}
	if dash != 1 || len(args) < 2 {
		return usagef("run: use holdfast run LOCK -- COMMAND ARGUMENTS")
	}
	if err := firstError(r.lost.check(r.lease.ttl, r.margin()), r.hung.check(r.lease.ttl)); err != nil {
		return err
	}
	r.lock, r.args = cluster.LockName(args[0]), args[1:]
	if err := r.lock.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// margin is how long before the end of the lease the command must be dead.
func (r *running) margin() time.Duration {
	return max(min(r.lease.ttl/20, time.Second), 50*time.Millisecond)
}

func (r *running) run(ctx context.Context) error {
	// A command that is not there is known before anybody waits for a lock.
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
	// From here on signals are the command's.
	signals, stop := commandSignals()
	defer stop()
	result, err := r.command(ctx, lock, path, signals)
	r.release(lock, result.Lost != nil)
	if err != nil {
		return err
	}
	return r.end(lock, result)
}

// say tells people what happens to the command. In JSON the last word has it all.
func (r *running) say(text string) {
	if r.app.format == formatText {
		fmt.Fprintf(r.app.Stderr, "holdfast: %s\n", text)
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

// acquire waits for the lock until it comes or the user has enough.
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
	}
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
		return nil, &conflictError{err, r.lease.conflict}
	}
	return lock, r.lease.conflicts(err)
}

// environment is this process's with the lock in it. What an outer run set is
// taken out first: of two entries with one name, C programs see the first.
func (r *running) environment(lock *clientlib.Lock) []string {
	servers := strings.Join(r.app.servers(), ",")
	own := []string{
		envLock + "=" + string(r.lock),
		envToken + "=" + strconv.FormatUint(uint64(lock.Token()), 10),
		envEpoch + "=" + strconv.FormatUint(uint64(lock.Epoch()), 10),
		envEndpoints + "=" + servers,
		envTokenEndpoints + "=" + servers,
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc(own, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return strings.HasPrefix(e, name+"=")
		})
	})
	return append(env, own...)
}

// held is a lock as the command's lease.
type held struct{ *clientlib.Lock }

// Remaining is by the library's cautious count.
func (h held) Remaining() time.Duration { return time.Until(h.Expires()) }

// Jeopardy is why renewals fail, in time to be warned.
func (h held) Jeopardy() error {
	if s := h.State(); s.Phase == clientlib.PhaseJeopardy {
		return s.Err
	}
	return nil
}

// Asked says who wants the lock.
func (h held) Asked() string {
	a := h.State().Asked
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s asks to let go of lock %s: %q: it is taken at %s", a.Actor, h.Name(), a.Reason, a.Until.Format("15:04:05"))
}

// releaseWait bounds the release: it ends with its lease anyway.
const releaseWait = 5 * time.Second

func (r *running) release(lock *clientlib.Lock, lost bool) {
	if lock.Context().Err() != nil {
		return
	}
	wait := releaseWait
	if lost {
		wait = lossWait // nobody has answered for long
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := lock.Release(ctx); err != nil {
		fmt.Fprintf(r.app.Stderr, "holdfast: the lock could not be released and ends with its lease: %v\n", err)
	}
}

type runResult struct {
	Status   string        `json:"status"`
	Message  string        `json:"message"`
	Lock     string        `json:"lock"`
	Token    cluster.Token `json:"token"`
	Epoch    cluster.Epoch `json:"epoch"`
	ExitCode int           `json:"exit_code"` // of the command
	Loss     *lossResult   `json:"loss"`      // null if it was not lost
}

// end makes the command's end this one's. JSON goes to the standard error: the
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

func guardCommandLine() []string {
	self, err := os.Executable()
	if err != nil {
		return nil // /proc is not there: PR_SET_PDEATHSIG remains
	}
	return []string{self, guardName}
}

func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{
		Use: guardName, Hidden: true, Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) { child.Guard(os.Stdin) },
	}
}
