// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func (a *app) accessCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "access",
		Short: "Show and change who may do what",
		Long: `The access rules of a volume are one text with numbered versions. The highest number counts. A
volume without any is open: everybody who reaches a server may do everything.

These commands read and write the volume itself. Type them as the user that the servers run as.`,
		Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.accessShowCommand(), a.accessCheckCommand(), a.accessHistoryCommand(), a.accessDiffCommand(),
		a.audited(a.accessEditCommand()), a.audited(a.accessSetCommand()), a.audited(a.accessRevokeCommand()), a.audited(a.accessLoginsCommand()))
	return c
}

// accessResult is a version of the rules.
type accessResult struct {
	Status  string `json:"status"`
	Version uint64 `json:"version"` // 0: there are no rules
	Text    string `json:"text"`
}

func (a *app) accessShowCommand() *cobra.Command {
	version := uint64(0)
	c := a.onVolume("show --volume DIR", "Show the access rules", `Show the newest version of the access rules, or the one with --version.`, func(_ context.Context, dir string, f *osfs.FS) error {
		n, text, err := version, []byte(nil), error(nil)
		if n == 0 {
			n, text, err = rules.Newest(f)
		} else {
			text, err = volume.ReadRules(f, n)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		return a.print(accessResult{cluster.StatusOK.String(), n, string(text)}, func(w io.Writer) {
			if n == 0 {
				fmt.Fprintf(w, "# %v\n", rules.ErrNone)
			}
			w.Write(text) //nolint:errcheck // to memory
		})
	})
	c.Flags().Uint64Var(&version, "version", 0, "a version, as holdfast access history lists them (default the newest)")
	return c
}

// published prints the result of a command that published a version.
func (a *app) published(version uint64, text []byte) error {
	return a.print(accessResult{cluster.StatusOK.String(), version, string(text)}, func(w io.Writer) {
		fmt.Fprintf(w, "access version %d is published\n", version)
	})
}

// publishText checks a text, and makes it the version that follows after.
func publishText(f *osfs.FS, after uint64, text []byte) error {
	if _, err := rules.Parse(text, after+1); err != nil {
		return err
	}
	if _, err := volume.ReadPublicKeys(f); errors.Is(err, volume.ErrNoSigningKey) {
		// Its servers could not tell each other for whom they ask.
		if err := volume.OfferSigning(f, rand.Reader); err != nil {
			return err
		}
	}
	return volume.PublishRules(f, rand.Reader, after, text)
}

// readText reads a file, or the standard input for "-".
func (a *app) readText(name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	return io.ReadAll(io.LimitReader(a.Stdin, volume.MaxRules+1))
}

func (a *app) accessSetCommand() *cobra.Command {
	policy, after := "", uint64(0)
	var c *cobra.Command
	c = a.onVolumeWith(cobra.MaximumNArgs(1), "set FILE|- --volume DIR", "Publish a text as the newest access rules", `Publish the text of a file, of the standard input (-), or of a policy (--policy), as the newest
version of the access rules, if it has no mistakes. With --after, only if that is the newest
version so far: nobody else has changed the rules since you looked.`, func(_ context.Context, dir string, f *osfs.FS, args []string) (err error) {
		if (len(args) == 1) == (policy != "") {
			return usagef("access set: give either a file or --policy")
		}
		var text []byte
		if policy != "" {
			if text, err = rules.Policy(policy); err != nil {
				return usagef("--policy: %v", err)
			}
		} else if text, err = a.readText(args[0]); err != nil {
			return err
		}
		n := after
		if !c.Flags().Changed("after") {
			if n, err = newestVersion(f); err != nil {
				return fmt.Errorf("volume %s: %w", dir, err)
			}
		}
		if err := publishText(f, n, text); err != nil {
			return fmt.Errorf("the access rules stay as they are: %w", err)
		}
		return a.published(n+1, text)
	})
	c.Flags().StringVar(&policy, "policy", "", "instead of a file: team, strict or open")
	c.Flags().Uint64Var(&after, "after", 0, "the version that is to be the newest so far; 0: none")
	return c
}

// newestVersion returns the number of the newest version, also of one that cannot be read: it is to be replaced.
func newestVersion(f *osfs.FS) (uint64, error) {
	all, err := volume.RulesVersions(f)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1], nil
}

func (a *app) accessCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Look for mistakes in a text of access rules",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.readText(args[0])
			if err == nil {
				_, err = rules.Parse(text, 0)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return a.print(map[string]string{"status": cluster.StatusOK.String()}, func(w io.Writer) { fmt.Fprintln(w, "no mistakes") })
		},
	}
}

func (a *app) accessLoginsCommand() *cobra.Command {
	off := false
	c := a.onVolume("logins --volume DIR", "Let users log in by the filesystem", `Let users of hosts that have the volume mounted log in without a key: holdfast login makes a
directory in login/ on the volume, and the servers believe whose that is. Do this only where the
file server knows its users: it is as strong as the ownership of files there. Servers that run
follow within seconds.

With --off, nobody logs in any more; tickets count until they expire.`, func(_ context.Context, dir string, f *osfs.FS) (err error) {
		text := "users log in by holdfast login --volume " + dir
		if off {
			text = "nobody logs in any more by the filesystem; tickets count until they expire"
			var left string
			left, err = endLogins(filepath.Join(dir, volume.LoginDir))
			text += left
		} else if _, err = volume.ReadPublicKeys(f); err == nil { // servers could not sign tickets
			err = f.MkdirLogin(volume.LoginDir)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		return a.print(map[string]any{"status": cluster.StatusOK.String(), "logins": !off}, func(w io.Writer) { fmt.Fprintln(w, text) })
	})
	c.Flags().BoolVar(&off, "off", false, "take no logins any more")
	return c
}

// endLogins has servers take no logins in a directory any more, and removes what can be removed of it. What a user left in it with something
// inside may be his alone to empty: left says so.
func endLogins(dir string) (left string, err error) {
	if err := os.Chmod(dir, 0o700); err != nil { // first: servers take no logins where it has another mode
		return "", vfs.IgnoreMissing(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		left = fmt.Sprintf("; what users left there stays, and does no harm, until root removes it (%v)", err)
	}
	return left, nil
}

func (a *app) accessEditCommand() *cobra.Command {
	return a.onVolume("edit --volume DIR", "Change the access rules with an editor", `Open the newest version of the access rules with $EDITOR (vi if it is not set), and publish what
you saved. A text with mistakes is not published, but kept. On a volume without rules, the text
begins as that of the policy team.`, func(ctx context.Context, dir string, f *osfs.FS) error {
		n, text, err := rules.Newest(f)
		if err == nil && n == 0 {
			text, err = rules.Policy(rules.Team)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		tmp, err := os.MkdirTemp("", "holdfast-access-") // for its owner only
		if err != nil {
			return err
		}
		name := filepath.Join(tmp, "access.toml")
		changed, err := a.edited(ctx, name, text)
		switch {
		case err == nil && bytes.Equal(text, changed):
			err = errors.New("nothing was changed")
		case err == nil:
			err = publishText(f, n, changed)
		}
		if err != nil && !bytes.Equal(text, changed) && changed != nil {
			return fmt.Errorf("the access rules stay as they are: %w; your text is kept: correct %s, and type holdfast access set %s --after %d --volume %s", err, name, name, n, dir)
		}
		if removeErr := os.RemoveAll(tmp); err != nil || removeErr != nil {
			return errors.Join(err, removeErr)
		}
		return a.published(n+1, changed)
	})
}

// edited writes a text to a file, has the user edit it, and returns what it is then; nil if it cannot be read.
func (a *app) edited(ctx context.Context, name string, text []byte) ([]byte, error) {
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	editor := a.Getenv("EDITOR")
	if editor == "" {
		editor = "vi"
	}
	c := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", name) // $EDITOR may have arguments
	c.Stdin, c.Stdout, c.Stderr = a.Stdin, a.Stderr, a.Stderr
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w", editor, err)
	}
	changed, readErr := os.ReadFile(name)
	return changed, errors.Join(err, readErr)
}

type accessVersion struct {
	Version uint64    `json:"version"`
	Written time.Time `json:"written"`
	Rules   int       `json:"rules"`
	Keys    int       `json:"keys"`
	// Error is why servers do not go by this version, "" if they can.
	Error string `json:"error"`
}

func (a *app) accessHistoryCommand() *cobra.Command {
	return a.onVolume("history --volume DIR", "List the versions of the access rules", `List the versions of the access rules, the newest first.`, func(_ context.Context, dir string, f *osfs.FS) error {
		numbers, err := volume.RulesVersions(f)
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		all := []accessVersion{}
		for _, n := range slices.Backward(numbers) {
			x := accessVersion{Version: n}
			if info, err := os.Lstat(filepath.Join(dir, volume.RulesPath(n))); err == nil {
				x.Written = info.ModTime().UTC()
			}
			text, err := volume.ReadRules(f, n)
			if err == nil {
				_, err = rules.Parse(text, n)
			}
			if err != nil {
				x.Error = err.Error()
			} else if said, err := rules.Decode(text); err == nil {
				x.Rules, x.Keys = len(said.Rules), len(said.Keys)
			}
			all = append(all, x)
		}
		out := struct {
			Status   string          `json:"status"`
			Versions []accessVersion `json:"versions"`
		}{cluster.StatusOK.String(), all}
		return a.print(out, func(w io.Writer) {
			if len(all) == 0 {
				fmt.Fprintln(w, rules.ErrNone)
				return
			}
			table(w, func(row func(...any)) {
				now := a.now()
				row("VERSION", "WRITTEN", "RULES", "KEYS", "")
				for _, x := range all {
					row(x.Version, timeText(x.Written, now), x.Rules, x.Keys, wire.OneLine(x.Error))
				}
			})
		})
	})
}

func (a *app) accessDiffCommand() *cobra.Command {
	return a.onVolumeWith(cobra.ExactArgs(2), "diff A B --volume DIR", "Compare two versions of the access rules", `Print the lines that only version A has (-), and those that only version B has (+).`, func(_ context.Context, dir string, f *osfs.FS, args []string) error {
		var texts [2][]byte
		for i, arg := range args {
			n, err := strconv.ParseUint(arg, 10, 64)
			if err != nil {
				return usagef("%q is no version: see holdfast access history --volume %s", arg, dir)
			}
			if texts[i], err = volume.ReadRules(f, n); err != nil {
				return fmt.Errorf("volume %s: %w", dir, err)
			}
		}
		lines := rules.Diff(texts[0], texts[1])
		return a.print(struct {
			Status string   `json:"status"`
			Lines  []string `json:"lines"`
		}{cluster.StatusOK.String(), lines}, func(w io.Writer) {
			for _, line := range lines {
				fmt.Fprintln(w, line)
			}
		})
	})
}

func (a *app) accessRevokeCommand() *cobra.Command {
	return a.onVolumeWith(cobra.ExactArgs(1), "revoke WHO --volume DIR", "End the tickets of somebody", `End all tickets of user:NAME, group:NAME, user:* or "*" that were issued until now, by a [[revoked]] table in
the access rules. Who still has another credential can get a new ticket: take that from them first.`, func(_ context.Context, dir string, f *osfs.FS, args []string) error {
		x := access.Revocation{Who: args, Before: nextSecond()}
		n, text, err := update(f, func(text []byte) ([]byte, error) { return rules.AddRevocation(text, x) })
		if err != nil {
			return fmt.Errorf("volume %s: %w", dir, err)
		}
		return a.published(n, text)
	})
}

// nextSecond returns the time before which all was issued that was until now: the times of tickets are whole seconds.
func nextSecond() time.Time { return time.Now().UTC().Truncate(time.Second).Add(time.Second) }

// update publishes a change of the newest version, and returns that and its text.
func update(f *osfs.FS, change func([]byte) ([]byte, error)) (n uint64, text []byte, err error) {
	n, err = rules.Update(f, rand.Reader, func(old []byte) ([]byte, error) {
		text, err = change(old)
		return text, err
	})
	return n, text, err
}
