// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

// connect makes the client for a command under a lock.
func (r *running) connect() (c *clientlib.Client, end func(), err error) {
	c, err = r.app.newClient(clientlib.Options{
		Holder: clientlib.Holder{Command: filepath.Base(r.args[0])},
		// What it warns of is said here, in other words.
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

// commandSignals are those that are passed on to a command, until stop.
func commandSignals() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) { // nohup
			signal.Notify(signals, s)
		}
	}
	return signals, func() { signal.Stop(signals) }
}

// command runs the command under a lock to its end.
func (r *running) command(ctx context.Context, lock *clientlib.Lock, path string, signals <-chan os.Signal) (child.Result, error) {
	if r.hung.progress != "" {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go renewAsItGetsOn(ctx, lock, r.hung.progress)
	}
	return child.Run(held{lock}, child.Options{
		Path: path, Args: r.args, Env: r.environment(lock), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		OnLost: child.OnLost(r.lost.onLost), Warn: r.lost.warning(), OnAsk: r.lost.asked(), Grace: r.lost.grace, Margin: r.margin(),
		Signals: signals, Guard: guardCommandLine(), Say: r.say,
	})
}
