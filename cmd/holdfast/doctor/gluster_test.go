// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testedMount is the command line of a client whose mount has the options that were tested.
const testedMount = "/usr/sbin/glusterfs --direct-io-mode=enable --attribute-timeout=0 --entry-timeout=0 --negative-timeout=0 --process-name fuse --volfile-server=srv --volfile-id=/holdfast "

// showGluster makes what a mount shows of its client: a command line, without the mount point, and
// a graph. It returns the mount point.
func showGluster(t *testing.T, command, graph string) string {
	t.Helper()
	point := t.TempDir()
	active := "srv-1-2026-01-02-03:04:05.678901 +0000"
	if err := os.MkdirAll(filepath.Join(point, ".meta", "graphs", active), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(active, filepath.Join(point, ".meta", "graphs", "active")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cmdline":               "{ \n  \"Cmdlinestr\": \"" + command + point + "\"\n}",
		"graphs/active/volfile": graph,
	} {
		if err := os.WriteFile(filepath.Join(point, ".meta", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return point
}

// graphOf reads a graph that GlusterFS 10.3 showed.
func graphOf(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "gluster", name+".vol"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// withTranslator adds a translator below the top of a graph.
func withTranslator(graph, kind string) string {
	_, short, _ := strings.Cut(kind, "/")
	return strings.Replace(graph, "volume meta-autoload\n", "volume holdfast-"+short+"\n    type "+kind+"\n    subvolumes holdfast\nend-volume\n\nvolume meta-autoload\n", 1)
}

// judgeGluster judges the mount at a point.
func judgeGluster(point string) *Report {
	r := &Report{Verdict: OK, Path: point}
	r.judge(mount{point: point, fstype: "fuse.glusterfs", source: "srv:/holdfast", options: []string{"rw"}}, 3)
	return r
}

// glusterFinding is the one about the options.
func glusterFinding(t *testing.T, r *Report) Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == glusterCheck })
	if i < 0 {
		t.Fatalf("nothing is said about the options: %+v", r.Findings)
	}
	return r.Findings[i]
}

// glusterCase is a mount as it shows itself, and what is to be said of it.
type glusterCase struct {
	name, command, graph string
	want                 Verdict
	says                 string
	mend                 int // which commands
}

// What mends a mount; the commands for the volume end with that for the mount.
const (
	mendMount  = 1
	mendVolume = 3
)

func glusterCases(t *testing.T) []glusterCase {
	tested := graphOf(t, "tested")
	edit := func(old, by string) string {
		s := strings.Replace(tested, old, by, 1)
		if s == tested {
			t.Fatalf("the graph has no %q", old)
		}
		return s
	}
	without := func(option string) string { return strings.Replace(testedMount, option+" ", "", 1) }
	return []glusterCase{
		{"as tested", testedMount, tested, OK, "as tested", 0},
		{"as tested, spelled otherwise", "glusterfs --direct-io-mode --attribute-timeout 0.0 --entry-timeout=5 --entry-timeout=0 -s srv ", edit("strict-locks on", "strict-locks Enable"), OK, "as tested", 0},
		{"quorum by default", testedMount, edit("    option quorum-type auto\n", ""), OK, "as tested", 0},
		{"quick to notice a brick", testedMount, strings.ReplaceAll(tested, "ping-timeout 10", "ping-timeout 5"), OK, "as tested", 0},
		{"client-io-threads", testedMount, withTranslator(tested, "performance/io-threads"), OK, "as tested", 0},
		{"defaults", "/usr/sbin/glusterfs --process-name fuse --volfile-server=srv --volfile-id=/holdfast ", graphOf(t, "defaults"), Refuse, "performance.quick-read is on", mendVolume},
		{"defaults, mounted right", testedMount, graphOf(t, "defaults"), Refuse, "performance.stat-prefetch is on", mendVolume},
		{"io-cache", testedMount, withTranslator(tested, "performance/io-cache"), Refuse, "performance.io-cache is on", mendVolume},
		{"open-behind", testedMount, withTranslator(tested, "performance/open-behind"), Warn, "performance.open-behind is on", mendVolume},
		{"write-behind", testedMount, withTranslator(tested, "performance/write-behind"), Warn, "performance.write-behind is on", mendVolume},
		{"writes in the kernel", testedMount + "--kernel-writeback-cache=yes ", tested, Warn, "kernel-writeback-cache is on", mendMount},
		{"data in the kernel for the next", testedMount + "--fopen-keep-cache ", tested, Warn, "fopen-keep-cache is on", mendMount},
		{"readdir-ahead", testedMount, withTranslator(tested, "performance/readdir-ahead"), OK, "as tested", 0},
		{"quick-read", testedMount, withTranslator(tested, "performance/quick-read"), Refuse, "performance.quick-read is on", mendVolume},
		{"stat-prefetch", testedMount, withTranslator(tested, "performance/md-cache"), Refuse, "performance.stat-prefetch is on", mendVolume},
		{"read-ahead", testedMount, withTranslator(tested, "performance/read-ahead"), Refuse, "performance.read-ahead is on", mendVolume},
		{"nl-cache", testedMount, withTranslator(tested, "performance/nl-cache"), Refuse, "performance.nl-cache is on", mendVolume},
		{"names in the kernel", without("--entry-timeout=0"), tested, Refuse, "entry-timeout is 1 s", mendMount},
		{"attributes in the kernel", without("--attribute-timeout=0"), tested, Refuse, "attribute-timeout is 1 s", mendMount},
		{"missing names in the kernel", without("--negative-timeout=0") + "--negative-timeout=0.5 ", tested, Refuse, "negative-timeout is 0.5 s", mendMount},
		{"missing names by default", without("--negative-timeout=0"), tested, OK, "as tested", 0},
		{"data in the kernel", without("--direct-io-mode=enable"), tested, Refuse, "direct-io-mode", mendMount},
		{"data in the kernel, automatically", strings.Replace(testedMount, "=enable", "=auto", 1), tested, Refuse, "direct-io-mode", mendMount},
		{"nonsense", without("--entry-timeout=0") + "--entry-timeout=never ", tested, Refuse, "entry-timeout is never", mendMount},
		{"an unknown translator", testedMount, withTranslator(tested, "performance/crystal-ball"), Warn, "performance/crystal-ball is loaded", 0},
		{"sharding", testedMount, withTranslator(tested, "features/shard"), Warn, "features/shard is loaded", 0},
		{"reads from the own brick", testedMount, edit("    option choose-local off\n", ""), Warn, "choose-local is on", mendVolume},
		{"no quorum", testedMount, edit("quorum-type auto", "quorum-type none"), Refuse, "to 1 of 3 bricks", mendVolume},
		{"a quorum of one", testedMount, edit("quorum-type auto", "quorum-type fixed\n    option quorum-count 1"), Refuse, "to 1 of 3 bricks", mendVolume},
		{"a quorum of nobody knows", testedMount, edit("quorum-type auto", "quorum-type fixed"), Refuse, "quorum-type is fixed", mendVolume},
		{"a quorum of two", testedMount, edit("quorum-type auto", "quorum-type fixed\n    option quorum-count 2"), Warn, "quorum-type is fixed", mendVolume},
		{"two replicas, no quorum by default", testedMount, strings.Replace(edit("subvolumes holdfast-client-0 holdfast-client-1 holdfast-client-2", "subvolumes holdfast-client-0 holdfast-client-1"), "    option quorum-type auto\n", "", 1), Refuse, "to 1 of 2 bricks", mendVolume},
		{"locks", testedMount, edit("strict-locks on", "strict-locks off"), Warn, "client.strict-locks is off", mendVolume},
		{"slow to notice a brick", testedMount, edit("ping-timeout 10", "ping-timeout 42"), Warn, `network.ping-timeout is "42"`, mendVolume},
		{"never to notice a brick", testedMount, edit("ping-timeout 10", "ping-timeout 0"), Warn, `network.ping-timeout is "0"`, mendVolume},
		{"two replicas", testedMount, edit("subvolumes holdfast-client-0 holdfast-client-1 holdfast-client-2", "subvolumes holdfast-client-0 holdfast-client-1"), Warn, "has 2 bricks", 0},
		{"an arbiter", testedMount, edit("    option choose-local off\n", "    option choose-local off\n    option arbiter-count 1\n"), Warn, "full replicas", 0},
		{"no replicas", testedMount, edit("type cluster/replicate", "type cluster/disperse"), Warn, "0 sets of replicas", 0},
		{"no graph", testedMount, "", Warn, "are not known", mendVolume},
		{"half a graph", testedMount, tested[:len(tested)/2], Warn, "are not known", mendVolume},
		{"another text", testedMount, "hello\n", Warn, "are not known", mendVolume},
	}
}

// TestGlusterOptions judges mounts by what they show of their client: what showed old data is
// refused, other differences from what was tested are warnings, which status repeats.
func TestGlusterOptions(t *testing.T) {
	for _, x := range glusterCases(t) {
		t.Run(x.name, func(t *testing.T) {
			r := judgeGluster(showGluster(t, x.command, x.graph))
			f := glusterFinding(t, r)
			if r.Verdict != x.want || f.Verdict != x.want || !strings.Contains(f.Detail, x.says) {
				t.Errorf("got %s, %s: %s\nwant %s, and that it says %q", r.Verdict, f.Verdict, f.Detail, x.want, x.says)
			}
			mend := strings.Join(f.Fix, "\n")
			if strings.Contains(mend, "gluster volume set holdfast cluster.choose-local off") != (x.mend == mendVolume) ||
				strings.Contains(mend, "mount -t glusterfs -o ") != (x.mend != 0) {
				t.Errorf("the commands: %q", f.Fix)
			}
			if doubt := len(r.Doubts) > 0; doubt != (x.want == Warn) || doubt && !strings.Contains(r.Doubts[0], x.says) {
				t.Errorf("status shows %q", r.Doubts)
			}
		})
	}
}

// TestGlusterWithoutMeta: what a mount does not show is said, and that is a warning.
func TestGlusterWithoutMeta(t *testing.T) {
	r := judgeGluster(t.TempDir())
	f := glusterFinding(t, r)
	if f.Verdict != Warn || !strings.Contains(f.Detail, "are not known") || !strings.Contains(f.Detail, filepath.Join(".meta", "cmdline")) || len(f.Fix) < 2 {
		t.Errorf("got %+v", f)
	}
	if len(r.Doubts) != 1 || !strings.Contains(r.Doubts[0], "are not known") {
		t.Errorf("status shows %q", r.Doubts)
	}
	point := showGluster(t, testedMount, "")
	if err := os.Truncate(filepath.Join(point, ".meta", "graphs", "active", "volfile"), maxMeta+1); err != nil {
		t.Fatal(err)
	}
	if f := glusterFinding(t, judgeGluster(point)); f.Verdict != Warn || !strings.Contains(f.Detail, "longer than") {
		t.Errorf("a file without an end: %+v", f)
	}
}

func TestParseGlusterCommand(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{ "Cmdlinestr": "glusterfs --a=1 --b 2 --c --d=x=y -s h --a=3 /mnt/x" }`: {"a": "3", "b": "2", "c": "", "d": "x=y"},
		`{ "Cmdlinestr": "glusterfs --a on /mnt/a "b" c" }`:                       {"a": "on"},
		`{ "Cmdlinestr": "glusterfs --fopen-keep-cache /mnt/x" }`:                 {"fopen-keep-cache": "on"},
		`{ "Cmdlinestr": "glusterfs --direct-io-mode=off /mnt/x" }`:               {"direct-io-mode": "off"},
		`{ "Cmdlinestr": "" }`:      {},
		`{ "Cmdlinestr": "--a=1`:    nil,
		`{ "Package": "glusterfs"}`: nil,
		``:                          nil,
	} {
		got, err := parseGlusterCommand(text)
		if (err != nil) != (want == nil) || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

// writeGraph is a graph as parseGlusterGraph reads it.
func writeGraph(graph []translator) string {
	var b strings.Builder
	for _, t := range graph {
		b.WriteString("volume " + t.name + "\ntype " + t.kind + "\n")
		for _, name := range slices.Sorted(maps.Keys(t.options)) {
			b.WriteString("option " + name + " " + t.options[name] + "\n")
		}
		b.WriteString("subvolumes " + strings.Join(t.below, " ") + "\nend-volume\n")
	}
	return b.String()
}

// FuzzGlusterMeta: whatever a mount shows, it is understood in one way or refused, and what lies
// in one that was understood is judged.
func FuzzGlusterMeta(f *testing.F) {
	for _, name := range []string{"tested", "defaults"} {
		b, err := os.ReadFile(filepath.Join("testdata", "gluster", name+".vol"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(`{ "Cmdlinestr": "`+testedMount+`/mnt" }`, string(b))
	}
	f.Add("", "volume a\nend-volume")
	f.Fuzz(func(t *testing.T, command, graph string) {
		options, err := parseGlusterCommand(command)
		if (err == nil) != (options != nil) {
			t.Fatalf("%q: %v, %v", command, options, err)
		}
		all, err := parseGlusterGraph(graph)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%q: %v, %v", graph, all, err)
		}
		var d glusterDoubts
		d.judgeMount(options)
		d.judgeGraph(all)
		if err != nil {
			return
		}
		again, err := parseGlusterGraph(writeGraph(all))
		if err != nil || writeGraph(again) != writeGraph(all) {
			t.Fatalf("%q\nbecame %q: %v", writeGraph(all), writeGraph(again), err)
		}
	})
}
