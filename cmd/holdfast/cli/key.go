// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

func (a *app) keyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke keys of services",
		Long: `A key is a long-lived credential, for services and jobs: who has the text of the key NAME is
service:NAME. The volume has only a hash of it, in the access rules.

These commands read and write the volume itself. Type them as the user that the servers run as.`,
		Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.audited(a.keyCreateCommand()), a.keyListCommand(), a.audited(a.keyRevokeCommand()))
	return c
}

func (a *app) keyCreateCommand() *cobra.Command {
	var groups []string
	expires := ""
	c := a.onVolumeWith(cobra.ExactArgs(1), "create NAME --volume DIR", "Make a key, and print its text", `Make a key for service:NAME, and print its text. This is the only time that it can be seen.`, func(_ context.Context, dir string, f *osfs.FS, args []string) error {
		k := access.Key{Name: args[0], Created: time.Now().UTC().Truncate(time.Second)}
		for _, g := range groups {
			k.Groups = append(k.Groups, "group:"+strings.TrimPrefix(g, "group:"))
		}
		if expires != "" {
			d, err := parseDays(expires)
			if err != nil {
				return err
			}
			k.Expires = k.Created.Add(d)
		}
		var random [32]byte
		if _, err := rand.Read(random[:]); err != nil {
			return err
		}
		text := access.KeyText(random)
		sum, err := access.KeySum(text)
		if err != nil {
			return err
		}
		k.SHA256 = hex.EncodeToString(sum[:])
		version, _, err := update(f, func(text []byte) ([]byte, error) { return addKey(text, k) })
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		out := struct {
			Status  string `json:"status"`
			Key     string `json:"key"`
			Version uint64 `json:"version"`
			keyInfo
		}{cluster.StatusOK.String(), text, version, infoOf(k)}
		return a.print(out, func(w io.Writer) { fmt.Fprintln(w, text) })
	})
	c.Flags().StringArrayVar(&groups, "group", nil, "a group that the key is in; once for each")
	c.Flags().StringVar(&expires, "expires", "", "after which time it ends, such as 90d or 12h (default never)")
	return c
}

// addKey adds a key to a text. A key that had the same name may have been revoked a moment ago, and that must not be about
// this one.
func addKey(text []byte, k access.Key) ([]byte, error) {
	f, err := rules.Decode(text)
	if err != nil {
		return nil, err
	}
	means := append([]string{"*", "service:*", "service:" + k.Name}, k.Groups...)
	for _, x := range f.Ended {
		about := slices.ContainsFunc(x.Who, func(who string) bool { return slices.Contains(means, who) })
		if about && k.Created.Before(x.Before) {
			k.Created = x.Before
		}
	}
	return rules.AddKey(text, k)
}

// parseDays parses a duration above zero, which may be in days.
func parseDays(s string) (d time.Duration, err error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, parseErr := strconv.ParseUint(days, 10, 16)
		d, err = time.Duration(n)*24*time.Hour, parseErr
	} else {
		d, err = time.ParseDuration(s)
	}
	if err != nil || d < time.Second {
		return 0, usagef("--expires %q: use a duration like 90d or 12h", s)
	}
	return d, nil
}

// keyInfo is what everybody with the volume may know of a key.
type keyInfo struct {
	Name    string     `json:"name"`
	Groups  []string   `json:"groups"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires"` // null: never
}

func infoOf(k access.Key) keyInfo {
	x := keyInfo{Name: k.Name, Groups: append([]string{}, k.Groups...), Created: k.Created}
	if !k.Expires.IsZero() {
		x.Expires = &k.Expires
	}
	return x
}

func (a *app) keyListCommand() *cobra.Command {
	return a.onVolume("ls --volume DIR", "List the keys", `List the keys that the newest version of the access rules has.`, func(_ context.Context, dir string, f *osfs.FS) error {
		_, text, err := rules.Newest(f)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		said, err := rules.Decode(text)
		if err != nil {
			return fmt.Errorf("volume %s: the newest access rules: %w", dir, err)
		}
		all := []keyInfo{}
		for _, k := range said.Keys {
			all = append(all, infoOf(k))
		}
		return a.print(struct {
			Status string    `json:"status"`
			Keys   []keyInfo `json:"keys"`
		}{cluster.StatusOK.String(), all}, func(w io.Writer) {
			table(w, func(row func(...any)) {
				now := a.now()
				row("NAME", "CREATED", "EXPIRES", "GROUPS")
				for _, k := range all {
					expires := "never"
					if k.Expires != nil {
						expires = timeText(*k.Expires, now)
					}
					row(k.Name, timeText(k.Created, now), expires, strings.Join(k.Groups, " "))
				}
			})
		})
	})
}

func (a *app) keyRevokeCommand() *cobra.Command {
	return a.onVolumeWith(cobra.ExactArgs(1), "revoke NAME --volume DIR", "End a key", `Remove a key from the access rules, and end the tickets that rest on it.`, func(_ context.Context, dir string, f *osfs.FS, args []string) error {
		x := access.Revocation{Who: []string{"service:" + args[0]}, Before: nextSecond()}
		n, text, err := update(f, func(text []byte) ([]byte, error) {
			text, err := rules.RemoveKey(text, args[0])
			if err != nil {
				return nil, err
			}
			return rules.AddRevocation(text, x) // a new key with this name does not bring them back
		})
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		return a.published(n, text)
	})
}
