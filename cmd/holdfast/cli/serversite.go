// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/supervisor"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// serveSite runs a server for each cell of a site, in processes of their own, until a signal comes.
func (a *app) serveSite(ctx context.Context, s *settings.Server, from settings.Sources) error {
	output := a.Stderr // theirs, as it is: their lines do not pass through this process
	log, _ := a.logger(s.LogLevel, s.LogFormat)
	site, err := serve.ReadSite(ctx, s.Site, serve.Options{Log: log})
	if err != nil {
		return err
	}
	var cells []cluster.CellID
	for _, c := range site.Cells {
		if _, err := s.PlacesOf(int(c.Cell)); err != nil {
			return usagef("server: %v", err)
		}
		cells = append(cells, c.Cell)
	}
	command, err := a.cellCommand(s, from)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if from.File != "" { // without a file it ends, as a server does, and the servers with it
		signal.Notify(signals, syscall.SIGHUP)
	}
	log.Info().Uint32("server", s.ID).Str("site", s.Site).Int("cells", len(cells)).Str("version", a.version().Version).Int("pid", os.Getpid()).Msg("the servers of a site start")
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM) // for the service manager, which is told at once
	told := make(chan struct{})
	close(told)
	defer func() { stop(); <-told }()
	err = supervisor.Run(signals, supervisor.Options{
		Cells: cells, Command: command, GiveUp: exitRemoved, Log: log, Output: output,
		Ready: func() {
			told = make(chan struct{})
			go func() { defer close(told); serve.Supervised(ctx, log, func() {}) }()
		},
	})
	switch {
	case errors.Is(err, supervisor.ErrGivenUp):
		return fmt.Errorf("%w: %w", err, cluster.ErrRemoved)
	case err != nil:
		return err
	}
	log.Info().Msg("ended")
	return nil
}

// cellCommand returns the command line of the server of a cell: that of this process, for that cell. A flag that names the file is for one
// that the environment names, and the environment is theirs, too.
func (a *app) cellCommand(s *settings.Server, from settings.Sources) (func(cluster.CellID) []string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find my own binary: %w", err)
	}
	args := []string{self, "--output=" + a.format, "server", fmt.Sprintf("--id=%d", s.ID), "--site=" + s.Site}
	if from.File != "" {
		args = append(args, "--"+settings.FileFlag+"="+from.File)
	}
	for _, name := range slices.Sorted(maps.Keys(from.Flags)) {
		for _, v := range from.Flags[name] {
			if name != "id" && name != "site" {
				args = append(args, "--"+name+"="+v)
			}
		}
	}
	return func(k cluster.CellID) []string { return append(slices.Clone(args), fmt.Sprintf("--cell=%d", k)) }, nil
}

// reloadWait is how long the server of a cell may take to read its settings anew: its volume may hang, where it has to be found by that.
const reloadWait = 15 * time.Second

// reloadSite has the servers of all cells on this host read their settings anew, each by itself, and says what became of it in all. They have
// one configuration: so what one refuses, all refuse.
func (a *app) reloadSite(ctx context.Context, s *settings.Server) error {
	ctx, cancel := context.WithTimeout(ctx, reloadWait)
	defer cancel()
	site, err := serve.ReadSite(ctx, s.Site, serve.Options{})
	if err != nil {
		return err
	}
	type answer struct {
		serve.Reloaded
		err error
	}
	answers := map[cluster.CellID]chan answer{}
	for _, c := range site.Cells {
		of, ch := *s, make(chan answer, 1)
		of.Cell, answers[c.Cell] = int(c.Cell), ch
		go func() {
			dir, err := dataDirOf(ctx, &of)
			if err != nil {
				ch <- answer{err: err}
				return
			}
			r, err := serve.AskReload(ctx, dir)
			ch <- answer{r, err}
		}()
	}
	all, failed := serve.Reloaded{Changed: []string{}, Restart: []string{}}, error(nil)
	for _, c := range site.Cells {
		var x answer
		select {
		case x = <-answers[c.Cell]:
		case <-ctx.Done():
			x.err = context.Cause(ctx)
		}
		if x.err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", c.Cell, x.err))
		}
		all.Changed, all.Restart, all.Error = union(all.Changed, x.Changed), union(all.Restart, x.Restart), cmp.Or(all.Error, x.Error)
	}
	if failed != nil {
		return &noServerError{fmt.Errorf("reload: %w", failed)}
	}
	return a.reloaded(all)
}

// union returns the elements of both lists once each, in order.
func union(a, b []string) []string {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}
