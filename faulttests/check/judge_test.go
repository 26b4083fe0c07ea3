// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// story is a small right run: three clients, one lock and file, six appends of
// which the fourth was never answered but is there.
func story() (*Ledger, []byte) {
	l := &Ledger{}
	var speakers []*Speaker
	text := bytes.Split([]byte("alpha beta gamma delta epsilon zeta eta theta iota kappa"), []byte(" "))
	for c := range 3 {
		speakers = append(speakers, NewSpeaker(text, c, 3))
	}
	var content []byte
	lsn := cluster.LSN(10)
	for i := range 6 {
		chunk := speakers[i%3].Chunk(30)
		token := cluster.Token(lsn)
		l.Grant(Grant{Client: i % 3, Lock: "a", Token: token, After: l.High()})
		lsn++
		l.Append(Append{Chunk: chunk, File: "a.txt", Lock: "a", Acked: i != 3, After: l.High(), Receipt: wire.Receipt{
			File: "a.txt", Offset: int64(len(content)), Length: int64(len(chunk.Data)), LSN: lsn, Token: token, Epoch: cluster.Epoch(1 + i/3),
			CRC32C: crc32.Checksum(chunk.Data, crc32.MakeTable(crc32.Castagnoli)),
		}})
		content = append(content, chunk.Data...)
		lsn += 2
	}
	return l, content
}

func judge(l *Ledger, content []byte) Verdict {
	return Judge(l, func(cluster.FileName) ([]byte, error) {
		if content == nil {
			return nil, fs.ErrNotExist
		}
		return content, nil
	})
}

func TestJudgeAcceptsWhatIsRight(t *testing.T) {
	l, content := story()
	v := judge(l, content)
	if len(v.Bad) > 0 || v.Lost+v.Duplicate+v.Foreign+v.Misordered > 0 || v.Uncertain == 0 || v.LinesOut != v.LinesIn+v.Uncertain {
		t.Errorf("got %+v", v)
	}
	// Without its unanswered append the file is right as well, if receipts say so.
	first, _, _ := strings.Cut(string(content), "\nc0 3")
	l, _ = story()
	kept := l.mu.appends[:3]
	l.mu.appends = kept
	if v := judge(l, []byte(first+"\n")); len(v.Bad) > 0 {
		t.Errorf("a file that ends before the unanswered append: %v", v.Bad)
	}
}

// TestJudgeNoticesDamage damages a right run in every way that matters.
func TestJudgeNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func(*Ledger, []byte) []byte{
		"file is gone":        func(*Ledger, []byte) []byte { return nil },
		"last line is lost":   func(_ *Ledger, b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] },
		"first line is lost":  func(_ *Ledger, b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
		"half a line is lost": func(_ *Ledger, b []byte) []byte { return b[:len(b)-3] },
		"a line twice":        func(_ *Ledger, b []byte) []byte { return append(b, b[:bytes.IndexByte(b, '\n')+1]...) },
		"a zero byte":         func(_ *Ledger, b []byte) []byte { b[12] = 0; return b },
		"zeros behind":        func(_ *Ledger, b []byte) []byte { return append(b, 0, 0) },
		"a flipped bit":       func(_ *Ledger, b []byte) []byte { b[12] ^= 1; return b },
		"a foreign line":      func(_ *Ledger, b []byte) []byte { return append(b, "hello\n"...) },
		"another's line":      func(_ *Ledger, b []byte) []byte { return append(b, "c1 9999 x\n"...) },
		"lines swapped":       swapFirstLines,
		"offset moved":        func(l *Ledger, b []byte) []byte { l.mu.appends[1].Receipt.Offset++; return b },
		"length wrong":        func(l *Ledger, b []byte) []byte { l.mu.appends[1].Receipt.Length--; return b },
		"sum wrong":           func(l *Ledger, b []byte) []byte { l.mu.appends[1].Receipt.CRC32C++; return b },
		"token falls":         func(l *Ledger, b []byte) []byte { l.mu.appends[4].Receipt.Token = 2; return b },
		"epoch falls":         func(l *Ledger, b []byte) []byte { l.mu.appends[4].Receipt.Epoch = 0; return b },
		"token granted twice": func(l *Ledger, b []byte) []byte { l.mu.grants[2].Token = l.mu.grants[1].Token; return b },
		"stale answer":        func(l *Ledger, b []byte) []byte { l.mu.appends[2].After = 1000; return b },
		"stale grant":         func(l *Ledger, b []byte) []byte { l.mu.grants[2].After = 1000; return b },
		"under an old token": func(l *Ledger, b []byte) []byte {
			l.mu.appends[5].Receipt.Token = l.mu.grants[4].Token // the sixth's grant lies between
			return b
		},
		"a refused append is there": func(l *Ledger, b []byte) []byte { l.mu.appends[3].Refused = true; return b },
		"a client's complaint":      func(l *Ledger, b []byte) []byte { l.Violation("no"); return b },
	} {
		t.Run(name, func(t *testing.T) {
			l, content := story()
			content = damage(l, content)
			if v := judge(l, content); len(v.Bad) == 0 {
				t.Errorf("not noticed: %+v", v)
			}
			r := &Report{}
			if l.Check(func(cluster.FileName) ([]byte, error) { return content, nil }, r); content != nil && len(r.Violations()) == 0 {
				t.Error("not reported")
			}
		})
	}
}

// swapFirstLines swaps the two lines of one append, behind the receipts' back.
func swapFirstLines(l *Ledger, content []byte) []byte {
	lines := slices.Collect(bytes.Lines(content))
	lines[0], lines[1] = lines[1], lines[0]
	return bytes.Join(lines, nil)
}

func TestSpeakersShareTheText(t *testing.T) {
	var text [][]byte
	for i := range 1000 {
		text = append(text, fmt.Appendf(nil, "line %d", i))
	}
	said := 0
	for c := range 8 {
		s := NewSpeaker(text, c, 8)
		next := 1
		for !s.Through() {
			chunk := s.Chunk(200)
			lines := bytes.Count(chunk.Data, []byte("\n"))
			if chunk.First != next || chunk.Last-chunk.First+1 != lines || len(chunk.Data) > 200 {
				t.Fatalf("chunk %+v has %d lines", chunk, lines)
			}
			said += lines
			next = chunk.Last + 1
		}
	}
	if said != len(text) {
		t.Errorf("%d lines said, want %d", said, len(text))
	}
}
