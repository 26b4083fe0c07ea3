// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/wal"
)

// recovering holds the flags of one `holdfast recover`.
type recovering struct {
	dir       string
	yes       bool
	dataDirs  []string
	seenLSN   uint64
	seenEpoch uint64
	opt       recovery.Options
}

func (a *app) recoverCommand() *cobra.Command {
	var r recovering
	c := &cobra.Command{
		Use:   "recover --volume DIR",
		Short: "Recover a volume that was restored, lost, or damaged",
		Long: `Recover a volume that no server can take over, or that was restored from
a backup. Stop all servers first, on all hosts, and run it as the user that they
run as. docs/recovery.md explains when to use which flags.

It takes the newest state that can be proven, from the volume's own logs and
from the data directories of servers that you name, and makes a new epoch
of it. Nothing is deleted or overwritten. LSNs, tokens and epochs continue above
all that clients and servers have seen.

Without --yes it prints its plan, changes nothing and ends with exit code 6.
If acknowledged operations may be lost it needs --accept-loss as well; then
old tokens are dead, and old requests that are not remembered are refused.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.recover(c, &r) },
	}
	f := c.Flags()
	f.StringVar(&r.dir, "volume", "", "the directory")
	f.BoolVar(&r.yes, "yes", false, "do it")
	f.BoolVar(&r.opt.AcceptLoss, "accept-loss", false, "agree that acknowledged operations may be lost")
	f.BoolVar(&r.opt.Restored, "restored", false, "the volume was restored from a backup")
	f.Uint64Var(&r.seenLSN, "seen-lsn", 0, "the highest LSN or token known from clients, logs or status")
	f.Uint64Var(&r.seenEpoch, "seen-epoch", 0, "the highest epoch known from clients, logs or status")
	f.StringArrayVar(&r.dataDirs, "data-dir", nil, "a data directory of a server (its --data-dir), or a copy of one; once for each")
	required(c, "volume")
	return c
}

func (a *app) recover(c *cobra.Command, r *recovering) (err error) {
	r.opt.Random = rand.Reader
	r.opt.SeenLSN, r.opt.SeenEpoch = cluster.LSN(r.seenLSN), cluster.Epoch(r.seenEpoch)
	if err := a.readDataDirs(r); err != nil {
		return err
	}
	if r.opt.Restored && len(r.opt.Copies) == 0 && !c.Flags().Changed("seen-lsn") {
		return usagef("--restored: recover has to know how far the volume was, or it could give out tokens a second time: name the servers' data directories with --data-dir, or the highest LSN or token that you find in logs, in holdfast status of before, or at clients, with --seen-lsn; --seen-lsn 0 is enough only if this backup is restored for the first time")
	}
	if r.yes {
		if err := ownVolume(r.dir); err != nil {
			return err
		}
	}
	f, err := osfs.Open(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	act := recovery.NewPlan
	if r.yes {
		act = recovery.Run
	}
	plan, err := act(c.Context(), f, r.opt)
	if errors.Is(err, recovery.ErrLossNotAccepted) {
		a.code = exitPlanned
		fmt.Fprintf(a.Stderr, "holdfast: %v\n", err)
		return a.print(plan, func(w io.Writer) { planText(w, r.dir, plan) })
	}
	if err != nil {
		return fmt.Errorf("recover %s: %w", r.dir, err)
	}
	if plan.Needed && !plan.Done {
		a.code = exitPlanned
	}
	return a.print(plan, func(w io.Writer) { planText(w, r.dir, plan) })
}

// readDataDirs reads the data directories of --data-dir: each has a copy of the table, or only
// how far the volume was.
func (a *app) readDataDirs(r *recovering) error {
	for _, dir := range r.dataDirs {
		k, err := replica.ReadKnown(dir)
		if err != nil {
			return err
		}
		if k != (replica.Known{}) {
			told := checkpoint.Snapshot{Cluster: k.Cluster, Epoch: k.Epoch, At: wal.Position{LSN: k.LSN}}
			r.opt.Copies = append(r.opt.Copies, recovery.Copy{Name: dir, Snapshot: told})
		}
		s, err := replica.ReadKept(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(a.Stderr, "recover: %s holds no copy of the table: its server was primary, or never ran long enough\n", dir)
		case volume.TooOld(err) != nil:
			return volume.TooOld(err)
		case err != nil:
			return fmt.Errorf("%w: leave out this directory", err)
		default:
			r.opt.Copies = append(r.opt.Copies, recovery.Copy{Name: dir, Snapshot: s})
		}
	}
	if len(r.dataDirs) > 0 && len(r.opt.Copies) == 0 {
		return errors.New("none of these data directories knows how far the volume was: name those that were given to holdfast server --data-dir")
	}
	return nil
}

// ownVolume returns an error unless the user owns CLUSTER: servers could not write to files made
// by another user, root included.
func ownVolume(dir string) error {
	info, err := os.Stat(filepath.Join(dir, "CLUSTER"))
	if errors.Is(err, fs.ErrNotExist) {
		return volume.ErrNoCluster
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d and you are %d: servers could not write to what you make; type the command as that user (sudo -u '#%d' holdfast recover ...)", filepath.Join(dir, "CLUSTER"), st.Uid, os.Geteuid(), st.Uid)
	}
	return nil
}

func planText(w io.Writer, dir string, p *recovery.Plan) {
	if !p.Needed {
		fmt.Fprintf(w, "%s: nothing to recover: a server that starts takes over at LSN %d\n", dir, p.End)
		fmt.Fprintln(w, "if it was restored from a backup, use --restored")
		return
	}
	for _, reason := range p.Reasons {
		fmt.Fprintf(w, "because   %s\n", reason)
	}
	fmt.Fprintf(w, "from      %s, up to LSN %d\n", p.Source, p.End)
	if p.Complete {
		fmt.Fprintln(w, "lost      nothing that was acknowledged")
	}
	for _, lost := range p.Lost {
		fmt.Fprintf(w, "lost?     %s\n", lost)
	}
	fmt.Fprintf(w, "makes     epoch %d, which follows %d; its log begins after LSN %d\n", p.Epoch, p.Follows, p.LSN)
	if p.Complete {
		fmt.Fprintf(w, "keeps     %s held and their tokens, all queues, %s\n", counted(uint64(p.Held), "lock"), counted(uint64(p.Clients), "client"))
	} else {
		fmt.Fprintf(w, "keeps     %s held for one lease, without an owner: old tokens are dead\n", counted(uint64(p.Held), "lock"))
		fmt.Fprintf(w, "drops     %s; old clients must start again\n", counted(uint64(p.Dropped), "waiter"))
	}
	for _, f := range p.Files {
		fmt.Fprintf(w, "file      %s: %s", f.Path, f.Fate)
		if f.Reason != "" {
			fmt.Fprintf(w, ": %s", f.Reason)
		}
		fmt.Fprintln(w)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(w, "note      %s\n", note)
	}
	switch {
	case p.Done:
		fmt.Fprintf(w, "done. Now: holdfast fsck --volume %s, then start the servers\n", dir)
	case p.Complete:
		fmt.Fprintln(w, "nothing was changed. To do it, add --yes")
	default:
		fmt.Fprintln(w, "nothing was changed. To do it, add --yes --accept-loss")
	}
}
