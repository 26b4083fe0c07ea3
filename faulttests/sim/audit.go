// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// audit watches the calls of one process and holds it to I8: no word leaves it,
// and nothing that others rely on is written or removed, without a check of its
// fence that passed and began after what justifies the deed.
//
// What justifies what: a word with an LSN needs that record durable, and any
// word is justified by nothing earlier than its request; a write to a protected
// file needs its append durable, or START where the append was adopted; a
// checkpoint or a view needs its LSN durable; removing a log segment or a
// checkpoint needs the newest checkpoint durable, removing what an older term
// left needs START. And who has read a set fence, or failed to write the log,
// changes nothing any more.
type audit struct {
	mu   sync.Mutex
	book *logbook
	now  int // counts what was seen

	// guarded by mu
	claimed  string      // the directory that the last claim was renamed to
	own      string      // the directory of the term: the last START was written here
	adopted  cluster.LSN // of that START
	started  int         // when it was durable
	reads    map[int]int // of the fence under way, when they began; by call
	checked  int         // when the latest check that passed began
	frames   map[string][]cluster.LSN
	syncs    map[int]int // under way: how many of the file's frames they cover; by call
	durable  []durableTo // in order
	appends  map[place]cluster.LSN
	renamed  bool // a checkpoint, and the directory is not synced since
	based    int  // when the newest checkpoint was durable
	viewLSNs map[string]cluster.LSN
	over     time.Time // since when the process must know that its term is over
	bad      []string
}

// durableTo says since when the log is durable up to an LSN.
type durableTo struct {
	lsn cluster.LSN
	at  int
}

// place is where an append goes.
type place struct {
	file   string
	offset int64
}

func newAudit(book *logbook) *audit {
	return &audit{
		book: book, reads: map[int]int{}, syncs: map[int]int{}, frames: map[string][]cluster.LSN{},
		appends: map[place]cluster.LSN{}, viewLSNs: map[string]cluster.LSN{},
	}
}

// Bad lists the violations.
func (a *audit) Bad() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.bad)
}

// arrive notes that a request is sent, and returns when.
func (a *audit) arrive() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	return a.now
}

// leaves judges an answer, about a request that arrived then.
func (a *audit) leaves(out locktable.Outcome, arrived int, what string) {
	switch out.Status {
	case cluster.StatusNone, cluster.StatusUnknown, cluster.StatusServerFencing, cluster.StatusSecondaryMode:
		return // says nothing about the table
	}
	lsn := out.LSN
	if out.Holder != nil {
		lsn = max(lsn, cluster.LSN(out.Holder.Token))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.need(max(arrived, a.since(lsn)), "the answer %v to %s, LSN %d", out.Status, what, lsn)
}

// tells judges a message to a replica, which speaks of everything up to lsn.
func (a *audit) tells(lsn cluster.LSN) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.need(a.since(lsn), "a push of LSN %d", lsn)
}

// never is after everything.
const never = int(^uint(0) >> 1)

// since is when the log was durable up to lsn. Called with mu held, as all below.
func (a *audit) since(lsn cluster.LSN) int {
	switch {
	case lsn == 0:
		return 0
	case lsn <= a.adopted:
		return a.started
	}
	for _, d := range a.durable {
		if d.lsn >= lsn {
			return d.at
		}
	}
	return never
}

func (a *audit) need(after int, what string, args ...any) {
	if a.checked > after {
		return
	}
	why := "was not durable"
	if after != never {
		why = fmt.Sprintf("came without a check since step %d (the last one began at %d)", after, a.checked)
	}
	a.bad = append(a.bad, fmt.Sprintf("I8: %s at step %d %s", fmt.Sprintf(what, args...), a.now, why))
}

// Watch checks one event of the volume. It is a volumetest.Watch.
func (a *audit) Watch(e volumetest.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	switch {
	case !e.Done:
		a.begins(e)
		a.deposed(e)
	case e.Err == nil:
		a.ends(e)
	case (e.Op == volumetest.OpWriteAt || e.Op == volumetest.OpDatasync) && a.segment(e.Name) && a.over.IsZero():
		a.over = time.Now()
	}
}

// segment reports whether a name is one of the term's own log.
func (a *audit) segment(name string) bool {
	_, ok := wal.ParseSegmentName(path.Base(name))
	return ok && path.Dir(name) == a.own
}

// deposed judges a change by a process whose term is over. What several
// goroutines begin at that very moment may still come; so may what goes on
// inside of a checkpoint that has no name yet, or none any more that counts.
func (a *audit) deposed(e volumetest.Event) {
	switch e.Op {
	case volumetest.OpWriteAt, volumetest.OpRename, volumetest.OpLink, volumetest.OpRemove:
	default:
		return
	}
	name := e.Name
	if e.Op == volumetest.OpLink {
		name = e.NewName
	}
	own := a.own != "" && strings.HasPrefix(name, a.own+"/")
	switch {
	case e.Op == volumetest.OpWriteAt && path.Base(name) == "fence": // its next term fences this one
		own = false
	case e.Op != volumetest.OpRename && strings.Contains(name, "/checkpoint-"):
		own = false
	}
	if !a.over.IsZero() && time.Since(a.over) > time.Millisecond && (own || strings.HasPrefix(name, "files/") || strings.HasPrefix(name, "history/") || strings.HasPrefix(name, "index/")) {
		a.bad = append(a.bad, fmt.Sprintf("I10: %v, %v after the term was over", e.Call, time.Since(a.over)))
	}
}

// viewHead is the beginning of both views.
var viewHead = regexp.MustCompile(`^\{"format":1,.*?"lsn":(\d+),`)

const startOffset = 64 << 10

func (a *audit) begins(e volumetest.Event) {
	switch e.Op {
	case volumetest.OpReadAt:
		if path.Base(e.Name) == "fence" && e.Offset == 0 {
			a.reads[e.Index] = a.now
		}
	case volumetest.OpSync, volumetest.OpDatasync:
		a.syncs[e.Index] = len(a.frames[e.Name])
	case volumetest.OpWriteAt:
		switch {
		case path.Base(e.Name) == "fence" && e.Offset == startOffset:
			a.own, a.adopted, a.started = path.Dir(e.Name), cluster.LSN(binary.LittleEndian.Uint64(e.Data[32:])), never
			a.over, a.renamed = time.Time{}, false
		case strings.HasPrefix(e.Name, "files/"):
			a.writes(e)
		case strings.HasPrefix(e.Name, "history/"):
			a.tellsHistory(e)
		}
	case volumetest.OpRename:
		if path.Dir(e.NewName) == "epochs" {
			a.claimed = e.NewName
		}
		if lsn, ok := a.checkpoint(e.NewName); ok && a.started > 0 {
			a.need(a.since(lsn), "%v", e.Call)
		}
	case volumetest.OpReplaceRename:
		if lsn, ok := a.viewLSNs[e.Name]; ok {
			a.need(a.since(lsn), "%v with LSN %d", e.Call, lsn)
		}
	case volumetest.OpRemove:
		a.removes(e)
	}
}

// checkpoint is the LSN of a complete checkpoint of the own term.
func (a *audit) checkpoint(name string) (cluster.LSN, bool) {
	digits, ok := strings.CutPrefix(name, a.own+"/checkpoint-")
	n, err := strconv.ParseUint(digits, 10, 64)
	return cluster.LSN(n), ok && err == nil
}

// writes judges a write to a protected file.
func (a *audit) writes(e volumetest.Event) {
	after := a.started
	for at, lsn := range a.appends {
		if at.file == e.Name && at.offset >= e.Offset && at.offset < e.Offset+int64(e.Length) {
			after = max(after, a.since(lsn))
		}
	}
	a.need(after, "%v", e.Call)
}

// removes judges the removal of what recovery could have needed.
func (a *audit) removes(e volumetest.Event) {
	dir := path.Dir(e.Name)
	epoch := strings.HasPrefix(e.Name, "epochs/")
	_, checkpoint := a.checkpoint(dir)
	switch {
	case a.segment(e.Name), epoch && checkpoint:
		after := a.based
		if a.renamed {
			after = never // the newest checkpoint has no durable name
		}
		a.need(after, "%v", e.Call)
	case epoch && strings.HasPrefix(e.Name, a.claimed+"/") && a.claimed != a.own:
		// An abandoned claim: nothing relies on what it prepared.
	case strings.HasPrefix(e.Name, "history/"):
		a.need(a.started, "%v", e.Call)
	case epoch && dir != a.own && !strings.HasPrefix(e.Name, a.own+"/"):
		a.need(a.started, "%v", e.Call)
	}
}

func (a *audit) ends(e volumetest.Event) {
	switch e.Op {
	case volumetest.OpReadAt:
		began, check := a.reads[e.Index]
		if check && path.Dir(e.Name) == a.own && len(e.Data) == vfs.BlockSize && zeros(e.Data) {
			a.checked = max(a.checked, began)
		} else if check && path.Dir(e.Name) == a.own && a.over.IsZero() {
			a.over = time.Now()
		}
		delete(a.reads, e.Index)
	case volumetest.OpWriteAt:
		if _, segment := wal.ParseSegmentName(path.Base(e.Name)); segment {
			a.frame(e)
		}
	case volumetest.OpSync, volumetest.OpDatasync:
		a.synced(e)
	case volumetest.OpRename:
		if _, ok := a.checkpoint(e.NewName); ok {
			a.renamed = true
		}
	case volumetest.OpSyncDir:
		if e.Name == a.own && a.renamed {
			a.renamed, a.based = false, a.now
		}
	case volumetest.OpReplaceWrite:
		if m := viewHead.FindSubmatch(e.Data); m != nil {
			n, _ := strconv.ParseUint(string(m[1]), 10, 64) // digits
			a.viewLSNs[e.Name] = cluster.LSN(n)
		}
	}
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// frame notes a frame that was written, and the appends in it.
func (a *audit) frame(e volumetest.Event) {
	f, entries, _, err := wal.DecodeFrame(e.Data)
	if err != nil || f.Kind != wal.FrameRecords {
		return
	}
	a.frames[e.Name] = append(a.frames[e.Name], f.Last())
	a.book.note(entries)
	for _, x := range entries {
		if r, err := locktable.DecodeHeader(x.Header); err == nil && r.Kind == locktable.KindAppend {
			a.appends[place{volume.ProtectedPath(r.File), r.Offset}] = r.LSN
		}
	}
}

// synced notes what a sync has made durable.
func (a *audit) synced(e volumetest.Event) {
	n := a.syncs[e.Index]
	delete(a.syncs, e.Index)
	if path.Base(e.Name) == "fence" && path.Dir(e.Name) == a.own && a.started == never {
		a.started = a.now
	}
	for _, lsn := range a.frames[e.Name][:n] {
		a.durable = append(a.durable, durableTo{lsn, a.now})
	}
	a.frames[e.Name] = a.frames[e.Name][n:]
}
