// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/secrets"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/backup"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

func (a *app) backupCommand() *cobra.Command {
	var dir string
	var with string
	c := &cobra.Command{
		Use:   "backup --volume DIR DEST",
		Short: "Copy a volume, beside its servers, so that it can be restored",
		Long: `Copy the state of a volume and its protected files to DEST, a new directory, or an
empty one that others may not look into, best on another filesystem. Servers may run.
Run it on a host that has the volume mounted, as the user that the servers run as.

The backup has everything that was acknowledged before it began. It is complete
only if it has a manifest.json, which is written last. It has the volume's secrets
only with --secrets; without them a restored volume gets new ones, so clients need a new join string.

The exit code is 1 if a protected file was not what the log says, or could not be
found. The backup has everything else then.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if with != "" && with != noSecretsDir {
				a.secrets = with
			}
			return a.backup(c.Context(), dir, args[0], backup.Options{Secrets: with != "", Now: time.Now(), Version: a.version().String()})
		},
	}
	c.Flags().StringVar(&dir, "volume", "", "the directory of the volume")
	c.Flags().StringVar(&with, "secrets", "", "copy the volume's secrets as well: who can read DEST can then do everything on the volume. --secrets=DIR names their directory where the volume does not have them")
	c.Flags().Lookup("secrets").NoOptDefVal = noSecretsDir
	required(c, "volume")
	c.AddCommand(&cobra.Command{
		Use:   "check DEST",
		Short: "Read a backup and compare it with its manifest; only reads",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.checkBackup(c.Context(), args[0]) },
	})
	return c
}

// noSecretsDir is the value of --secrets without one.
const noSecretsDir = "true"

// backedUp is the result of a backup, and of its check.
type backedUp struct {
	Status string `json:"status"`
	Backup string `json:"backup"`
	*backup.Manifest
	Bytes int64 `json:"bytes"`
}

func (a *app) backup(ctx context.Context, dir, dest string, opt backup.Options) (err error) {
	if err := ownVolume(dir); err != nil {
		return fmt.Errorf("back up %s: %w", dir, err)
	}
	from, err := secrets.Open(dir, a.secretsDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if elsewhere, err := volume.SecretsElsewhere(from); err != nil {
		return err
	} else if elsewhere && opt.Secrets {
		return fmt.Errorf("back up %s: %w", dir, volume.ErrSecretsElsewhere)
	}
	to, err := openDest(dest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	opt.Tell = func(err error) { fmt.Fprintf(a.Stderr, "backup: %v\n", err) }
	opt.Progress = a.copied()
	m, err := backup.Run(ctx, from, to, opt)
	if vfs.IsFull(err) {
		err = fmt.Errorf("%w: make room, or name a directory on another disk", err)
	}
	if err != nil {
		return fmt.Errorf("back up %s to %s: %w; what is there is no backup: remove it", dir, dest, err)
	}
	if m.Secrets {
		fmt.Fprintf(a.Stderr, "backup: %s HAS THE SECRETS of the volume: who can read it can do everything there\n", dest)
	}
	for _, f := range m.Problems() {
		a.code = exitFindings
		fmt.Fprintf(a.Stderr, "backup: %s: %s: type holdfast fsck --volume %s\n", f.Path, f.Problem, dir)
	}
	if m.Unconfirmed != "" {
		fmt.Fprintf(a.Stderr, "backup: %s\n", m.Unconfirmed)
	}
	return a.print(backedUp{Status: cluster.StatusOK.String(), Backup: dest, Manifest: m, Bytes: m.Bytes()}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: cluster %s at LSN %d of epoch %d, %s, %d bytes, read back and complete\n", dest, m.Cluster, m.LSN, m.Epoch, counted(uint64(len(m.Files)), "file"), m.Bytes())
	})
}

// openDest opens the directory of a new backup, and makes it if it is missing.
func openDest(dest string) (*osfs.FS, error) {
	abs, err := filepath.Abs(dest)
	if err != nil {
		return nil, err
	}
	if err := notInside(abs); err != nil {
		return nil, fmt.Errorf("a backup belongs on another filesystem: %w", err)
	}
	if err := os.Mkdir(abs, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if info, err := os.Stat(abs); err != nil {
		return nil, err
	} else if info.Mode()&0o077 != 0 {
		return nil, fmt.Errorf("others may look into %s: a backup has what the volume has: type chmod 700 %s, or name a directory that is not there yet", dest, dest)
	}
	return osfs.Open(abs)
}

// slowCopy is how often a backup prints how much it has copied.
const slowCopy = 2 * time.Second

// copied returns a function that prints how much was copied, about once in slowCopy.
func (a *app) copied() func(done, total int64) {
	last := time.Now()
	return func(done, total int64) {
		if time.Since(last) >= slowCopy {
			last = time.Now()
			fmt.Fprintf(a.Stderr, "backup: %d of %d MiB\n", done>>20, total>>20)
		}
	}
}

func (a *app) checkBackup(ctx context.Context, dest string) (err error) {
	from, err := osfs.Open(dest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	r, err := backup.Check(ctx, from)
	if err != nil {
		return fmt.Errorf("%s: %w", dest, err)
	}
	if len(r.Damage)+len(r.Problems) > 0 {
		a.code = exitFindings
	}
	return a.print(r, func(w io.Writer) {
		for _, d := range r.Damage {
			fmt.Fprintf(w, "damaged   %s\n", d)
		}
		for _, p := range r.Problems {
			fmt.Fprintf(w, "problem   %s: restore quarantines it\n", p)
		}
		fmt.Fprintf(w, "%s: cluster %s at LSN %d of epoch %d, taken %s, %s, %s, %s, %s\n", dest, r.Manifest.Cluster, r.Manifest.LSN,
			r.Manifest.Epoch, timeText(r.Manifest.Taken, time.Now()), counted(uint64(len(r.Manifest.Files)), "file"),
			counted(uint64(r.Bytes), "byte"), counted(uint64(r.Locks), "lock"), counted(uint64(r.Clients), "client"))
	})
}

// restoring holds the flags of one `holdfast restore`.
type restoring struct {
	dir     string
	yes     bool
	servers []string
	known   recovering // --data-dir, --seen-lsn, --seen-epoch
}

func (a *app) restoreCommand() *cobra.Command {
	var r restoring
	c := &cobra.Command{
		Use:   "restore BACKUP --volume NEW",
		Short: "Make a new volume from a backup",
		Long: `Make NEW, a directory that does not exist yet, a volume with the state of a backup that
holdfast backup took. Run it as the user that the servers run as. docs/operate.md explains the
steps around it.

The new volume is one of a new cluster. All its tokens, LSNs and epochs are above those of the backup, of the data
directories that you name, and of --seen-lsn. Old tokens are dead; a lock that was
held stays held for one lease. What was acknowledged after the backup began is lost.
With --secrets DIR, its secrets are in DIR on this host, as with holdfast init.

Without --yes it checks the backup, prints its plan, changes nothing and ends with exit code 6.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.restore(c, args[0], &r) },
	}
	f := c.Flags()
	f.StringVar(&r.dir, "volume", "", "the directory of the new volume, which does not exist yet")
	f.BoolVar(&r.yes, "yes", false, "do it")
	f.StringArrayVar(&r.servers, "server", nil, "a server of the new volume, as in init; once for each; without it, those of the backup")
	f.Uint64Var(&r.known.seenLSN, "seen-lsn", 0, "the highest LSN or token known from clients, logs or status")
	f.Uint64Var(&r.known.seenEpoch, "seen-epoch", 0, "the highest epoch known from clients, logs or status")
	f.StringArrayVar(&r.known.dataDirs, "data-dir", nil, "a data directory of a server of the old volume; once for each")
	required(c, "volume")
	return c
}

func (a *app) restore(c *cobra.Command, from string, r *restoring) (err error) {
	opt := backup.RestoreOptions{Random: rand.Reader, SeenLSN: cluster.LSN(r.known.seenLSN), SeenEpoch: cluster.Epoch(r.known.seenEpoch)}
	if len(r.servers) > 0 {
		if opt.Servers, err = parseServers(r.servers); err != nil {
			return err
		}
	}
	if err := a.readDataDirs(&r.known); err != nil {
		return err
	}
	if opt.Known = r.known.opt.Copies; len(opt.Known) == 0 && !c.Flags().Changed("seen-lsn") {
		return usagef("restore has to know how far the volume was, or it could give out tokens a second time: name the servers' data directories with --data-dir, or the highest LSN or token that you find in logs, in holdfast status of before, or at clients, with --seen-lsn; --seen-lsn 0 is enough only if this backup is restored for the first time")
	}
	b, err := osfs.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		return err
	}
	if err := free(dir); err != nil {
		return err
	}
	if a.secrets != "" {
		if a.secrets, err = filepath.Abs(a.secrets); err != nil {
			return err
		}
	}
	var plan *backup.Plan
	if r.yes {
		plan, err = build(c.Context(), b, dir, a.secrets, opt)
	} else {
		a.code = exitPlanned
		plan, err = backup.NewPlan(c.Context(), b, opt)
	}
	if err != nil {
		return fmt.Errorf("restore %s to %s: %w", from, dir, err)
	}
	return a.print(plan, func(w io.Writer) { restoreText(w, dir, plan) })
}

// free returns an error unless a volume can be made at dir.
func free(dir string) error {
	if err := notInside(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: move it away, or name another directory: a volume is never restored over another one", dir)
	}
	return nil
}

// build makes the volume beside dir and moves it there when it is complete: a server that began on an unfinished one would
// give out old tokens again.
//
// Its secrets are in a directory of this host, secretsDir, unless that is "". What was made there stays after an error.
func build(ctx context.Context, from *osfs.FS, dir, secretsDir string, opt backup.RestoreOptions) (_ *backup.Plan, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".restore-")
	if err != nil {
		return nil, fmt.Errorf("%w: is the share mounted?", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	to, err := osfs.Open(tmp)
	if err != nil {
		return nil, err
	}
	opt.Begin = func(c volume.Cluster) error {
		if secretsDir == "" {
			return nil
		}
		return secrets.Begin(to, c.ID, secretsDir)
	}
	opt.Equip = func(m *backup.Manifest, c volume.Cluster) error { return equipRestored(to, m, c) }
	plan, err := backup.Restore(ctx, from, to, opt)
	if err := errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, fs.FileMode(plan.Backup.Mode)|0o700); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, fmt.Errorf("%w: if it is a mount point, name a directory below it", err)
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	return plan, errors.Join(parent.Sync(), parent.Close())
}

// equipRestored gives a restored volume what the old one required of clients, and keys unless the backup had them.
func equipRestored(to *osfs.FS, m *backup.Manifest, c volume.Cluster) error {
	if m.ClientTLS {
		if err := volume.RequireClientTLS(to); err != nil {
			return err
		}
	}
	if m.Logins {
		if err := to.MkdirLogin(volume.LoginDir); err != nil {
			return err
		}
	}
	return offerTLS(to, c.ID)
}

func restoreText(w io.Writer, dir string, p *backup.Plan) {
	m := p.Backup
	fmt.Fprintf(w, "from      a backup of cluster %s, taken %s, at LSN %d of epoch %d\n", m.Cluster, timeText(m.Taken, time.Now()), m.LSN, m.Epoch)
	fmt.Fprintf(w, "makes     %s, with servers %v; its log begins after LSN %d\n", dir, p.Servers.IDs(), p.LSN)
	fmt.Fprintf(w, "keeps     %s held for one lease, without an owner: old tokens are dead; %s\n", counted(uint64(p.Held), "lock"), counted(uint64(p.Files), "protected file"))
	for _, f := range p.Quarantined {
		fmt.Fprintf(w, "file      %s: %s: %s\n", f.Path, f.Fate, f.Reason)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(w, "note      %s\n", note)
	}
	if p.Done {
		fmt.Fprintf(w, "done. It is cluster %s, and fsck finds no error. Now start the servers\n", p.Cluster)
		return
	}
	fmt.Fprintln(w, "nothing was changed. To do it, add --yes")
}
