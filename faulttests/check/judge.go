// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Verdict is the result of comparing files with a ledger.
type Verdict struct {
	LinesIn, LinesOut        int // acknowledged, found
	Lost, Duplicate, Foreign int // lines
	Misordered               int // lines after a later one of the same client
	Uncertain                int // lines of appends without an answer that are in a file
	Bad                      []string
}

// badLimit bounds the findings about one file: more would repeat the same.
const badLimit = 20

func (v *Verdict) bad(format string, args ...any) {
	if len(v.Bad) < badLimit {
		v.Bad = append(v.Bad, fmt.Sprintf(format, args...))
	}
}

// add adds another verdict.
func (v *Verdict) add(o Verdict) {
	v.LinesIn += o.LinesIn
	v.LinesOut += o.LinesOut
	v.Lost += o.Lost
	v.Duplicate += o.Duplicate
	v.Foreign += o.Foreign
	v.Misordered += o.Misordered
	v.Uncertain += o.Uncertain
	v.Bad = append(v.Bad, o.Bad...)
}

// Judge compares every file that was appended to with the answers that clients got.
// Each finding begins with the number of its invariant, see Number.
func Judge(l *Ledger, read func(cluster.FileName) ([]byte, error)) Verdict {
	appends, grants, bad := l.Entries()
	v := Verdict{Bad: bad}
	byFile := map[cluster.FileName][]Append{}
	for _, a := range appends {
		byFile[a.File] = append(byFile[a.File], a)
	}
	var names []cluster.FileName
	for name := range byFile {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		content, err := read(name)
		if err != nil {
			v.bad("I5: %s: %v", name, err)
			continue
		}
		v.add(judgeFile(name, content, byFile[name]))
	}
	v.add(judgeOrder(appends, grants))
	return v
}

// Check runs Judge and adds its findings to a report.
func (l *Ledger) Check(read func(cluster.FileName) ([]byte, error), r *Report) Verdict {
	v := Judge(l, read)
	appends, grants, _ := l.Entries()
	r.Checked(I1, len(grants)+len(appends))
	r.Checked(I5, v.LinesIn)
	r.Checked(I6, len(appends))
	r.Checked(I9, len(grants)+len(appends))
	r.Findings(v.Bad)
	r.Figure("lines", "%d acknowledged, %d found; %d lost, %d doubled, %d out of order, %d foreign; %d without an answer are there",
		v.LinesIn, v.LinesOut, v.Lost, v.Duplicate, v.Misordered, v.Foreign, v.Uncertain)
	return v
}

// judgeFile checks one file in two independent ways: line by line, and receipt by receipt.
func judgeFile(name cluster.FileName, content []byte, appends []Append) Verdict {
	v := judgeLines(name, content, appends)
	if i := bytes.IndexByte(content, 0); i >= 0 {
		v.bad("I5: %s: a zero byte at offset %d", name, i)
	}
	v.add(judgeReceipts(name, content, appends))
	return v
}

// line identifies one line of one client.
type line struct{ client, seq int }

// judgeLines checks that every acknowledged line is there once, and each client's in order.
func judgeLines(name cluster.FileName, content []byte, appends []Append) (v Verdict) {
	want := map[line][]byte{}
	acked, refused := map[line]bool{}, map[line]bool{}
	for _, a := range appends {
		seq := a.First
		for text := range bytes.Lines(a.Data) {
			k := line{a.Client, seq}
			want[k], acked[k], refused[k] = text, a.Acked, a.Refused
			if a.Acked {
				v.LinesIn++
			}
			seq++
		}
	}
	seen := map[line]bool{}
	last := map[int]int{}
	offset := 0
	for text := range bytes.Lines(content) {
		client, seq, ok := parseTag(text)
		k := line{client, seq}
		switch {
		case !ok || !bytes.Equal(want[k], text):
			v.Foreign++
			v.bad("I5: %s: a foreign line at offset %d: %.60q", name, offset, text)
		case seen[k]:
			v.Duplicate++
			v.bad("I5: %s: line %d of client %d again at offset %d", name, seq, client, offset)
		default:
			seen[k] = true
			v.LinesOut++
			switch {
			case refused[k]:
				v.bad("I7: %s: line %d of client %d is at offset %d, but the client was told that its append was refused", name, seq, client, offset)
			case !acked[k]:
				v.Uncertain++
			}
			if seq < last[client] {
				v.Misordered++
				v.bad("I5: %s: line %d of client %d behind line %d, at offset %d", name, seq, client, last[client], offset)
			}
			last[client] = max(last[client], seq)
		}
		offset += len(text)
	}
	for k, is := range acked {
		if is && !seen[k] {
			v.Lost++
			v.bad("I5: %s: line %d of client %d was acknowledged and is lost", name, k.seq, k.client)
		}
	}
	return v
}

// judgeReceipts checks that the bytes of every receipt are where it says, and that there are only
// whole appends without an answer between them.
func judgeReceipts(name cluster.FileName, content []byte, appends []Append) (v Verdict) {
	var acked, open []Append
	for _, a := range appends {
		switch {
		case a.Acked:
			acked = append(acked, a)
		case !a.Refused:
			open = append(open, a)
		}
	}
	slices.SortFunc(acked, func(a, b Append) int { return int(a.Receipt.Offset - b.Receipt.Offset) })
	var end int64
	var token cluster.Token
	var lsn cluster.LSN
	for _, a := range acked {
		r := a.Receipt
		if r.File != name || r.Length != int64(len(a.Data)) || r.Offset < end || r.Offset+r.Length > int64(len(content)) {
			v.bad("I5: %s: receipt %+v of %d bytes overlaps [..%d] or lies outside of %d bytes", name, r, len(a.Data), end, len(content))
			continue
		}
		there := content[r.Offset : r.Offset+r.Length]
		if !bytes.Equal(there, a.Data) {
			v.bad("I5: %s: at %d stands %.40q, the receipt is of %.40q", name, r.Offset, there, a.Data)
		}
		if sum := crc32.Checksum(a.Data, crc32.MakeTable(crc32.Castagnoli)); sum != r.CRC32C {
			v.bad("I5: %s: the receipt at %d says CRC-32C %08x, the data has %08x", name, r.Offset, r.CRC32C, sum)
		}
		if r.Token < token || r.LSN <= lsn {
			v.bad("I6: %s: token %d and LSN %d at offset %d, behind token %d and LSN %d", name, r.Token, r.LSN, r.Offset, token, lsn)
		}
		open = judgeGap(&v, name, content[end:r.Offset], end, open)
		end, token, lsn = r.Offset+r.Length, r.Token, r.LSN
	}
	judgeGap(&v, name, content[end:], end, open)
	return v
}

// judgeGap checks that bytes which no receipt covers are whole appends without an
// answer, and returns the appends that it did not find.
func judgeGap(v *Verdict, name cluster.FileName, gap []byte, at int64, open []Append) []Append {
	for len(gap) > 0 {
		i := slices.IndexFunc(open, func(a Append) bool { return bytes.HasPrefix(gap, a.Data) })
		if i < 0 {
			v.bad("I5: %s: %d bytes at offset %d that nobody was told of: %.60q", name, len(gap), at, gap)
			return open
		}
		gap, at = gap[len(open[i].Data):], at+int64(len(open[i].Data))
		open = slices.Delete(open, i, i+1)
	}
	return open
}

// judgeOrder checks what clients saw in real time. I1: no token is granted twice,
// and nothing is done under one after the next was granted. I9: a request sent
// after an answer comes after it in the log, and epochs never fall along the log.
func judgeOrder(appends []Append, grants []Grant) (v Verdict) {
	tokens := map[cluster.LockName][]cluster.Token{}
	seen := map[cluster.Token]bool{}
	for _, g := range grants {
		if seen[g.Token] {
			v.bad("I1: token %d of %s was granted twice", g.Token, g.Lock)
		}
		seen[g.Token] = true
		tokens[g.Lock] = append(tokens[g.Lock], g.Token)
		if cluster.LSN(g.Token) <= g.After {
			v.bad("I9: client %d got token %d of %s, but asked after LSN %d was acknowledged", g.Client, g.Token, g.Lock, g.After)
		}
	}
	for _, all := range tokens {
		slices.Sort(all)
	}
	slices.SortFunc(appends, func(a, b Append) int { return int(int64(a.Receipt.LSN) - int64(b.Receipt.LSN)) })
	var epoch cluster.Epoch
	for _, a := range appends {
		r := a.Receipt
		if !a.Acked {
			continue
		}
		if r.LSN <= a.After {
			v.bad("I9: client %d's append has LSN %d, but was sent after LSN %d was acknowledged", a.Client, r.LSN, a.After)
		}
		if r.Epoch < epoch {
			v.bad("I9: LSN %d is of epoch %d, one before it of epoch %d", r.LSN, r.Epoch, epoch)
		}
		epoch = r.Epoch
		all := tokens[a.Lock]
		i, _ := slices.BinarySearch(all, r.Token+1)
		if i < len(all) && cluster.LSN(all[i]) < r.LSN {
			v.bad("I1: an append under token %d of %s has LSN %d, behind token %d", r.Token, a.Lock, r.LSN, all[i])
		}
	}
	return v
}
