// SPDX-License-Identifier: Apache-2.0

// Package fsck compares all parts of a volume with each other, and reports contradictions with advice on what
// to do. It changes nothing, and servers may run meanwhile.
package fsck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Severity is how serious a finding is.
type Severity string

// The severities.
const (
	// SeverityError: something is lost, or the next takeover is refused.
	SeverityError Severity = "error"
	// SeverityWarning: nothing is lost, but an operator should examine it.
	SeverityWarning Severity = "warning"
	// SeverityInfo: nothing needs to be done.
	SeverityInfo Severity = "info"
)

// Finding is one thing that Run noticed.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code identifies the kind of finding for programs, like "fence-missing". Codes do not change between versions.
	Code string `json:"code"`
	// Path is relative to the volume.
	Path string `json:"path"`
	// Offset in the file, in bytes, and LSN; 0 if there is none.
	Offset int64       `json:"offset"`
	LSN    cluster.LSN `json:"lsn"`
	// Pending counts the bytes that are in the log and not in the file; a takeover writes them.
	Pending int64  `json:"pending_bytes"`
	Problem string `json:"problem"`
	// Advice tells people what to do. It has commands as they are typed, with DIR for
	// the volume unless Options names it.
	Advice string `json:"advice"`
}

// Report is the result of Run.
type Report struct {
	Cluster cluster.ID `json:"cluster_id"`
	// Running is true if a running process holds a claim on the volume.
	Running bool          `json:"running"`
	Epochs  int           `json:"epochs"`
	Epoch   cluster.Epoch `json:"epoch"` // the newest that started
	Base    cluster.LSN   `json:"base"`
	LSN     cluster.LSN   `json:"lsn"`
	Records int           `json:"records"` // read after the base
	Locks   int           `json:"locks"`
	Clients int           `json:"clients"`
	Files   int           `json:"files"`
	Bytes   int64         `json:"bytes"` // of protected files compared
	// PendingFiles counts the files that lack bytes of appends in the log, PendingBytes these bytes.
	PendingFiles int       `json:"pending_files"`
	PendingBytes int64     `json:"pending_bytes"`
	Findings     []Finding `json:"findings"`
	Errors       int       `json:"errors"`
}

// Options configure Run. The zero value is ready to use.
type Options struct {
	// Dir is the path of the volume in advice; "" leaves DIR there.
	Dir string
	// Progress is called with what is read next, as a path or a few words for people. It may be nil.
	Progress func(what string)
}

// passes is how often Run reads a volume before it reports a contradiction.
const passes = 3

// Run compares CLUSTER, epochs, fences, logs, checkpoints, receipts, protected
// files and views with each other. It only reads; it locks claims for a moment. It returns an error that wraps
// volume.ErrNoCluster if there is no volume, or the cause of ctx. If this binary is too old for the volume, this is the only finding.
//
// Servers may run meanwhile: Run reports a contradiction only if it finds it in
// every pass over the volume.
//
// It does not compare what nothing depends on: the claim that set a fence, the address and time
// in claim.json. A bit that flips in the last frame of the log, before anything
// is written after it, reads as a torn tail (an info).
func Run(ctx context.Context, fsys vfs.FS, opt Options) (*Report, error) {
	if opt.Dir == "" {
		opt.Dir = "DIR"
	}
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	var again map[string]bool // contradictions found in every pass so far
	for pass := 1; ; pass++ {
		k := &fsck{ctx: ctx, fs: fsys, opt: opt, report: &Report{Findings: []Finding{}}}
		if err := k.all(); err != nil {
			return nil, err
		}
		found := k.report.contradictions()
		gone := k.report.keep(again)
		if again = found; gone > 0 {
			k.info("changed-meanwhile", ".", "", "%d contradictions were not there when read again: somebody writes to the volume", gone)
		}
		doubtful := k.report.Errors > 0 || k.report.Running && len(found) > 0
		if !doubtful || pass == passes {
			k.report.sumPending()
			return k.report, nil
		}
		opt.Progress("something does not fit: reading everything again")
		if err := vfs.Pause(ctx, vfs.RetryPause); err != nil {
			return nil, err
		}
	}
}

// fsck is one pass.
type fsck struct {
	ctx    context.Context
	fs     vfs.FS
	v      *volume.Volume
	opt    Options
	report *Report

	epochs    []epochdir.State
	newest    *epochdir.State // the newest that started; nil if none did
	serving   bool            // a running process holds newest's claim
	sizes     map[cluster.FileName]int64
	views     []viewState
	members   cluster.Membership // as MEMBERS shows it
	listErr   error              // why it does not
	witnesses []volume.Witness
	tooOld    error            // why this binary is too old for the volume; nil if nothing shows that it is
	adoption  *volume.Adoption // what the next claimant would adopt
	deep      *deepRead        // the same, from the oldest checkpoint on; nil if it cannot be read
}

// deepRead is what was read of the whole log, from its oldest segment on.
type deepRead struct {
	redo     []locktable.Record // its appends
	segments []wal.SegmentInfo
}

func (k *fsck) add(f Finding) {
	f.Advice = strings.ReplaceAll(f.Advice, "DIR", k.opt.Dir)
	if f.Severity == SeverityError {
		k.report.Errors++
	}
	k.report.Findings = append(k.report.Findings, f)
}

func (k *fsck) error(code, path, advice, format string, args ...any) {
	k.add(Finding{Severity: SeverityError, Code: code, Path: path, Advice: advice, Problem: fmt.Sprintf(format, args...)})
}

func (k *fsck) warn(code, path, advice, format string, args ...any) {
	k.add(Finding{Severity: SeverityWarning, Code: code, Path: path, Advice: advice, Problem: fmt.Sprintf(format, args...)})
}

func (k *fsck) info(code, path, advice, format string, args ...any) {
	k.add(Finding{Severity: SeverityInfo, Code: code, Path: path, Advice: advice, Problem: fmt.Sprintf(format, args...)})
}

// The codes of a file that lacks committed bytes: without a running primary, and with one.
const (
	fileBehind = "file-behind"
	fileLags   = "file-lags"
)

// key identifies a finding in several passes. A file that lags is another finding if other bytes are missing.
func (f Finding) key() string {
	if f.Code == fileLags {
		return fmt.Sprint(f.Code, " ", f.Path, " ", f.Offset)
	}
	return f.Code + " " + f.Path
}

func (r *Report) contradictions() map[string]bool {
	all := map[string]bool{}
	for _, f := range r.Findings {
		if f.Severity != SeverityInfo {
			all[f.key()] = true
		}
	}
	return all
}

// keep drops the contradictions that are not in again, those of the earlier passes, and returns how many. A nil again
// means that there was no earlier pass.
func (r *Report) keep(again map[string]bool) (gone int) {
	if again == nil {
		return 0
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		if f.Severity == SeverityInfo || again[f.key()] {
			return false
		}
		if gone++; f.Severity == SeverityError {
			r.Errors--
		}
		return true
	})
	return gone
}

// sumPending counts the files that lack bytes, and these bytes.
func (r *Report) sumPending() {
	for _, f := range r.Findings {
		if f.Pending > 0 {
			r.PendingFiles++
			r.PendingBytes += f.Pending
		}
	}
}

// Advice that several findings have.
const (
	adviceRecover = "stop all servers and type: holdfast recover --volume DIR   (it prints what it would do)"
	adviceRotate  = "move the file out of DIR/files and type: holdfast file rotate FILE --lock LOCK; what is missing stands in the log as long as its segments are there"
	adviceLeave   = "leave it: nothing depends on it any more"
)

// sawNewer reports whether an error shows that this binary is too old for what it read at a path, which then is no damage.
func (k *fsck) sawNewer(path string, err error) bool {
	old := volume.TooOld(err)
	if old != nil && k.tooOld == nil {
		k.tooOld = fmt.Errorf("%s: %w", path, old)
	}
	return old != nil
}

// onlyTooOld reports that this binary is too old, and nothing else: what it would say of a volume that it cannot read whole, and
// advise, may be wrong.
func (k *fsck) onlyTooOld() {
	k.report.Findings, k.report.Errors = []Finding{}, 0
	k.error("too-old", ".", "install that version on this host, then type: holdfast fsck --volume DIR", "%v", k.tooOld)
}

// errNoFurther means that a finding makes everything else unreadable.
var errNoFurther = errors.New("the volume cannot be read any further")

// all is one pass over everything.
func (k *fsck) all() error {
	if err := k.cluster(); err != nil {
		if errors.Is(err, errNoFurther) {
			return nil
		}
		return err
	}
	// Files that grow while servers run are read before the log, which must be ahead of them.
	k.opt.Progress("files")
	k.readViews()
	k.members, k.listErr = k.v.ReadMembers()
	k.witnesses = k.v.Witnesses(k.ctx, 0)
	k.sizes = map[cluster.FileName]int64{}
	k.walkFiles(layout.FilesDir)
	k.opt.Progress("epochs")
	if err := k.readEpochs(); err != nil {
		return err
	}
	if k.newest != nil {
		k.opt.Progress("the log of " + layout.EpochDir(k.newest.Epoch))
		k.readLog()
		k.adopted()
	}
	if k.tooOld != nil {
		k.onlyTooOld()
		return context.Cause(k.ctx)
	}
	if k.adoption != nil && k.deep != nil {
		k.protected()
		k.checkViews()
		k.checkMembers()
		k.checkCell()
		k.checkHistory()
	}
	k.opt.Progress("names")
	k.names()
	return context.Cause(k.ctx)
}

// cluster reads CLUSTER, or its content in epoch 0.
func (k *fsck) cluster() error {
	c, err := volume.ReadCluster(k.fs)
	begun, zeroErr := volume.ReadEpochZero(k.fs)
	restore := fmt.Sprintf("type: cp DIR/%s/%s DIR/%s", layout.EpochDir(0), layout.ClaimName, layout.ClusterName)
	if k.sawNewer(layout.ClusterName, err) || k.sawNewer(layout.EpochDir(0)+"/"+layout.ClaimName, zeroErr) {
		k.report.Cluster = c.ID
		k.onlyTooOld()
		return errNoFurther
	}
	switch {
	case errors.Is(err, volume.ErrNoCluster) && zeroErr != nil:
		return err // nothing here is a volume
	case err != nil && zeroErr != nil:
		k.error("cluster-damaged", layout.ClusterName, "copy CLUSTER from a backup of this volume; holdfast recover --volume DIR goes on from there", "%v; epoch 0 does not have it either: %v", err, zeroErr)
		return errNoFurther
	case errors.Is(err, volume.ErrNoCluster):
		k.error("cluster-missing", layout.ClusterName, restore, "it is not there: no server can start")
		c = begun
	case err != nil:
		k.error("cluster-damaged", layout.ClusterName, restore, "%v", err)
		c = begun
	case errors.Is(zeroErr, fs.ErrNotExist):
		// epoch 0 is reported with the epochs
	case zeroErr != nil:
		k.warn("claim-damaged", layout.EpochDir(0)+"/"+layout.ClaimName, adviceLeave, "%v", zeroErr)
	case begun.ID != c.ID:
		k.error("cluster-differs", layout.ClusterName, restore, "it names cluster %s, epoch 0 was made for %s", c.ID, begun.ID)
	}
	k.report.Cluster = c.ID
	k.v = volume.Offline(k.fs, c)
	return nil
}

// readEpochs surveys all epochs and finds the newest that started.
func (k *fsck) readEpochs() (err error) {
	if k.epochs, err = epochdir.Survey(k.ctx, k.fs); err != nil {
		return err
	}
	held, err := epochdir.HeldClaims(k.fs, k.epochs)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		k.report.Running = true
		k.info("servers-running", held[0], "", "servers are running: what they do meanwhile is read again before it is reported")
	}
	k.report.Epochs = len(k.epochs)
	if len(k.epochs) == 0 {
		k.error("epochs-missing", layout.EpochsDir, "restore the volume from a backup, then: holdfast recover --volume DIR --restored", "there is no epoch at all")
		return nil
	}
	for i := range slices.Backward(k.epochs) {
		e := &k.epochs[i]
		k.epoch(e)
		if e.Start != nil && k.newest == nil {
			k.newest = e
			k.report.Epoch = e.Epoch
			k.serving = slices.Contains(held, layout.EpochDir(e.Epoch)+"/"+layout.ClaimName)
		}
		if i > 0 && k.epochs[i-1].Epoch < e.Before() || i == 0 && e.Epoch != 0 {
			k.gap(e)
		}
	}
	k.goneEpochs()
	if k.newest == nil {
		k.error("start-missing", layout.EpochsDir, adviceRecover, "no epoch has a START: nobody may begin from nothing")
	}
	return nil
}

// goneEpochs reports epochs that do not exist and of which flags or witnesses show that they did.
func (k *fsck) goneEpochs() {
	last := k.epochs[len(k.epochs)-1].Epoch
	for i := range k.epochs {
		if e := &k.epochs[i]; e.By > last {
			k.error("epoch-missing", layout.EpochDir(e.By), adviceRecover, "it is not there, and has fenced epoch %d: all that it acknowledged is gone", e.Epoch)
		}
	}
	for _, problem := range volume.WitnessedTerms(k.epochs, k.witnesses) {
		k.error("term-missing", layout.EpochsDir, adviceRecover, "%s", problem)
	}
	for _, problem := range epochdir.TakenTwice(k.epochs) {
		k.error("epoch-taken-twice", layout.EpochsDir, adviceRecover, "%s", problem)
	}
}

func (k *fsck) gap(e *epochdir.State) {
	before := layout.EpochDir(e.Before())
	if k.newest == nil {
		k.error("epoch-missing", before, adviceRecover, "it is not there, and no epoch above it started: no server can take over")
		return
	}
	advice := fmt.Sprintf("type: mkdir DIR/%s && echo burned > DIR/%s/%s   (a name must never be free again)", before, before, layout.ClaimName)
	k.error("epoch-missing", before, advice, "it is not there: a claimant that slept for long might take its name")
}

// epoch checks one epoch's fence and claim. Nothing depends any more on a fenced epoch below the newest that
// started; k.newest is not nil then.
func (k *fsck) epoch(e *epochdir.State) {
	dir := layout.EpochDir(e.Epoch)
	decides := k.newest == nil
	say, advice := k.warn, adviceLeave
	if decides {
		say, advice = k.error, adviceRecover
	}
	switch {
	case errors.Is(e.FenceErr, fs.ErrNotExist):
		say("fence-missing", dir+"/"+layout.FenceName, advice, "it is not there, so nobody can tell whether epoch %d started", e.Epoch)
	case e.FenceErr != nil:
		say("fence-damaged", dir+"/"+layout.FenceName, advice, "%v", e.FenceErr)
	case e.StartErr != nil:
		code := "start-damaged"
		if errors.Is(e.StartErr, epochdir.ErrStartLost) {
			code = "start-missing"
		}
		k.add(Finding{
			Severity: map[bool]Severity{true: SeverityError, false: SeverityWarning}[decides], Code: code,
			Path: dir + "/" + layout.FenceName, Offset: layout.FenceSpacing, Problem: e.StartErr.Error(), Advice: advice,
		})
	}
	if e.FenceErr == nil {
		k.flag(e, decides)
	}
	switch {
	case e.Epoch == 0: // its claim.json has the content of CLUSTER, which was compared
	case e.ClaimErr != nil:
		k.warn("claim-damaged", dir+"/"+layout.ClaimName, adviceLeave, "%v", e.ClaimErr)
	case e.Claim.Cluster != k.v.Cluster().ID:
		k.warn("claim-foreign", dir+"/"+layout.ClaimName, "find out how it came here", "it names cluster %s", e.Claim.Cluster)
	case !e.NonceFits():
		k.warn("nonce-differs", dir+"/"+layout.ClaimName, "find out who changed it", "its nonce is not that of START")
	}
}

// flag checks a fence's flag.
func (k *fsck) flag(e *epochdir.State, decides bool) {
	name := layout.EpochDir(e.Epoch) + "/" + layout.FenceName
	switch {
	case !decides && !e.Fenced:
		k.error("unfenced", name, adviceRecover+"; its primary might speak until then", "epoch %d is not fenced, though epoch %d started later", e.Epoch, k.newest.Epoch)
	case e.Fenced && e.By < e.Epoch:
		k.warn("flag-damaged", name, adviceLeave+": a damaged flag is a set flag", "the flag does not say by whom it was set")
	}
	b, err := vfs.ReadFile(k.fs, name, vfs.FlagRead)
	if err == nil && (!vfs.AllZero(b[epochdir.SectorSize:min(len(b), layout.FenceSpacing)]) || !vfs.AllZero(b[min(len(b), layout.FenceSpacing+vfs.BlockSize):])) {
		k.warn("fence-bytes", name, adviceLeave, "there is something besides its flag and START")
	}
}
