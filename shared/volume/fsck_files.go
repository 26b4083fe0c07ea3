// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// walkFiles notes the size of everything under files/.
func (k *fsck) walkFiles(dir string) {
	entries, err := k.fs.ReadDir(dir)
	if err != nil {
		k.error("directory-missing", dir, "type: mkdir DIR/"+dir, "%v", err)
		return
	}
	for _, x := range entries {
		p := dir + "/" + x.Name
		if x.Type == TypeDir {
			k.walkFiles(p)
			continue
		}
		if info, err := k.fs.Lstat(p); err == nil {
			k.sizes[cluster.FileName(strings.TrimPrefix(p, filesDir+"/"))] = info.Size
		}
	}
}

// protected compares each bound file with the table, the receipts and with every append
// that the log still has, and names what is bound to nothing.
func (k *fsck) protected() {
	table := k.adoption.Table
	checks := newFileChecks(k.fs, table, k.deep.Redo, k.adoption.Redo)
	for name, f := range table.Files() {
		k.report.Files++
		p := ProtectedPath(name)
		if f.Quarantined {
			k.warn("file-quarantined", p, adviceRotate, "quarantined: %s", f.Reason)
			continue
		}
		k.opt.Progress(p)
		c := checks[name]
		c.sizeBefore = k.sizes[name]
		problem, err := c.run(k.ctx)
		k.report.Bytes += c.compared
		switch {
		case err != nil:
			k.error("file-unreadable", p, "see that it can be read", "%v", err)
		case problem != nil:
			k.add(Finding{Severity: SeverityError, Code: problem.code, Path: p, Offset: problem.offset, LSN: problem.lsn, Problem: problem.text, Advice: adviceRotate})
		case c.info.Size < f.End && !k.report.Running:
			k.info("file-behind", p, "the next takeover writes them from the log", "%d committed bytes are not in the file yet", f.End-c.info.Size)
		case c.info.Size < f.End:
			k.add(Finding{
				Severity: SeverityWarning, Code: fileLags, Path: p, Offset: c.info.Size, LSN: f.LastLSN,
				Problem: fmt.Sprintf("%d committed bytes are not in the file, and it does not grow: it was cut, or its primary cannot write it", f.End-c.info.Size),
				Advice:  "see that it can be written, and hand the reign over (holdfast handover): the next primary writes them from the log",
			})
		}
	}
	if err := k.indexed(checks); err != nil {
		k.warn("index-unreadable", indexDir, "see that it can be read, or remove it: what it tells is lost then", "%v", err)
	}
	for name := range k.sizes {
		if _, ok := table.File(name); !ok {
			k.info("file-unbound", ProtectedPath(name), "to protect it, bind it with adopt_existing", "not bound to a lock")
		}
	}
}

// viewState is a view as it was read.
type viewState struct {
	name string
	head head
	err  error
}

func (k *fsck) readViews() {
	for _, name := range []string{stateName, requestsName} {
		b, err := readFile(k.fs, name, FlagRead)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a young volume
		}
		v := viewState{name: name, err: err}
		if err == nil {
			_, v.err = verifySum(b)
		}
		if v.err == nil {
			v.head, v.err = readHead(bufio.NewReader(bytes.NewReader(b)))
		}
		k.views = append(k.views, v)
	}
}

// checkViews looks at what is derived: a wrong one only misleads people, but
// one that is ahead of the log says that the log has lost something.
func (k *fsck) checkViews() {
	const advice = "the primary writes it again within seconds"
	for _, v := range k.views {
		switch {
		case v.err != nil:
			k.warn("view-damaged", v.name, advice, "%v", v.err)
		case v.head.Cluster != k.v.cluster.ID:
			k.warn("view-foreign", v.name, advice, "it is of cluster %s", v.head.Cluster)
		case k.epochs[len(k.epochs)-1].unknown(): // it may be that one's
		case v.head.LSN > k.adoption.End.LSN || v.head.Epoch > k.epochs[len(k.epochs)-1].epoch:
			k.add(Finding{
				Severity: SeverityError, Code: "view-ahead", Path: v.name, LSN: v.head.LSN, Advice: adviceRecover,
				Problem: fmt.Sprintf("it shows LSN %d of epoch %d, the log ends at LSN %d: an older state was restored", v.head.LSN, v.head.Epoch, k.adoption.End.LSN),
			})
		}
	}
}

// checkHistory compares the end of the history with that of the log.
func (k *fsck) checkHistory() {
	for _, w := range k.tell {
		if w.odd > 0 {
			k.warn("history-damaged", w.path, adviceLeave, "%d lines near its end are damaged, and count for nothing", w.odd)
		}
		if w.lsn > k.adoption.End.LSN && !k.epochs[len(k.epochs)-1].unknown() { // else it may be that one's
			k.add(Finding{
				Severity: SeverityError, Code: "history-ahead", Path: w.path, LSN: w.lsn, Advice: adviceRecover,
				Problem: fmt.Sprintf("it tells of LSN %d, the log ends at LSN %d: an older state was restored", w.lsn, k.adoption.End.LSN),
			})
		}
	}
}

// names looks for what does not belong on a volume, and who may write to it.
func (k *fsck) names() {
	open := map[string]int{} // names that others may write to, by their first directory
	known := map[string]func(string, Entry) string{
		".": rootName, epochsDir: epochName, serversDir: k.serverName, historyDir: anyName, filesDir: fileName,
	}
	for _, dir := range []string{".", epochsDir, serversDir, historyDir, filesDir} {
		k.nameTree(dir, known[dir], open)
	}
	for _, e := range k.epochs {
		k.nameTree(epochDir(e.epoch), inEpochName, open)
	}
	for top, n := range open {
		k.warn("writable", top, "type: chmod -R go-w DIR/"+top+"   (who can write to it can break it)", "%d names may be written by others than their owner", n)
	}
}

func (k *fsck) nameTree(dir string, judge func(string, Entry) string, open map[string]int) {
	entries, err := k.fs.ReadDir(dir)
	if err != nil {
		if dir != filesDir && !strings.HasPrefix(dir, epochsDir) { // those were missed before
			k.error("directory-missing", dir, "type: mkdir DIR/"+dir, "%v", err)
		}
		return
	}
	for _, x := range entries {
		p := path.Join(dir, x.Name)
		info, err := k.fs.Lstat(p)
		if err != nil {
			continue // it went meanwhile
		}
		if info.Mode&0o022 != 0 && info.Type != TypeOther {
			top, _, _ := strings.Cut(p, "/")
			open[top]++
		}
		switch what := judge(dir, x); {
		case x.Type == TypeOther:
			k.warn("special-file", p, "find out what it is and move it away", "neither a file nor a directory")
		case what == unknownName:
			k.info("unknown-name", p, "nothing reads it; move it away if it is not yours", "not a name of Holdfast's")
		case what != "":
			k.info("leftover", p, what, "left by a process that ended in the middle of something")
		}
		if x.Type == TypeDir && dir == filesDir {
			k.nameTree(p, judge, open)
		}
	}
}

// A judge of names returns "" for what belongs there, unknownName, or the advice for a leftover.
const unknownName = "unknown"

func anyName(string, Entry) string { return "" }

// fileName: what is bound and what not is told elsewhere.
func fileName(string, Entry) string { return "" }

func rootName(_ string, x Entry) string {
	switch x.Name {
	case clusterName, epochsDir, filesDir, historyDir, indexDir, serversDir, stateName, requestsName, "lost+found":
		return ""
	}
	for _, view := range []string{stateName, requestsName} {
		if strings.HasPrefix(x.Name, "."+view) {
			return "a temporary of a view; the primary removes it"
		}
	}
	return unknownName
}

func epochName(_ string, x Entry) string {
	if _, ok := parseEpoch(x.Name); ok && x.Type == TypeDir {
		return ""
	}
	return unknownName
}

func inEpochName(_ string, x Entry) string {
	_, segment := wal.ParseSegmentName(x.Name)
	_, checkpoint := parseCheckpoint(x.Name)
	switch {
	case x.Name == fenceName, x.Name == claimName, x.Name == fencedName, x.Name == wal.NextName, segment, checkpoint:
		return ""
	case strings.HasPrefix(x.Name, checkpointPrefix) && strings.HasSuffix(x.Name, tmpSuffix):
		return "a checkpoint that was not finished; a later primary removes it"
	}
	return unknownName
}

// serverName judges servers/: guards, reserves, probes, canaries, signs of life and claims of members.
func (k *fsck) serverName(_ string, x Entry) string {
	switch {
	case strings.HasPrefix(x.Name, initPrefix), strings.HasPrefix(x.Name, recoverPrefix):
		return "an init or a recovery that did not finish; type: rm -r DIR/" + serversDir + "/" + x.Name
	}
	name := strings.TrimPrefix(x.Name, ".") // renameio's temporary of the probe
	id, rest, ok := strings.Cut(name, ".")
	n, err := strconv.ParseUint(id, 10, 32)
	if !ok || err != nil {
		return unknownName
	}
	if _, member := k.v.cluster.Servers.Find(cluster.ServerID(n)); !member {
		return unknownName
	}
	switch {
	case name != x.Name, strings.HasSuffix(rest, trashSuffix):
		return "its server removes it when it starts again"
	case strings.HasSuffix(rest, claimSuffix):
		if !k.report.Running {
			return "a prepared claim; its server removes it when it starts again"
		}
		return ""
	case rest == "lock", rest == "reserve", rest == "probe", rest == canarySuffix, rest == processSuffix:
		return ""
	}
	return unknownName
}
