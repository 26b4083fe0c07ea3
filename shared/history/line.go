// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Format is the version of the files. Readers refuse higher ones.
const Format = 1

// File identifies one file.
type File struct {
	Epoch cluster.Epoch // of the term that wrote it
	N     uint32        // from 1, in the order in which the term wrote them
}

// Head is the first line of a file.
type Head struct {
	File
	Cluster string
	// After is the LSN up to which earlier files have what ended.
	After cluster.LSN
	// Time is when it was written, in milliseconds since 1970.
	Time int64
}

// Kind is the kind of a line.
type Kind uint8

// The kinds of lines.
const (
	KindUnknown Kind = iota // of a newer binary
	KindHead
	KindEnd
	KindSkipped
	KindGap
	KindMark
)

// Line is one line of a file; the field of its kind is set.
type Line struct {
	Kind Kind
	Head Head // of a head
	End  End  // of an end
	Skip Skip // of a skipped or a gap
	UpTo cluster.LSN
}

// AppendHead appends the first line of a file.
func AppendHead(b []byte, h Head) []byte {
	from := len(b)
	b = append(b, `{"kind":"head"`...)
	b = appendNumber(b, "format", Format)
	b = appendText(b, "cluster_id", h.Cluster)
	b = appendNumber(b, "epoch", uint64(h.Epoch))
	b = appendNumber(b, "n", uint64(h.N))
	b = appendNumber(b, "after", uint64(h.After))
	b = appendTime(b, "time", h.Time)
	return sum(b, from)
}

// AppendSkip appends the line of ends that were left out.
func AppendSkip(b []byte, s Skip) []byte {
	from := len(b)
	b = append(b, `{"kind":"skipped"`...)
	b = appendNumber(b, "from", uint64(s.From))
	b = appendNumber(b, "to", uint64(s.To))
	b = appendNumber(b, "count", s.Count)
	return sum(b, from)
}

// AppendGap appends the line of a range of which nothing is known.
func AppendGap(b []byte, r Range) []byte {
	from := len(b)
	b = append(b, `{"kind":"gap"`...)
	b = appendNumber(b, "from", uint64(r.From))
	b = appendNumber(b, "to", uint64(r.To))
	return sum(b, from)
}

// AppendMark appends the line that everything up to an LSN is above it.
func AppendMark(b []byte, upTo cluster.LSN) []byte {
	from := len(b)
	b = append(b, `{"kind":"mark"`...)
	b = appendNumber(b, "upto", uint64(upTo))
	return sum(b, from)
}

const modeShared = "shared"

// AppendLine appends the line of an end.
func (e *End) AppendLine(b []byte) []byte {
	from := len(b)
	b = append(b, `{"kind":"end"`...)
	b = appendNumber(b, "lsn", uint64(e.LSN))
	b = appendNumber(b, "epoch", uint64(e.Epoch))
	b = appendTime(b, "ended", e.Time)
	b = appendText(b, "why", e.Why.String())
	b = appendText(b, "lock", string(e.Lock))
	b = appendNumber(b, "token", uint64(e.Token))
	b = appendNumber(b, "grant_epoch", uint64(e.Granted))
	b = appendTime(b, "since", e.Since)
	b = appendText(b, "client_id", string(e.Client))
	b = appendNumber(b, "request_id", uint64(e.Request))
	b = appendNumber(b, "ttl_ms", uint64(e.TTL.Milliseconds()))
	if e.Mode == locktable.ModeShared {
		b = appendText(b, "mode", modeShared) // without it, the mode is exclusive
	}
	b = appendNumber(b, "limit", uint64(e.Permit.Limit))
	b = appendNumber(b, "weight", uint64(e.Permit.Weight))
	b = appendText(b, "host", e.Holder.Host)
	b = appendNumber(b, "pid", uint64(e.Holder.PID))
	b = appendText(b, "command", e.Holder.Command)
	b = appendText(b, "identity", e.Identity)
	b = appendText(b, "metadata", e.Metadata)
	b = appendText(b, "actor", e.Actor)
	b = appendText(b, "reason", e.Reason)
	if a := e.Append; a.Length > 0 {
		b = appendText(b, "file", string(a.File))
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, a.Offset, 10) // 0 is an offset, too
		b = appendNumber(b, "length", uint64(a.Length))
		b = appendNumber(b, "append_lsn", uint64(a.LSN))
	}
	b = appendNumber(b, "successor", uint64(e.Successor))
	return sum(b, from)
}

const (
	sumBegin = `,"crc":"`
	sumEnd   = `"}`
)

// sum ends the line that begins at from with its checksum: the CRC-32C of all that is before.
func sum(b []byte, from int) []byte {
	crc := crc32.Checksum(b[from:], crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(b, "%s%08x%s\n", sumBegin, crc, sumEnd)
}

// sumFits reports whether a line has no checksum, as older binaries wrote it, or the right one.
func sumFits(b []byte) bool {
	i := bytes.LastIndex(b, []byte(sumBegin)) // in a text it would have backslashes
	return i < 0 || string(b[i:])+"\n" == string(sum(b[:i:i], 0)[i:])
}

func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 && name != "after" {
		return b
	}
	return strconv.AppendUint(appendName(b, name), n, 10)
}

func appendName(b []byte, name string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	return append(b, `":`...)
}

const timeLayout = "2006-01-02T15:04:05.000Z"

func appendTime(b []byte, name string, ms int64) []byte {
	if ms == 0 {
		return b
	}
	b = append(appendName(b, name), '"')
	b = time.UnixMilli(ms).UTC().AppendFormat(b, timeLayout)
	return append(b, '"')
}

func appendText(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(appendName(b, name), s)
}

const hexDigits = "0123456789abcdef"

// appendString appends a string in JSON. Texts of records are UTF-8.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// wireLine is a line in JSON.
type wireLine struct {
	Kind    string `json:"kind"`
	Format  int    `json:"format"`
	Cluster string `json:"cluster_id"`
	Epoch   uint64 `json:"epoch"`
	N       uint32 `json:"n"`
	After   uint64 `json:"after"`
	Time    stamp  `json:"time"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
	Count   uint64 `json:"count"`
	UpTo    uint64 `json:"upto"`

	LSN       uint64 `json:"lsn"`
	Ended     stamp  `json:"ended"`
	Why       string `json:"why"`
	Lock      string `json:"lock"`
	Token     uint64 `json:"token"`
	Granted   uint64 `json:"grant_epoch"`
	Since     stamp  `json:"since"`
	Client    string `json:"client_id"`
	Request   uint64 `json:"request_id"`
	TTL       int64  `json:"ttl_ms"`
	Mode      string `json:"mode"`
	Limit     uint32 `json:"limit"`
	Weight    uint32 `json:"weight"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Identity  string `json:"identity"`
	Metadata  string `json:"metadata"`
	Actor     string `json:"actor"`
	Reason    string `json:"reason"`
	File      string `json:"file"`
	Offset    int64  `json:"offset"`
	Length    int64  `json:"length"`
	AppendLSN uint64 `json:"append_lsn"`
	Successor uint64 `json:"successor"`
}

// stamp is a time in milliseconds since 1970.
type stamp int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *stamp) UnmarshalText(b []byte) error {
	t, err := time.Parse(timeLayout, string(b))
	*s = stamp(t.UnixMilli())
	return err
}

// ErrNewer means that a newer binary wrote a file.
var ErrNewer = errors.New("a newer binary wrote this history: use that one")

var errLine = errors.New("no line of a history")

// ParseLine parses one line, without its newline. It returns ErrNewer for the head of a newer
// format, another error for a line that was cut off or damaged.
func ParseLine(b []byte) (Line, error) {
	if !sumFits(b) {
		return Line{}, fmt.Errorf("%w: its checksum does not fit", errLine)
	}
	var x wireLine
	if err := json.Unmarshal(b, &x); err != nil {
		return Line{}, fmt.Errorf("%w: %w", errLine, err)
	}
	l := Line{Skip: Skip{Range: Range{cluster.LSN(x.From), cluster.LSN(x.To)}, Count: x.Count}, UpTo: cluster.LSN(x.UpTo)}
	switch x.Kind {
	case "head":
		l.Kind = KindHead
		l.Head = Head{File: File{cluster.Epoch(x.Epoch), x.N}, Cluster: x.Cluster, After: cluster.LSN(x.After), Time: int64(x.Time)}
		if x.Format > Format {
			return l, fmt.Errorf("%w: its format is %d, this one knows %d", ErrNewer, x.Format, Format)
		}
	case "end":
		l.Kind, l.End = KindEnd, x.end()
		if x.LSN == 0 || x.Token == 0 || x.Lock == "" {
			return l, fmt.Errorf("%w: an end without lsn, token or lock", errLine)
		}
	case "skipped":
		l.Kind = KindSkipped
	case "gap":
		l.Kind = KindGap
	case "mark":
		l.Kind = KindMark
	case "":
		return l, errLine
	}
	if (l.Kind == KindGap || l.Kind == KindSkipped) && (x.From == 0 || x.From > x.To) {
		return l, errLine
	}
	return l, nil
}

// mostMilliseconds is the most that fit into a time.Duration.
const mostMilliseconds = int64(math.MaxInt64 / time.Millisecond)

func (x *wireLine) end() End {
	mode := locktable.ModeExclusive
	if x.Mode == modeShared {
		mode = locktable.ModeShared
	}
	return End{
		LSN: cluster.LSN(x.LSN), Epoch: cluster.Epoch(x.Epoch), Time: int64(x.Ended),
		Lock: cluster.LockName(x.Lock), Token: cluster.Token(x.Token), Granted: cluster.Epoch(x.Granted), Since: int64(x.Since),
		Client: cluster.ClientID(x.Client), Request: cluster.RequestID(x.Request),
		TTL: time.Duration(min(max(0, x.TTL), mostMilliseconds)) * time.Millisecond, Mode: mode, Permit: locktable.Permit{Limit: x.Limit, Weight: x.Weight}, Holder: locktable.Holder{Host: x.Host, PID: x.PID, Command: x.Command},
		Identity: x.Identity,
		Metadata: x.Metadata, Why: parseWhy(x.Why), Actor: x.Actor, Reason: x.Reason,
		Append:    Append{File: cluster.FileName(x.File), Offset: x.Offset, Length: x.Length, LSN: cluster.LSN(x.AppendLSN)},
		Successor: cluster.Token(x.Successor),
	}
}

// Covers returns the LSN up to which everything is in the history if this line is; 0 if the line
// does not imply it. A skipped line is before the ends that it counts between. An end that was
// cleared shares its LSN with others, which may follow.
func (l *Line) Covers() cluster.LSN {
	switch l.Kind {
	case KindHead:
		return l.Head.After
	case KindEnd:
		if l.cleared() {
			return l.End.LSN - 1
		}
		return l.End.LSN
	case KindGap:
		return l.Skip.To
	case KindMark:
		return l.UpTo
	}
	return 0
}

// cleared reports whether other ends of the same record may be beside the line.
func (l *Line) cleared() bool { return l.Kind == KindEnd && l.End.Why == WhyCleared }
