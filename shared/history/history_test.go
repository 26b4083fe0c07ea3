// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const id = "0123"

func sample() history.End {
	return history.End{
		LSN: 120, Epoch: 3, Time: 1_700_000_000_500, Why: history.WhyBroken,
		Lock: `a/"b"`, Token: 100, Granted: 2, Since: 1_700_000_000_000, Client: "@9", Request: 4,
		Holder: locktable.Holder{Host: "h1", PID: 99, Command: "backup \\ \n\t all"}, Metadata: "{\"k\": \"ü\x01\"}",
		Actor: "ann@h9", Reason: "it hangs", Append: history.Append{File: "log", Offset: 0, Length: 6, LSN: 110}, Successor: 121,
	}
}

// parsed parses a line that must be good.
func parsed(t *testing.T, b []byte) history.Line {
	t.Helper()
	line, ok := strings.CutSuffix(string(b), "\n")
	if !ok || strings.Contains(line, "\n") || !json.Valid([]byte(line)) {
		t.Fatalf("not one line of JSON: %q", b)
	}
	l, err := history.ParseLine([]byte(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return l
}

func TestLines(t *testing.T) {
	e := sample()
	if l := parsed(t, e.AppendLine(nil)); l.Kind != history.KindEnd || l.End != e {
		t.Errorf("got %+v, want %+v", l.End, e)
	}
	bare := history.End{LSN: 2, Epoch: 1, Why: history.WhyExpired, Lock: "l", Token: 1, Granted: 1, Client: "c", Request: 1}
	if l := parsed(t, bare.AppendLine(nil)); l.End != bare {
		t.Errorf("got %+v, want %+v", l.End, bare)
	}
	bare.Mode = locktable.ModeShared
	if b := bare.AppendLine(nil); parsed(t, b).End != bare || !strings.Contains(string(b), `,"mode":"shared"`) {
		t.Errorf("%s is %+v, want %+v", b, parsed(t, b).End, bare)
	}
	bare.TTL = 1500 * time.Millisecond // the lines above are of binaries that did not note it
	if b := bare.AppendLine(nil); parsed(t, b).End != bare || !strings.Contains(string(b), `,"ttl_ms":1500`) {
		t.Errorf("%s is %+v, want %+v", b, parsed(t, b).End, bare)
	}
	bare.Permit = locktable.Permit{Limit: 1<<32 - 1, Weight: 7}
	if b := bare.AppendLine(nil); parsed(t, b).End != bare || !strings.Contains(string(b), `,"limit":4294967295,"weight":7`) {
		t.Errorf("%s is %+v, want %+v", b, parsed(t, b).End, bare)
	}
	e = sample()
	if e.Identity = "user:ü"; parsed(t, e.AppendLine(nil)).End != e {
		t.Errorf("got %+v, want %+v", parsed(t, e.AppendLine(nil)).End, e)
	}
	head := history.Head{File: history.File{Epoch: 7, N: 2}, Cluster: id, After: 0, Time: 1_700_000_000_000}
	if l := parsed(t, history.AppendHead(nil, head)); l.Kind != history.KindHead || l.Head != head {
		t.Errorf("got %+v, want %+v", l.Head, head)
	}
	skip := history.Skip{Range: history.Range{From: 5, To: 9}, Count: 3}
	if l := parsed(t, history.AppendSkip(nil, skip)); l.Kind != history.KindSkipped || l.Skip != skip {
		t.Errorf("got %+v, want %+v", l.Skip, skip)
	}
	if l := parsed(t, history.AppendGap(nil, skip.Range)); l.Kind != history.KindGap || l.Skip.Range != skip.Range {
		t.Errorf("got %+v", l)
	}
	if l := parsed(t, history.AppendMark(nil, 50)); l.Kind != history.KindMark || l.UpTo != 50 {
		t.Errorf("got %+v", l)
	}
}

// The form of the files is for ever: what older binaries wrote is read.
func TestFormat(t *testing.T) {
	e := sample()
	const want = `{"kind":"end","lsn":120,"epoch":3,"ended":"2023-11-14T22:13:20.500Z","why":"broken","lock":"a/\"b\"","token":100,"grant_epoch":2,"since":"2023-11-14T22:13:20.000Z","client_id":"@9","request_id":4,"host":"h1","pid":99,"command":"backup \\ \n\u0009 all","metadata":"{\"k\": \"ü\u0001\"}","actor":"ann@h9","reason":"it hangs","file":"log","offset":0,"length":6,"append_lsn":110,"successor":121,"crc":"cc8a03bc"}` + "\n"
	if got := string(e.AppendLine(nil)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	head := history.AppendHead(nil, history.Head{File: history.File{Epoch: 7, N: 1}, Cluster: id, After: 0, Time: 1_700_000_000_000})
	if want := `{"kind":"head","format":1,"cluster_id":"0123","epoch":7,"n":1,"after":0,"time":"2023-11-14T22:13:20.000Z","crc":"23a8bd66"}` + "\n"; string(head) != want {
		t.Errorf("got  %swant %s", head, want)
	}
}

// TestALineThatDoesNotFitItsChecksumIsDamaged: JSON has no checksum of its own, and a digit that flips in a
// number leaves a number. Lines of older binaries have none.
func TestALineThatDoesNotFitItsChecksumIsDamaged(t *testing.T) {
	e := sample()
	e.Metadata = `{"a":1,"crc":"00000000"}`
	line := string(bytes.TrimSpace(e.AppendLine(nil)))
	for what, x := range map[string]struct {
		line string
		ok   bool
	}{
		"whole":           {line, true},
		"of before":       {older(line), true},
		"a digit flipped": {strings.Replace(line, `"lsn":120`, `"lsn":920`, 1), false},
		"the sum flipped": {strings.Replace(line, `,"crc":"`, `,"crc":"x`, 1), false},
		"the sum cut off": {strings.TrimSuffix(line, `"}`), false},
	} {
		if l, err := history.ParseLine([]byte(x.line)); (err == nil) != x.ok || x.ok && l.End != e {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// older is what a binary wrote that knew no checksums.
func older(lines string) string {
	return regexp.MustCompile(`,"crc":"[0-9a-f]{8}"}`).ReplaceAllString(lines, "}")
}

// TestReachOfAFile: a line that tells of more than the next one is damaged, and does not count.
func TestReachOfAFile(t *testing.T) {
	for name, x := range map[string]struct {
		file  string
		reach cluster.LSN
		odd   int
	}{
		"a mark":                     {file(1, 0, end(10, "a", 1, 2), 30), 30, 0},
		"an end":                     {file(1, 0, end(10, "a", 1, 2), end(20, "a", 1, 2)), 20, 0},
		"head only":                  {file(1, 25), 25, 0},
		"skipped":                    {file(1, 5, history.Skip{Range: history.Range{From: 6, To: 9}, Count: 2}, 10), 10, 0},
		"too high among others":      {older(file(1, 0, end(10, "a", 1, 2), end(920, "a", 1, 2), end(30, "a", 1, 2))), 30, 1},
		"too high, then a mark":      {older(file(1, 0, end(10, "a", 1, 2), end(920, "a", 1, 2), 30, 40)), 40, 1},
		"too low at the end":         {older(file(1, 0, end(10, "a", 1, 2), end(20, "a", 1, 2), end(3, "a", 1, 2))), 10, 1},
		"two too high, side by side": {older(file(1, 0, 10, 920, 910, 30)), 30, 2},
		"does not parse":             {file(1, 0, 10, "\x00", 30), 30, 1},
		"a digit of the last one":    {file(1, 0, 10) + strings.Replace(string(history.AppendMark(nil, 20)), "20", "90", 1), 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r history.Reach
			for line := range strings.Lines(x.file) {
				r.Line([]byte(strings.TrimSuffix(line, "\n")))
			}
			if r.LSN() != x.reach || r.Odd() != x.odd {
				t.Errorf("LSN %d, %d odd; want %d, %d", r.LSN(), r.Odd(), x.reach, x.odd)
			}
		})
	}
}

func TestLinesOfOthers(t *testing.T) {
	for line, want := range map[string]string{
		`{"kind":"end","lsn":1`: "no line",
		`{}`:                    "no line",
		"\x00\x00":              "no line",
		`{"kind":"end","lsn":3,"why":"expired","token":2}`: "without",
		`{"kind":"gap","from":3,"to":2}`:                   "no line",
		`{"kind":"skipped","count":2}`:                     "no line",
		`{"kind":"head","format":2}`:                       "newer binary",
		`{"kind":"verse","lsn":1}`:                         "",
		`{"kind":"mark","upto":1,"colour":"red"}`:          "",
	} {
		l, err := history.ParseLine([]byte(line))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
		if strings.Contains(line, "verse") && l.Kind != history.KindUnknown {
			t.Errorf("%s: kind %d", line, l.Kind)
		}
	}
	l, err := history.ParseLine([]byte(`{"kind":"end","lsn":3,"why":"evaporated","lock":"l","token":2}`))
	if err != nil || l.End.Why != history.WhyUnknown {
		t.Errorf("a way to end that only a newer binary knows: %+v %v", l.End, err)
	}
}

func FuzzParseLine(f *testing.F) {
	e := sample()
	f.Add(e.AppendLine(nil))
	f.Add(history.AppendSkip(nil, history.Skip{Range: history.Range{From: 1, To: 2}, Count: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := history.ParseLine(b)
		if err != nil || l.Kind != history.KindEnd {
			return
		}
		again, err := history.ParseLine(l.End.AppendLine(nil))
		if l.End.Append.Length <= 0 {
			l.End.Append = history.Append{}
		}
		if l.End.Holder.PID >= 0 && (err != nil || again.End != l.End) && l.End.Time > 0 && l.End.Since > 0 && l.End.Append.Offset >= 0 {
			t.Errorf("%s: %+v, again %+v: %v", b, l.End, again.End, err)
		}
	})
}

// end is a short one.
func end(lsn cluster.LSN, lock cluster.LockName, since, ended int64) history.End {
	return history.End{
		LSN: lsn, Epoch: 1, Token: cluster.Token(lsn) - 1, Granted: 1, Client: "c", Request: 1, Lock: lock,
		Since: since, Time: ended, Why: history.WhyReleased,
	}
}

// file is a file of lines.
func file(n uint32, after cluster.LSN, lines ...any) string {
	b := history.AppendHead(nil, history.Head{File: history.File{Epoch: 1, N: n}, Cluster: id, After: after, Time: int64(1000 * (after + 1))})
	for _, x := range lines {
		switch x := x.(type) {
		case history.End:
			b = x.AppendLine(b)
		case history.Skip:
			b = history.AppendSkip(b, x)
		case history.Range:
			b = history.AppendGap(b, x)
		case int:
			b = history.AppendMark(b, cluster.LSN(x))
		case string:
			b = append(b, x+"\n"...)
		}
	}
	return string(b)
}

// selects searches files, the newest last, and stops as a reader does.
func selects(t *testing.T, q history.Query, r history.Recent, upTo cluster.LSN, files ...string) (p history.Past, read int) {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	s := history.Select(id, q, r, upTo)
	for _, f := range slices.Backward(files) {
		if s.Enough() {
			break
		}
		scan := s.Scan()
		for line := range strings.Lines(f) {
			scan.Line([]byte(strings.TrimSuffix(line, "\n")))
		}
		if err := scan.Close(); err != nil {
			t.Fatal(err)
		}
		read++
	}
	return s.Past(), read
}

// text is what was found, in few words.
func text(p history.Past) string {
	var b strings.Builder
	for _, e := range p.Ends {
		fmt.Fprintf(&b, "%s@%d ", e.Lock, e.LSN)
	}
	fmt.Fprintf(&b, "from %d", p.From)
	if p.More {
		b.WriteString(" more")
	}
	if p.Skipped.Count > 0 {
		fmt.Fprintf(&b, " skipped %d in %d-%d", p.Skipped.Count, p.Skipped.From, p.Skipped.To)
	}
	for _, g := range p.Gaps {
		fmt.Fprintf(&b, " gap %d-%d", g.From, g.To)
	}
	if p.Damaged > 0 {
		fmt.Fprintf(&b, " damaged %d", p.Damaged)
	}
	return b.String()
}

func TestSelect(t *testing.T) {
	minute := time.Minute.Milliseconds()
	old := file(1, 0, end(10, "a", 1, 10), end(20, "b", 1, 20), 30)
	mid := file(2, 30, end(40, "a", 10*minute, 11*minute), history.Skip{Range: history.Range{From: 42, To: 48}, Count: 5}, end(50, "ab", 1, 50), 60)
	young := file(3, 60, end(70, "a", 20*minute, 21*minute), end(80, "b", 1, 80))
	recent := history.Recent{From: 80, Ends: []history.End{end(80, "b", 1, 80), end(90, "a", 30*minute, 31*minute)}}
	all := []string{old, mid, young}
	for name, x := range map[string]struct {
		q    history.Query
		r    history.Recent
		upTo cluster.LSN
		want string
		read int
	}{
		"one lock":                  {history.Query{Lock: "a"}, recent, 100, "a@90 a@70 a@40 a@10 from 0 skipped 5 in 42-48", 3},
		"a prefix":                  {history.Query{Prefix: "a"}, recent, 100, "a@90 a@70 ab@50 a@40 a@10 from 0 skipped 5 in 42-48", 3},
		"told twice":                {history.Query{Lock: "b"}, recent, 100, "b@80 b@20 from 0 skipped 5 in 42-48", 3},
		"the newest":                {history.Query{Lock: "a", Limit: 2}, recent, 100, "a@90 a@70 from 69 more", 2},
		"nothing behind upTo":       {history.Query{Lock: "a"}, recent, 75, "a@70 a@40 a@10 from 0 skipped 5 in 42-48", 3},
		"more than limit behind it": {history.Query{Prefix: "", Limit: 1}, recent, 75, "a@70 from 69 more", 2},
		"before":                    {history.Query{Lock: "a", Before: 70, Limit: 1}, recent, 100, "a@40 from 39 more skipped 5 in 42-48", 3},
		"before, within a record":   {history.Query{Lock: "a", Before: 70, BeforeToken: 70, Limit: 1}, recent, 100, "a@70 from 69 more", 2},
		"after":                     {history.Query{Lock: "a", After: 40}, recent, 100, "a@90 a@70 from 40 skipped 5 in 42-48", 2},
		"after, no older file":      {history.Query{Lock: "a", After: 60}, recent, 100, "a@90 a@70 from 60", 1},
		"a token":                   {history.Query{Token: 39}, recent, 100, "a@40 from 39", 2},
		"a token that never was":    {history.Query{Token: 65}, recent, 100, "from 60", 1},
		"a time":                    {history.Query{Lock: "a", At: 20*minute + 1}, recent, 100, "a@70 from 60", 1},
		"a time when nobody had it": {history.Query{Lock: "a", At: 25 * minute}, recent, 100, "from 60", 1},
		"when it ended":             {history.Query{Lock: "a", At: 21 * minute}, recent, 100, "from 60", 1},
		"since a time":              {history.Query{Lock: "a", Since: 21 * minute}, recent, 100, "a@90 a@70 from 60", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, read := selects(t, x.q, x.r, x.upTo, all...)
			if got := text(p); got != x.want || read != x.read {
				t.Errorf("got %q of %d files, want %q of %d", got, read, x.want, x.read)
			}
		})
	}
}

func TestSelectTellsWhatIsMissing(t *testing.T) {
	none := history.Recent{From: 100}
	good := file(1, 0, end(10, "a", 1, 10), 30)
	for name, x := range map[string]struct {
		files []string
		want  string
	}{
		"all is there":            {[]string{good, file(2, 30, end(40, "a", 1, 2), 100)}, "a@40 a@10 from 0"},
		"a file is missing":       {[]string{good, file(3, 50, end(60, "a", 1, 2), 100)}, "a@60 a@10 from 0 gap 31-50"},
		"the end is missing":      {[]string{good, file(2, 30, end(40, "a", 1, 2))}, "a@40 a@10 from 0 gap 41-100"},
		"a gap that was told":     {[]string{good, file(2, 30, history.Range{From: 31, To: 35}, end(40, "a", 1, 2), 100)}, "a@40 a@10 from 0 gap 31-35"},
		"told again later":        {[]string{good, file(2, 30, "\x00", end(40, "a", 1, 2), 50), file(3, 30, end(35, "a", 1, 2), end(40, "a", 1, 2), 100)}, "a@40 a@35 a@10 from 0 damaged 1"},
		"a page of zeros":         {[]string{good, file(2, 30, `{"kind":"end","lsn":40`+"\x00\x00"+`,"lock":"b"}`, end(50, "a", 1, 2), 100)}, "a@50 a@10 from 0 gap 31-49 damaged 1"},
		"a line is damaged":       {[]string{good, file(2, 30, "\x00\x00\x00", end(40, "a", 1, 2), 100)}, "a@40 a@10 from 0 gap 31-39 damaged 1"},
		"damage before a mark":    {[]string{good, file(2, 30, end(40, "b", 1, 2), `{"kind":"end","lsn":4`, 100)}, "a@10 from 0 gap 41-100 damaged 1"},
		"of many by one record":   {[]string{good, file(2, 30, cleared(4), "\x00\x00\x00", cleared(7), 60, 100)}, "a@50 a@50 a@10 from 0 gap 50-60 damaged 1"},
		"the first of one record": {[]string{good, file(2, 30, "\x00\x00\x00", cleared(7), 60, 100)}, "a@50 a@10 from 0 gap 31-60 damaged 1"},
		"the rest of one record":  {[]string{good, file(2, 30, cleared(4), cleared(7))}, "a@50 a@50 a@10 from 0 gap 50-100"},
		"told again as a whole":   {[]string{good, file(2, 30, cleared(4), "\x00"), file(3, 49, cleared(4), cleared(7), 100)}, "a@50 a@50 a@10 from 0 damaged 1"},
		"an older binary's two":   {[]string{good, file(2, 30, cleared(4)), file(3, 50, cleared(7), 100)}, "a@50 a@50 a@10 from 0 gap 50-50"},
		"of which one is damaged": {[]string{good, file(2, 30, cleared(4), "\x00"), file(3, 50, cleared(7), 100)}, "a@50 a@50 a@10 from 0 gap 50-50 damaged 1"},
		"of which more is gone":   {[]string{good, file(2, 30, cleared(4)), file(3, 51, 100)}, "a@50 a@10 from 0 gap 50-51"},
		"old files are removed":   {[]string{file(2, 30, end(40, "a", 1, 2), 100)}, "a@40 from 30"},
		"a file of another share": {[]string{good, strings.ReplaceAll(older(file(2, 30, end(40, "a", 1, 2), 100)), id, "9999")}, "a@10 from 0 gap 31-100"},
		"no file at all":          {nil, "from 100"},
		"a file without a head":   {[]string{good, "\n"}, "a@10 from 0 gap 31-100"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := selects(t, history.Query{Lock: "a"}, none, 100, x.files...)
			if got := text(p); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// Gaps behind the page that is asked for are not told with it.
func TestSelectTellsGapsOfItsPage(t *testing.T) {
	lines := file(2, 30, history.Range{From: 31, To: 35}, end(40, "a", 1, 2), history.Range{From: 50, To: 60}, 100)
	for before, want := range map[cluster.LSN]string{0: "a@40 from 30 gap 31-35 gap 50-60", 40: "from 30 gap 31-35", 31: "from 30 gap 31-31"} {
		p, _ := selects(t, history.Query{Lock: "a", Before: before}, history.Recent{From: 100}, 100, lines)
		if got := text(p); got != want {
			t.Errorf("before %d: got %q, want %q", before, got, want)
		}
	}
}

func TestSelectIsBounded(t *testing.T) {
	var lines []any
	for lsn := cluster.LSN(2); lsn < 3000; lsn += 3 {
		lines = append(lines, end(lsn, "a", 1, 2), history.Range{From: lsn + 1, To: lsn + 1})
	}
	p, _ := selects(t, history.Query{Lock: "a", Limit: 10}, history.Recent{From: 3000}, 3000, file(1, 0, append(lines, 3000)...))
	if len(p.Ends) != 10 || !p.More || p.Ends[0].LSN != 2999 || p.Ends[9].LSN != 2972 || p.From != 2971 {
		t.Errorf("%s", text(p))
	}
	p, _ = selects(t, history.Query{Lock: "none"}, history.Recent{From: 3000}, 3000, file(1, 0, append(lines, 3000)...))
	if n := len(p.Gaps); n > 32 || p.Gaps[0].From != 3 || p.Gaps[n-1].To != 3000 {
		t.Errorf("%d gaps: %s", n, text(p))
	}
}

// cleared is one of the ends by the record with LSN 50.
func cleared(token cluster.Token) history.End {
	return history.End{LSN: 50, Epoch: 2, Why: history.WhyCleared, Lock: "a", Token: token, Granted: 1, Client: "c", Request: 1}
}

func TestTail(t *testing.T) {
	for name, x := range map[string]struct {
		file string
		ok   bool
		upTo cluster.LSN
	}{
		"a mark":                 {file(1, 0, end(10, "a", 1, 2), 30), true, 30},
		"an end":                 {file(1, 0, end(10, "a", 1, 2), end(20, "a", 1, 2)), true, 20},
		"many by one record":     {file(1, 0, end(10, "a", 1, 2), cleared(4), cleared(7)), true, 49},
		"head only":              {file(1, 25), true, 25},
		"cut off":                {file(1, 0, end(10, "a", 1, 2), `{"kind":"end","ls`), true, 10},
		"damage before ends":     {file(1, 0, end(10, "a", 1, 2), "\x00", end(20, "a", 1, 2), 30), true, 10},
		"nothing":                {"", false, 0},
		"too high an end":        {older(file(1, 0, 10, end(920, "a", 1, 2), 30, end(40, "a", 1, 2))), true, 10},
		"too high a mark":        {older(file(1, 0, end(10, "a", 1, 2), 920, end(30, "a", 1, 2))), true, 10},
		"a gap up to a part":     {file(1, 20, history.Range{From: 21, To: 50}, cleared(4), cleared(7), 60), true, 60},
		"an older binary's part": {file(2, 50, cleared(4), cleared(7), 60), true, 60},
		"no more than a part":    {file(2, 50, cleared(4), cleared(7)), true, 49},
		"too low an end":         {older(file(1, 0, 10, 20, end(3, "a", 1, 2), 40)), true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			scan := history.NewTail(id)
			for line := range strings.Lines(x.file) {
				scan.Line([]byte(strings.TrimSuffix(line, "\n")))
			}
			if upTo, ok := scan.Tail(); ok != x.ok || upTo != x.upTo {
				t.Errorf("got %d %v", upTo, ok)
			}
		})
	}
}
