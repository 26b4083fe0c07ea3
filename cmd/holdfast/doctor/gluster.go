// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A mount of GlusterFS shows what its client runs in a directory .meta of its root, which is in
// no listing: the command line of the client, with the mount's options, and the graph of
// translators that the volume's options made. The client answers these reads itself.
//
// The list of translators in the graph is always current. Their options are those of the time when
// the graph was made, by the mount or when a translator was added or removed: options that were
// set later are in effect but not shown. So the commands for the volume end with a new mount.

const (
	// glusterMeta is the name of that directory.
	glusterMeta = ".meta"
	// glusterCheck is the name of the check.
	glusterCheck = "GlusterFS options"
	// maxMeta bounds the size of a file there, in bytes.
	maxMeta = 4 << 20
	// glusterReplicas is how many replicas were tested.
	glusterReplicas = 3
	// glusterPing is the highest network.ping-timeout without a warning, in seconds.
	glusterPing = 10
)

// glusterClient is what a mount shows of its client.
type glusterClient struct {
	options map[string]string // of its command line
	graph   []translator
}

// translator is one element of a client's graph.
type translator struct {
	name, kind string            // "vol-md-cache", "performance/md-cache"
	options    map[string]string // those that are set; defaults are not shown
	below      []string          // the names of the translators below it
}

// readGluster reads what a mount shows of its client.
func readGluster(point string) (c glusterClient, err error) {
	line, err := readMeta(filepath.Join(point, glusterMeta, "cmdline"))
	if err != nil {
		return c, err
	}
	if c.options, err = parseGlusterCommand(line); err != nil {
		return c, err
	}
	graph, err := readMeta(filepath.Join(point, glusterMeta, "graphs", "active", "volfile"))
	if err != nil {
		return c, err
	}
	c.graph, err = parseGlusterGraph(graph)
	return c, err
}

// readMeta reads a file whose size the mount does not show.
func readMeta(path string) (text string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, maxMeta+1))
	if err == nil && len(b) > maxMeta {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxMeta)
	}
	return string(b), err
}

// parseGlusterCommand parses the options of a client's command line, which its mount shows as
// { "Cmdlinestr": "…" }, with nothing escaped. Of a repeated option the last one counts.
// A value follows "=" or is the next word; the value of a switch is never the next word.
func parseGlusterCommand(text string) (map[string]string, error) {
	_, line, ok := strings.Cut(text, `"Cmdlinestr": "`)
	end := strings.LastIndexByte(line, '"')
	if !ok || end < 0 {
		return nil, fmt.Errorf("no command line of a GlusterFS client: %q", clip(text))
	}
	options := map[string]string{}
	last := ""
	for _, word := range strings.Fields(line[:end]) {
		name, isOption := strings.CutPrefix(word, "--")
		switch name, value, given := strings.Cut(name, "="); {
		case isOption && given:
			options[name], last = value, ""
		case isOption && slices.Contains(glusterSwitches(), name):
			options[name], last = "on", ""
		case isOption:
			options[name], last = "", name
		case last != "":
			options[last], last = word, ""
		}
	}
	return options, nil
}

// glusterSwitches returns the options that are judged here and may have no value.
func glusterSwitches() []string {
	return []string{"direct-io-mode", "fopen-keep-cache", "kernel-writeback-cache"}
}

// parseGlusterGraph parses a graph in the format of a volume file. Each translator comes after
// those below it.
func parseGlusterGraph(text string) (graph []translator, err error) {
	var t *translator
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
		case word == "volume" && t == nil:
			t = &translator{name: rest, options: map[string]string{}}
		case t == nil || word == "volume":
			return nil, fmt.Errorf("no graph of a GlusterFS client: the line %q", clip(line))
		case word == "type":
			t.kind = rest
		case word == "option":
			name, value, _ := strings.Cut(rest, " ")
			t.options[name] = value
		case word == "subvolumes":
			t.below = strings.Fields(rest)
		case word == "end-volume":
			graph, t = append(graph, *t), nil
		}
	}
	if t != nil || len(graph) == 0 {
		return nil, fmt.Errorf("no graph of a GlusterFS client: it ends too early: %q", clip(text))
	}
	return graph, nil
}

// clip shortens a text that could not be parsed.
func clip(text string) string { return text[:min(len(text), 80)] }

// isOn parses a boolean as GlusterFS does.
func isOn(value string) bool {
	return slices.Contains([]string{"1", "on", "yes", "true", "enable"}, strings.ToLower(value))
}

// glusterDoubts lists what is wrong with a mount, by severity.
type glusterDoubts struct {
	stale  []string // shows old data
	untold []string // differs from what was tested
	mends  bool     // whether the commands correct some of it
}

// shows adds an option that shows old data. The commands correct it.
func (d *glusterDoubts) shows(format string, args ...any) {
	d.stale, d.mends = addOnce(d.stale, fmt.Sprintf(format, args...)), true
}

// differs adds an option that is not as it was tested. The commands correct it.
func (d *glusterDoubts) differs(format string, args ...any) {
	d.untold, d.mends = addOnce(d.untold, fmt.Sprintf(format, args...)), true
}

// untested adds a difference that no command corrects.
func (d *glusterDoubts) untested(format string, args ...any) {
	d.untold = addOnce(d.untold, fmt.Sprintf(format, args...))
}

// addOnce appends s unless it is there: the connections to all bricks have the same options.
func addOnce(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

func (d *glusterDoubts) empty() bool { return len(d.stale)+len(d.untold) == 0 }

// glusterKind describes one kind of translator.
type glusterKind struct {
	kind    string
	setting string // the volume's option that adds it, if it must not be there
	stale   string // what was seen with it; "" = nothing old
}

// glusterKinds returns the kinds of translators that were tested, by type.
func glusterKinds() []glusterKind {
	return []glusterKind{
		{kind: "protocol/client"}, {kind: "cluster/replicate"}, {kind: "cluster/distribute"}, {kind: "features/utime"},
		{kind: "debug/io-stats"}, {kind: "meta"}, {kind: "performance/io-threads"}, {kind: "performance/readdir-ahead"},
		{"performance/quick-read", "performance.quick-read", "overwritten data was read in its old state, also past the kernel's cache"},
		{"performance/io-cache", "performance.io-cache", "overwritten data was read in its old state"},
		{"performance/read-ahead", "performance.read-ahead", "appends of other hosts were not seen"},
		{"performance/md-cache", "performance.stat-prefetch", "sizes were old, and removed names were still there"},
		{"performance/open-behind", "performance.open-behind", ""},
		{"performance/write-behind", "performance.write-behind", ""},
		{"performance/nl-cache", "performance.nl-cache", "new names of other hosts were missing"},
	}
}

// judgeGraph judges the translators of a client.
func (d *glusterDoubts) judgeGraph(graph []translator) {
	replicated := 0
	for _, t := range graph {
		kinds := glusterKinds()
		i := slices.IndexFunc(kinds, func(k glusterKind) bool { return k.kind == t.kind })
		switch {
		case i < 0:
			d.untested("%s is loaded, and was not tested", t.kind)
		case kinds[i].stale != "":
			d.shows("%s is on: %s", kinds[i].setting, kinds[i].stale)
		case kinds[i].setting != "":
			d.differs("%s is on", kinds[i].setting)
		}
		switch t.kind {
		case "cluster/replicate":
			replicated++
			d.judgeReplicas(t)
		case "protocol/client":
			d.judgeConnection(t)
		}
	}
	if replicated != 1 {
		d.untested("the volume has %d sets of replicas, and one was tested", replicated)
	}
}

// judgeReplicas judges the translator over one set of replicas.
func (d *glusterDoubts) judgeReplicas(t translator) {
	n := len(t.below)
	if n != glusterReplicas || t.options["arbiter-count"] != "" || t.options["thin-arbiter"] != "" {
		d.untested("%s has %d bricks, of which some may have no data: %d full replicas were tested", t.name, n, glusterReplicas)
	}
	if v, set := t.options["choose-local"]; !set || isOn(v) {
		d.differs("cluster.choose-local is on: hosts read from different bricks")
	}
	switch quorum := glusterQuorum(t.options, n); {
	case quorum <= n/2:
		d.shows("cluster.quorum-type is %s: a write of one host to %d of %d bricks is not seen by others", cmp.Or(t.options["quorum-type"], "none"), max(quorum, 1), n)
	case t.options["quorum-type"] == "fixed":
		d.differs("cluster.quorum-type is fixed")
	}
}

// glusterQuorum returns how many of n bricks have to take a write. Without the option it is a
// majority, from three bricks on.
func glusterQuorum(options map[string]string, n int) int {
	kind, set := options["quorum-type"]
	switch {
	case kind == "auto", !set && n >= glusterReplicas:
		return n/2 + 1
	case kind == "fixed":
		if count, err := strconv.Atoi(options["quorum-count"]); err == nil {
			return count
		}
	}
	return 0
}

// judgeConnection judges the connection to one brick.
func (d *glusterDoubts) judgeConnection(t translator) {
	if !isOn(t.options["strict-locks"]) {
		d.differs("client.strict-locks is off: a lock may end unnoticed with the connection of its holder")
	}
	if seconds, err := strconv.Atoi(t.options["ping-timeout"]); err != nil || seconds < 1 || seconds > glusterPing {
		d.differs("network.ping-timeout is %q s, more than %d: a silent brick delays calls for that long", t.options["ping-timeout"], glusterPing)
	}
}

// judgeMount judges the options of a mount.
func (d *glusterDoubts) judgeMount(options map[string]string) {
	for _, name := range []string{"fopen-keep-cache", "kernel-writeback-cache"} {
		if isOn(options[name]) {
			d.differs("%s is on", name)
		}
	}
	for _, x := range []struct{ name, unset string }{{"attribute-timeout", "1"}, {"entry-timeout", "1"}, {"negative-timeout", "0"}} {
		value, set := options[x.name]
		if !set {
			value = x.unset
		}
		if seconds, err := strconv.ParseFloat(value, 64); err != nil || seconds != 0 {
			d.shows("%s is %s s: the kernel uses cached answers for that long", x.name, value)
		}
	}
	if !isOn(options["direct-io-mode"]) {
		d.shows("direct-io-mode is not enable: the kernel keeps what it read")
	}
}

// gluster judges the options of a GlusterFS volume and of its mount here. mend are the commands
// that correct both; the last one mounts it again.
func (r *Report) gluster(m mount, mend []string) {
	c, err := readGluster(m.point)
	if err != nil {
		r.doubtful(fmt.Sprintf("the options of the volume and of its mount are not known, since this mount does not show what its client runs: %v. With its default options GlusterFS shows old data: check these settings", err),
			mend...)
		return
	}
	var volume, mount glusterDoubts
	volume.judgeGraph(c.graph)
	mount.judgeMount(c.options)
	if volume.empty() && mount.empty() {
		r.add(glusterCheck, OK, "as tested: the client runs no cache, the kernel keeps nothing, three replicas have a quorum")
		return
	}
	var fix []string
	switch {
	case volume.mends:
		fix = mend
	case mount.mends:
		fix = mend[len(mend)-1:]
	}
	stale, untold := append(volume.stale, mount.stale...), append(volume.untold, mount.untold...)
	if len(stale) == 0 {
		r.doubtful("not as tested: "+strings.Join(untold, "; "), fix...)
		return
	}
	r.add(glusterCheck, Refuse, strings.Join(append(stale, untold...), "; "), fix...)
}

// doubtful adds a warning that status repeats.
func (r *Report) doubtful(detail string, fix ...string) {
	r.Doubts = append(r.Doubts, glusterCheck+": "+detail)
	r.add(glusterCheck, Warn, detail, fix...)
}
