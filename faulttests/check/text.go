// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// GoSource returns SourceText of the source tree that comes with the Go tools.
func GoSource(size int) (lines [][]byte, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find the Go source tree: %w", err)
	}
	return SourceText(filepath.Join(strings.TrimSpace(string(out)), "src"), size)
}

// SourceText returns the lines, without newlines, of the .go files under root, in lexical order,
// until they have at least size bytes. It leaves out files with zero bytes, since zero bytes in
// protected files are findings.
func SourceText(root string, size int) (lines [][]byte, err error) {
	total := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || filepath.Ext(name) != ".go" {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(content, 0) >= 0 {
			return err
		}
		for line := range bytes.Lines(content) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
			total += len(line)
		}
		if total >= size {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && total < size {
		err = fmt.Errorf("%s has only %d bytes of Go, want %d", root, total, size)
	}
	return lines, err
}

// Tagged returns a line as it is appended: the client, the number of its line, and the text.
func Tagged(client, seq int, text []byte) []byte {
	return fmt.Appendf(nil, "c%d %d %s\n", client, seq, text)
}

// parseTag is the inverse of Tagged, without its end of line.
func parseTag(line []byte) (client, seq int, ok bool) {
	n, err := fmt.Sscanf(string(line[:min(len(line), 40)]), "c%d %d ", &client, &seq)
	return client, seq, err == nil && n == 2
}

// Speaker hands out one client's share of the lines, over and over: every
// clients-th line, each under the next number. It belongs to one goroutine.
type Speaker struct {
	lines   [][]byte
	client  int
	clients int
	next    int // position of the next line
	seq     int // number of the last line handed out
}

// NewSpeaker returns the Speaker of one client, with a number from 0, of clients in all.
func NewSpeaker(lines [][]byte, client, clients int) *Speaker {
	return &Speaker{lines: lines, client: client, clients: clients, next: client}
}

// Client returns the number of the client.
func (s *Speaker) Client() int { return s.client }

// Chunk is several whole lines that one append carries.
type Chunk struct {
	Client      int
	First, Last int // numbers of its lines
	Data        []byte
}

// Chunk returns the next lines, as many as fit into size bytes, but at least one.
func (s *Speaker) Chunk(size int) Chunk {
	c := Chunk{Client: s.client, First: s.seq + 1}
	for {
		line := Tagged(s.client, s.seq+1, s.lines[s.next%len(s.lines)])
		if len(c.Data) > 0 && len(c.Data)+len(line) > size {
			c.Last = s.seq
			return c
		}
		c.Data = append(c.Data, line...)
		s.seq++
		s.next += s.clients
		if s.Through() && s.next-s.clients < len(s.lines) {
			c.Last = s.seq // the end of the text ends a chunk
			return c
		}
	}
}

// Through reports whether all of the client's lines were handed out once.
func (s *Speaker) Through() bool { return s.next >= len(s.lines) }
