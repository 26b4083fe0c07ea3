// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// SeverityError: something that was promised is not there.
	SeverityError Severity = "error"
	// SeverityWarning: nothing is lost, but somebody should look.
	SeverityWarning Severity = "warning"
	// SeverityInfo: good to know.
	SeverityInfo Severity = "info"
)

// Finding is one thing that Fsck noticed.
type Finding struct {
	Severity Severity `json:"severity"`
	Path     string   `json:"path"`
	Problem  string   `json:"problem"`
	Advice   string   `json:"advice"`
}

// Report is the result of Fsck.
type Report struct {
	Cluster  ClusterID     `json:"cluster_id"`
	Epochs   int           `json:"epochs"`
	Epoch    cluster.Epoch `json:"epoch"` // the newest that started
	Base     cluster.LSN   `json:"base"`
	LSN      cluster.LSN   `json:"lsn"`
	Records  int           `json:"records"` // read behind the base
	Locks    int           `json:"locks"`
	Clients  int           `json:"clients"`
	Files    int           `json:"files"`
	Bytes    int64         `json:"bytes"` // of protected files compared
	Findings []Finding     `json:"findings"`
	Errors   int           `json:"errors"`
}

func (r *Report) add(s Severity, path, advice, format string, args ...any) {
	if s == SeverityError {
		r.Errors++
	}
	r.Findings = append(r.Findings, Finding{Severity: s, Path: path, Problem: fmt.Sprintf(format, args...), Advice: advice})
}

// Fsck compares CLUSTER, epochs, fences, log, checkpoints and protected files
// with each other. It only reads. Servers should not run meanwhile: what they
// write while it looks may be reported as a contradiction.
func Fsck(ctx context.Context, fsys FS) (*Report, error) {
	r := &Report{Findings: []Finding{}}
	c, err := ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	r.Cluster = c.ID
	k := &fsck{fs: fsys, v: &Volume{fs: fsys, cluster: c}, report: r}
	src, ok, err := k.epochs(ctx)
	if err != nil || !ok {
		return r, err
	}
	if err := k.log(src); err != nil || k.adoption == nil {
		return r, err
	}
	k.protected()
	k.unbound(filesDir)
	k.views()
	return r, nil
}

type fsck struct {
	fs       FS
	v        *Volume
	report   *Report
	adoption *Adoption
}

const (
	adviceRestore = "keep all files as they are and restore the volume from a backup with holdfast's servers stopped"
	adviceRotate  = "move the file away and rotate it; what is missing stands in the log as long as its segments are there"
)

// epochs looks at every epoch's directory and finds the newest that started.
func (k *fsck) epochs(ctx context.Context) (src Source, ok bool, err error) {
	taken, err := listEpochs(k.fs)
	if err != nil {
		return src, false, err
	}
	k.report.Epochs = len(taken)
	if len(taken) == 0 {
		k.report.add(SeverityError, epochsDir, adviceRestore, "there is no epoch at all")
		return src, false, nil
	}
	for i := len(taken) - 1; i >= 0; i-- {
		e := taken[i]
		if i > 0 && taken[i-1]+1 != e && !ok {
			k.report.add(SeverityError, epochDir(e), adviceRestore, "epoch %d follows %d: a number is missing", e, taken[i-1])
		}
		s, fenced := k.fence(ctx, e)
		if s != nil && !ok {
			src, ok = Source{Epoch: e, start: *s}, true
			k.report.Epoch = e
		} else if s != nil && !fenced {
			k.report.add(SeverityError, epochDir(e)+"/"+fenceName, adviceRestore, "epoch %d started and is not fenced, though epoch %d started later", e, src.Epoch)
		}
	}
	if !ok {
		k.report.add(SeverityError, epochsDir, adviceRestore, "no epoch has a START")
	}
	return src, ok, nil
}

func (k *fsck) fence(ctx context.Context, e cluster.Epoch) (s *start, fenced bool) {
	name := epochDir(e) + "/" + fenceName
	f, _, err := openFence(k.fs, e, FlagRead)
	if err != nil {
		k.report.add(SeverityError, name, adviceRestore, "%v", err)
		return nil, false
	}
	defer f.Close() //nolint:errcheck // opened for reading
	flag := AlignedBuffer(BlockSize)
	if err := readBlock(f, flag, 0); err != nil {
		k.report.add(SeverityError, name, adviceRestore, "read the fence flag: %v", err)
	}
	if s, err = readStart(ctx, f, e); err != nil {
		k.report.add(SeverityError, name, adviceRestore, "%v", err)
	}
	b, err := readFile(k.fs, epochDir(e)+"/"+claimName, FlagRead)
	var claim claimFile
	if err == nil {
		err = json.Unmarshal(b, &claim)
	}
	if err != nil {
		k.report.add(SeverityWarning, epochDir(e)+"/"+claimName, "it only shortens takeovers; leave it", "%v", err)
	}
	return s, !allZero(flag)
}

// log scans the newest started reign as a claimant would.
func (k *fsck) log(src Source) error {
	a, err := k.v.scanOnce(src, nil)
	if err != nil {
		k.report.add(SeverityError, epochDir(src.Epoch), adviceRestore, "%v", err)
		return nil
	}
	k.adoption = a
	r := k.report
	r.Base, r.LSN, r.Records = a.Base, a.End.LSN, a.Records
	r.Locks, r.Clients = a.Table.LockCount(), a.Table.ClientCount()
	if err := a.Table.Check(); err != nil {
		r.add(SeverityError, epochDir(src.Epoch), adviceRestore, "the table breaks an invariant: %v", err)
	}
	all, err := listCheckpoints(k.fs, epochDir(src.Epoch))
	if err != nil {
		return err
	}
	for _, lsn := range all[:min(2, len(all))] {
		b, err := k.v.readBase(epochDir(src.Epoch), lsn)
		if err == nil {
			_, err = b.restore()
		}
		if err != nil {
			r.add(SeverityWarning, epochDir(src.Epoch)+"/"+checkpointDir(lsn), "the log reaches further back; the next checkpoint mends it", "%v", err)
		}
	}
	return nil
}

// protected compares each bound file with the table and with every append that
// the log still has.
func (k *fsck) protected() {
	redo := map[cluster.FileName][]locktable.Record{}
	for _, rec := range k.adoption.Redo {
		redo[rec.File] = append(redo[rec.File], rec)
	}
	for name, f := range k.adoption.Table.Files() {
		k.report.Files++
		if f.Quarantined {
			k.report.add(SeverityWarning, ProtectedPath(name), adviceRotate, "quarantined: %s", f.Reason)
			continue
		}
		if err := k.file(name, f, redo[name]); err != nil {
			k.report.add(SeverityError, ProtectedPath(name), adviceRotate, "%v", err)
		}
	}
}

func (k *fsck) file(name cluster.FileName, f locktable.FileState, redo []locktable.Record) (err error) {
	p := ProtectedPath(name)
	info, err := k.fs.Lstat(p)
	if err != nil {
		return err
	}
	switch {
	case info.Type != TypeFile:
		return errors.New("not a regular file")
	case info.Inode != f.Inode:
		return fmt.Errorf("inode %d, the log says %d: the file was replaced", info.Inode, f.Inode)
	case info.Nlink != 1:
		return fmt.Errorf("%d hard links", info.Nlink)
	}
	if info.Mode&0o022 != 0 {
		k.report.add(SeverityWarning, p, "chmod go-w: who can write to it can break it", "others may write to it (mode %o)", info.Mode)
	}
	floor := f.End
	if len(redo) > 0 {
		floor = redo[0].Offset
	}
	if info.Size < floor || info.Size > f.End {
		return fmt.Errorf("%d bytes, the log says %d to %d", info.Size, floor, f.End)
	}
	if info.Size < f.End {
		k.report.add(SeverityInfo, p, "the next takeover writes them from the log", "%d committed bytes are not in the file yet", f.End-info.Size)
	}
	file, err := k.fs.Open(p, FlagRead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for i := range redo {
		if err := k.compare(file, &redo[i], info.Size); err != nil {
			return err
		}
	}
	if len(redo) == 0 && f.LastLength > 0 {
		return k.sum(file, f.LastOffset, f.LastLength, f.LastCRC)
	}
	return nil
}

// compare finds foreign bytes: neither the log's nor zeros that a takeover will fill.
func (k *fsck) compare(file File, rec *locktable.Record, size int64) error {
	n := min(int64(len(rec.Data)), size-rec.Offset)
	if n <= 0 {
		return nil
	}
	there := make([]byte, n)
	if _, err := file.ReadAt(there, rec.Offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	k.report.Bytes += n
	for i, b := range there {
		if b != rec.Data[i] && b != 0 {
			return fmt.Errorf("foreign bytes at offset %d, where LSN %d was appended", rec.Offset+int64(i), rec.LSN)
		}
	}
	return nil
}

func (k *fsck) sum(file File, off, n int64, want uint32) error {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got, err := io.Copy(h, io.NewSectionReader(file, off, n))
	k.report.Bytes += got
	if err == nil && (got != n || h.Sum32() != want) {
		err = fmt.Errorf("the last append, [%d:+%d], reads with CRC-32C %08x, the log says %08x", off, n, h.Sum32(), want)
	}
	return err
}

// unbound names what lies among the protected files without being one.
func (k *fsck) unbound(dir string) {
	entries, err := k.fs.ReadDir(dir)
	if err != nil {
		k.report.add(SeverityError, dir, "", "%v", err)
		return
	}
	for _, x := range entries {
		p := dir + "/" + x.Name
		if x.Type == TypeDir {
			k.unbound(p)
			continue
		}
		name := cluster.FileName(strings.TrimPrefix(p, filesDir+"/"))
		if _, ok := k.adoption.Table.File(name); !ok {
			k.report.add(SeverityInfo, p, "bind it with adopt_existing to protect it", "not bound to a lock")
		}
	}
}

// views are derived: a wrong one only misleads people.
func (k *fsck) views() {
	for _, name := range []string{stateName, requestsName} {
		b, err := readFile(k.fs, name, FlagRead)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a young volume
		}
		if err == nil {
			_, err = verifySum(b)
		}
		if err != nil {
			k.report.add(SeverityWarning, name, "the primary writes it again within seconds", "%v", err)
		}
	}
}
