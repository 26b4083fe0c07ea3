// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// running is one `holdfast run`.
type running struct {
	app   *app
	lock  cluster.LockName
	args  []string
	lease lease
	grace time.Duration
}

func (a *app) runCommand() *cobra.Command {
	r := &running{app: a}
	c := &cobra.Command{
		Use:   "run LOCK [flags] -- COMMAND [ARGUMENTS]",
		Short: "Run a command under a lock",
		Long: `Run a command under a lock, and pass on its exit code. The command finds
HOLDFAST_LOCK, HOLDFAST_TOKEN, HOLDFAST_EPOCH and HOLDFAST_ENDPOINTS in its environment.

It runs in a process group of its own. When the lock is lost, or could not be
renewed in time, the whole group gets SIGTERM, and SIGKILL --grace later but before
the lease could expire: by a local timer, also when the network is gone. Then the
exit code is 3. When the command ends, what is left of its group is ended too, and
the lock is released.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on. When this
process is killed or stopped, a guard process kills the group. A process that leaves the
group (setsid) is on its own: it should check its token, as everybody should who
writes to something else than protected files.

Ctrl-Z on a terminal is undone: the command would hold the lock and do nothing.

Exit codes: 1 the lock was not gotten (-E changes it), 2 usage, 3 lost while the
command ran, 4 no service, 126 and 127 as in a shell, 128+n for signal n, else the
command's.`,
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
	c.Flags().DurationVar(&r.grace, "grace", 0, "between SIGTERM and SIGKILL when the lock is lost (default a quarter of --ttl)")
	return c
}

func (r *running) parse(dash int, args []string) error {
	if err := r.lease.check(); err != nil {
		return err
	}
	if dash != 1 || len(args) < 2 {
		return usagef("run: use holdfast run LOCK -- COMMAND ARGUMENTS")
	}
	if r.grace == 0 {
		r.grace = r.lease.ttl / 4
	}
	if r.grace < 0 || r.grace > r.lease.ttl/2 {
		return usagef("--grace %v: use at most half of --ttl %v: a renewal must have its time before the command is ended", r.grace, r.lease.ttl)
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

func (r *running) run(ctx context.Context) (err error) {
	// A command that is not there is known before anybody waits for a lock.
	path, err := lookPath(r.args[0])
	if err != nil {
		return err
	}
	level := slog.LevelError
	if r.app.format == formatText {
		level = slog.LevelWarn
	}
	client, err := clientlib.New(clientlib.Options{
		Endpoints: r.app.servers(), Holder: clientlib.Holder{Command: filepath.Base(r.args[0])}, Budget: r.app.budget,
		Log: slog.New(slog.NewTextHandler(r.app.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutTime})),
	})
	if err != nil {
		return usagef("%v", err)
	}
	defer func() {
		if e := client.Close(); err == nil && e != nil {
			fmt.Fprintf(r.app.Stderr, "holdfast: %v\n", e)
		}
	}()
	lock, err := r.acquire(ctx, client)
	if err != nil {
		return err
	}
	// From here on signals are the command's.
	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) { // nohup
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	result, err := child.Run(held{lock}, child.Options{
		Path: path, Args: r.args, Env: r.environment(lock), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Grace: r.grace, Margin: r.margin(), Signals: signals, Guard: guardCommandLine(),
		Say: r.say,
	})
	r.release(lock)
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
	lock, err := client.Acquire(ctx, r.lock, clientlib.AcquireOptions{TTL: r.lease.ttl, Wait: wait})
	if err != nil && ctx.Err() != nil {
		return nil, errInterrupted
	}
	return lock, r.lease.conflicts(err)
}

// environment is this process's with the lock in it. What an outer run set is
// taken out first: of two entries with one name, C programs see the first.
func (r *running) environment(lock *clientlib.Lock) []string {
	own := []string{"HOLDFAST_LOCK=", "HOLDFAST_TOKEN=", "HOLDFAST_EPOCH=", "HOLDFAST_ENDPOINTS="}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc(own, func(name string) bool { return strings.HasPrefix(e, name) })
	})
	return append(env,
		"HOLDFAST_LOCK="+string(r.lock),
		"HOLDFAST_TOKEN="+strconv.FormatUint(uint64(lock.Token()), 10),
		"HOLDFAST_EPOCH="+strconv.FormatUint(uint64(lock.Epoch()), 10),
		"HOLDFAST_ENDPOINTS="+strings.Join(r.app.servers(), ","))
}

// held is a lock as the command's lease.
type held struct{ *clientlib.Lock }

// Remaining is by the library's cautious count.
func (h held) Remaining() time.Duration { return time.Until(h.Expires()) }

// releaseWait bounds the release: it ends with its lease anyway.
const releaseWait = 5 * time.Second

func (r *running) release(lock *clientlib.Lock) {
	if lock.Context().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
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
}

// end makes the command's end this one's. JSON goes to the standard error: the
// standard output is the command's.
func (r *running) end(lock *clientlib.Lock, result child.Result) error {
	out := runResult{Status: cluster.StatusOK.String(), Lock: string(r.lock), Token: lock.Token(), Epoch: lock.Epoch(), ExitCode: result.Code}
	r.app.code = result.Code
	if result.Lost != nil {
		out.Status, out.Message = cluster.StatusLeaseExpired.String(), result.Lost.Error()
		r.app.code = exitLost
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
		Run: func(c *cobra.Command, _ []string) { child.Guard(io.Reader(a.Stdin)) },
	}
}
