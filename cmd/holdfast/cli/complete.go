// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/clientconfig"
	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// completionTime is how long a shell waits for names.
	completionTime = time.Second
	// completionNames is how many names a shell offers.
	completionNames = 200
)

// completeNames has shells complete arguments that are names of locks or protected files: LOCK and FILE in the usage of a command.
func (a *app) completeNames(c *cobra.Command) {
	if slices.Contains([]string{"config", "access"}, c.Name()) {
		return // their FILE is one of this host
	}
	_, usage, _ := strings.Cut(c.Use, " ")
	var kinds []string
	for _, word := range strings.Fields(strings.ReplaceAll(usage, "[LOCK]", "LOCK")) {
		if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			break // a flag, or what is no argument
		}
		kinds = append(kinds, word)
	}
	if len(kinds) > 0 && c.ValidArgsFunction == nil && (slices.Contains(kinds, "LOCK") || slices.Contains(kinds, "FILE")) {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(kinds) {
				return nil, cobra.ShellCompDirectiveDefault // as of the command that run runs
			}
			return a.names(c.Context(), kinds[len(args)], begun), cobra.ShellCompDirectiveNoFileComp
		}
	}
	if c.Flags().Lookup("lock") != nil {
		// It fails for a flag that is not there only.
		_ = c.RegisterFlagCompletionFunc("lock", func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return a.names(c.Context(), "LOCK", begun), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for _, sub := range c.Commands() {
		if c.Name() != "proof" { // whose check takes a file of this host
			a.completeNames(sub)
		}
	}
}

// completeValues has shells complete the values of flags that take one of a few words.
func completeValues(c *cobra.Command) {
	for flag, values := range map[string][]string{
		"output":  {formatText, formatJSON},
		"on-lost": {string(child.Terminate), string(child.Kill), string(child.Leave)},
		"policy":  {rules.Team, rules.Strict, rules.Open},
		"kinds":   wire.EventWords(),
	} {
		if c.LocalFlags().Lookup(flag) != nil {
			// It fails for a flag that is not there only.
			_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

// names returns names of this kind that begin so; none where the servers do not answer in time. A look for them may hang in a
// filesystem: it is left alone then, and the process ends.
func (a *app) names(ctx context.Context, kind, begun string) []string {
	if kind != "LOCK" && kind != "FILE" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	found := make(chan []string, 1)
	go func() { found <- a.askNames(ctx, kind, begun) }()
	select {
	case names := <-found:
		return names
	case <-ctx.Done():
		return nil
	}
}

func (a *app) askNames(ctx context.Context, kind, begun string) (names []string) {
	a.client, a.clientErr = clientconfig.Read(a.Getenv)
	if a.byAuthority() != nil || a.checkServers() != nil {
		return nil
	}
	c, err := remote.New(a.asking(completionTime))
	if err != nil {
		return nil
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	if kind == "LOCK" {
		r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListLocksResponse, error) {
			return s.ListLocks(ctx, &pb.ListLocksRequest{Prefix: begun, Limit: completionNames})
		})
		if err != nil {
			return nil
		}
		for _, l := range r.GetLocks() {
			names = append(names, wire.Visible(l.GetName()))
		}
		return names
	}
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListFilesResponse, error) {
		return s.ListFiles(ctx, &pb.ListFilesRequest{Prefix: begun, Limit: completionNames})
	})
	if err != nil {
		return nil
	}
	for _, f := range r.GetFiles() {
		names = append(names, wire.Visible(f.GetName()))
	}
	return names
}
