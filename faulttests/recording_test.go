// SPDX-License-Identifier: Apache-2.0

package faulttests_test

import (
	"bufio"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// recordingFile is the picture in the README, made by
//
//	go test ./faulttests -run TestRecording -record
const recordingFile = "../docs/recording.svg"

var recordNow = flag.Bool("record", false, "make the picture of the README from a real run")

// The commands of the recording. The first runs in one terminal, the others in another.
const (
	firstCommand   = "holdfast run nightly -- ./backup.sh"
	refusedCommand = "holdfast run nightly -n -- ./backup.sh"
	nextCommand    = "holdfast run nightly -- ./backup.sh"
)

const backupScript = `#!/bin/sh
for i in 1 2 3; do echo "backup: part $i of 3, under token $HOLDFAST_TOKEN"; sleep ${PACE:-1}; done
`

// entry is a line of a terminal.
type entry struct {
	at      time.Duration
	pane    int
	text    string
	command bool
}

// recording collects what terminals show, with its times.
type recording struct {
	site  *site
	began time.Time
	mu    struct {
		sync.Mutex
		all []entry
	}
}

func (r *recording) add(pane int, text string, command bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.all = append(r.mu.all, entry{time.Since(r.began), pane, text, command})
}

// shown reports how many lines of a terminal contain the text.
func (r *recording) shown(pane int, text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.mu.all {
		if e.pane == pane && strings.Contains(e.text, text) {
			n++
		}
	}
	return n
}

// start types a command in a terminal; wait returns its exit code.
func (r *recording) start(t *testing.T, pane int, command, pace string) (cmd *exec.Cmd, wait func() int) {
	t.Helper()
	r.add(pane, "$ "+command, true)
	cmd = exec.CommandContext(r.site.ctx, "bash", "-c", "exec "+command)
	cmd.Dir = r.site.work
	cmd.Env = append(os.Environ(), "PATH="+r.site.bin+":"+os.Getenv("PATH"), "PACE="+pace,
		fmt.Sprintf("HOLDFAST_ENDPOINTS=127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", r.site.base, r.site.base+1, r.site.base+2))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close() //nolint:errcheck // the command's
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			r.add(pane, lines.Text(), false)
		}
	}()
	return cmd, func() int {
		<-read
		cmd.Wait() //nolint:errcheck // the code says it
		return cmd.ProcessState.ExitCode()
	}
}

// record runs the commands.
func record(t *testing.T) []entry {
	r := &recording{site: newSite(t, time.Minute)}
	if err := os.WriteFile(filepath.Join(r.site.work, "backup.sh"), []byte(backupScript), 0o700); err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case <-r.site.ctx.Done():
				t.Fatalf("waited for %s", what)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	r.began = time.Now()
	first, firstEnds := r.start(t, 0, firstCommand, "3")
	until("the first", func() bool { return r.shown(0, "part 1") == 1 })
	<-time.After(time.Second)
	_, ends := r.start(t, 1, refusedCommand, "1")
	if code := ends(); code != 1 {
		t.Fatalf("a second run while the first holds the lock: exit code %d, want 1", code)
	}
	<-time.After(time.Second)
	_, nextEnds := r.start(t, 1, nextCommand, "0.5")
	until("the report of a wait", func() bool { return r.shown(1, "waiting for lock") == 1 })
	<-time.After(time.Second)
	killed := time.Now()
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	firstEnds()
	r.add(0, fmt.Sprintf("Killed (kill -9 %d)", first.Process.Pid), false)
	if code := nextEnds(); code != 0 {
		t.Fatalf("the next run: exit code %d", code)
	}
	t.Logf("the next run ended %v after the kill", time.Since(killed))
	r.add(1, "$ ", true)
	if r.shown(1, "part 3 of 3") != 1 || r.shown(0, "part 3 of 3") != 0 {
		t.Errorf("recorded %v", r.mu.all)
	}
	return r.mu.all
}

// The measures of the picture, in pixels.
const (
	columns    = 92
	lineHeight = 19
	charWidth  = 8
	padding    = 14
	titleBar   = 26
	pictureX   = 2*padding + columns*charWidth
)

// wrapped cuts a line as a terminal does.
func wrapped(text string) (lines []string) {
	runes := []rune(text)
	for len(runes) > columns {
		lines, runes = append(lines, string(runes[:columns])), runes[columns:]
	}
	return append(lines, string(runes))
}

// draw writes the picture: two terminals, in which lines appear as they did. It has its own
// background, so that it is legible on light and dark pages, and shows all lines at once to whoever
// wants no motion.
func draw(w io.Writer, all []entry) error {
	var errs []error
	put := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	tall := [2]int{titleBar + padding, titleBar + padding}
	for _, e := range all {
		tall[e.pane] += lineHeight * len(wrapped(e.text))
	}
	height := tall[0] + padding + tall[1]
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="One terminal runs a command under a lock, a second one is refused, waits, and gets the lock when the first is killed">`+"\n", pictureX, height, pictureX, height)
	put(`<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dde5; white-space: pre }
.c { fill: #8fd19e; font-weight: bold } .h { fill: #e8c37d } .t { fill: #9aa5b1 }
.l { opacity: 0; animation: show .05s linear forwards }
@keyframes show { to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .l { animation: none; opacity: 1 } }
</style>` + "\n")
	for pane, title := range []string{"terminal 1", "terminal 2, on any other machine"} {
		top := pane * (tall[0] + padding)
		put(`<rect x="0.5" y="%d.5" width="%d" height="%d" rx="8" fill="#1b2129" stroke="#57606a"/>`+"\n", top, pictureX-1, tall[pane]-1)
		put(`<text class="t" x="%d" y="%d">%s</text>`+"\n", padding, top+18, title)
		row := 0
		for _, e := range all {
			if e.pane != pane {
				continue
			}
			class := "l"
			switch {
			case e.command:
				class = "l c"
			case strings.HasPrefix(e.text, "holdfast: "):
				class = "l h"
			}
			for _, line := range wrapped(e.text) {
				y := top + titleBar + padding + row*lineHeight
				put(`<text class="%s" style="animation-delay:%.2fs" x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
					class, e.at.Seconds(), padding, y, max(len([]rune(line)), 1)*charWidth, html.EscapeString(line))
				row++
			}
		}
	}
	put("</svg>\n")
	return errors.Join(errs...)
}

// TestRecording makes the picture of the README with -record. Else it wants the picture to show
// the commands that this test runs.
func TestRecording(t *testing.T) {
	if *recordNow {
		f, err := os.Create(recordingFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(draw(f, record(t)), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	picture, err := os.ReadFile(recordingFile)
	if err != nil {
		t.Fatal(err)
	}
	shown := struct {
		Lines []string `xml:"text"`
	}{}
	if err := xml.Unmarshal(picture, &shown); err != nil {
		t.Fatalf("%s: %v", recordingFile, err)
	}
	text := strings.Join(shown.Lines, "\n")
	for _, want := range []string{"$ " + firstCommand, "$ " + refusedCommand, "waiting for lock nightly", "Killed", "part 3 of 3"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not show %q: make it again with -record", recordingFile, want)
		}
	}
}
