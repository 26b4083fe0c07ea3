// SPDX-License-Identifier: Apache-2.0

package ends_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/ends"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// grants is a log in which each odd LSN grants a lock, and the next one ends it: all are
// released, save the one that the record at LSN 10 breaks. Its last LSN is 20.
func grants() *ends.Log {
	log := ends.New()
	for lsn := cluster.LSN(1); lsn < 20; lsn += 2 {
		grant := locktable.Record{Kind: locktable.KindGrant, LSN: lsn, Epoch: 1, Lock: "l", Client: "c"}
		log.See(&grant)
		end := locktable.Record{Kind: locktable.KindRelease, LSN: lsn + 1, Epoch: 1, Lock: "l", Client: "c", Token: cluster.Token(lsn)}
		if end.LSN == 10 {
			end.Kind = locktable.KindBreak
		}
		log.See(&end)
	}
	return log
}

// end is the line of one of them.
func end(lsn cluster.LSN) string {
	e := history.End{LSN: lsn, Epoch: 1, Why: history.WhyReleased, Lock: "l", Token: cluster.Token(lsn - 1), Granted: 1, Client: "c"}
	if lsn == 10 {
		e.Why = history.WhyBroken
	}
	return string(e.AppendLine(nil))
}

func skip(from, to cluster.LSN, count uint64) string {
	return string(history.AppendSkip(nil, history.Skip{Range: history.Range{From: from, To: to}, Count: count}))
}

func TestCompare(t *testing.T) {
	gap := func(from, to cluster.LSN) string {
		return string(history.AppendGap(nil, history.Range{From: from, To: to}))
	}
	mark := func(upTo cluster.LSN) string { return string(history.AppendMark(nil, upTo)) }
	const torn = "{\"kind\":\x00\x00\n"
	for _, test := range []struct {
		name  string
		lines []string
		bad   string // "" for none
	}{
		{"all but one are counted", []string{skip(2, 20, 9), end(10)}, ""},
		{"more are counted than there were", []string{skip(2, 20, 12), end(10)}, ""},
		{"one too few", []string{skip(2, 20, 8), end(10)}, "LSN 20 (released) is not told, and not counted"},
		{"a break is never only counted", []string{skip(2, 20, 10)}, "LSN 10 (broken) is not told"},
		{"one is outside", []string{skip(2, 18, 9), end(10)}, "LSN 20 (released) is not told"},
		// The next term completes what the first one counted and told in part.
		{"lines overlap", []string{skip(2, 12, 2), end(4), end(6), mark(6), skip(8, 20, 5), end(10)}, ""},
		{"lines overlap, one within the other", []string{skip(2, 20, 6), end(10), skip(6, 12, 3)}, ""},
		{"lines overlap, and one is missing", []string{skip(2, 12, 2), end(4), end(6), mark(6), skip(8, 20, 4), end(10)}, "LSN 20 (released) is not told"},
		{"a gap", []string{gap(2, 12), skip(14, 20, 4)}, ""},
		{"a damaged line hides what a count stands around", []string{skip(2, 20, 7), end(10), torn, torn, mark(20)}, ""},
		{"a damaged line hides nothing before it", []string{skip(2, 20, 6), end(12), torn, mark(20)}, "LSN 10 (broken) is not told"},
		{"told twice", []string{skip(2, 20, 9), end(10), end(10)}, "tells twice"},
		{"never was", []string{skip(2, 20, 9), end(10), end(22)}, "never was"},
	} {
		t.Run(test.name, func(t *testing.T) {
			head := history.AppendHead(nil, history.Head{File: history.File{Epoch: 1, N: 1}, Cluster: "c", Time: time.Now().UnixMilli()})
			file := string(head) + strings.Join(test.lines, "")
			v := grants().Compare(map[string][]byte{"history/0000000001-000001.jsonl": []byte(file)}, 20)
			switch got := fmt.Sprint(v.Bad); {
			case test.bad == "" && len(v.Bad) > 0:
				t.Errorf("found %s in\n%s", got, file)
			case !strings.Contains(got, test.bad):
				t.Errorf("found %s, want %q in\n%s", got, test.bad, file)
			}
		})
	}
}

// Of a file that is nothing but zeros the next head says what had been told there.
func TestCompareFiles(t *testing.T) {
	head := func(epoch cluster.Epoch, after cluster.LSN) string {
		return string(history.AppendHead(nil, history.Head{File: history.File{Epoch: epoch, N: 1}, Cluster: "c", After: after, Time: time.Now().UnixMilli()}))
	}
	first := head(1, 0) + skip(2, 6, 3) + string(history.AppendMark(nil, 6))
	const zeros = "\x00\x00\x00\x00"
	for _, test := range []struct {
		name               string
		second, third, bad string
	}{
		{"zeros, and the next head says that it was told", zeros, head(3, 14) + skip(16, 20, 3), ""},
		{"zeros, and the next one tells it again", zeros, head(3, 6) + skip(8, 20, 6) + end(10), ""},
		{"zeros, and the next one leaves more out", zeros, head(3, 12) + skip(16, 20, 3), "LSN 14 (released) is not told"},
		{"no damage", head(2, 6), head(3, 14) + skip(16, 20, 3), "LSN 8 (released) is not told"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := grants().Compare(map[string][]byte{"history/1": []byte(first), "history/2": []byte(test.second), "history/3": []byte(test.third)}, 20)
			if got := fmt.Sprint(v.Bad); test.bad == "" && len(v.Bad) > 0 || !strings.Contains(got, test.bad) {
				t.Errorf("found %s, want %q", got, test.bad)
			}
		})
	}
}
