// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func TestMain(m *testing.M) {
	flag.Bool("rewrite", false, "write the transcripts of testdata anew")
	flag.Parse()
	os.Exit(m.Run())
}

// Each testdata/*.txt is a story: commands at the start of a line, what they gave
// indented below. Write commands, run with -rewrite, and read the diff like prose.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := &story{harness: newHarness(t)}
			for line := range strings.Lines(string(want)) {
				if strings.HasPrefix(line, "  ") {
					continue
				}
				s.out.WriteString(line)
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					s.tell(strings.Fields(line))
				}
			}
			s.reload()
			if flag.Lookup("rewrite").Value.String() == "true" {
				if err := os.WriteFile(path, []byte(s.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got := s.out.String(); got != string(want) {
				t.Errorf("%s differs; run with -rewrite and compare. Got:\n%s", path, got)
			}
		})
	}
}

// story runs the commands of one transcript.
type story struct {
	*harness
	out   strings.Builder
	words []string          // of the command
	opts  map[string]string // key=value words of the command
}

func (s *story) printf(format string, args ...any) {
	s.out.WriteString("  " + fmt.Sprintf(format, args...) + "\n")
}

// word is the n-th plain word behind the command, "" if there is none.
func (s *story) word(n int) string {
	if n < len(s.words) {
		return s.words[n]
	}
	return ""
}

func (s *story) number(text string) uint64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		s.tb.Fatalf("%v: %v", s.words, err)
	}
	return n
}

func (s *story) span(key string, otherwise time.Duration) time.Duration {
	text, given := s.opts[key]
	if !given {
		return otherwise
	}
	var d locktable.Span
	if err := d.UnmarshalText([]byte(text)); err != nil {
		s.tb.Fatalf("%v: %v", s.words, err)
	}
	return time.Duration(d)
}

func (s *story) tell(words []string) {
	s.words, s.opts = nil, map[string]string{}
	for _, word := range words {
		if key, val, isOpt := strings.Cut(word, "="); isOpt {
			s.opts[key] = val
		} else {
			s.words = append(s.words, word)
		}
	}
	t, e := s.table, s.epoch
	client, id := cluster.ClientID(s.word(1)), cluster.RequestID(0)
	if n, err := strconv.ParseUint(s.word(2), 10, 64); err == nil {
		id = cluster.RequestID(n)
	}
	switch s.word(0) {
	case "expire":
		s.time(t.DecideExpire(cluster.LockName(s.word(1)), cluster.Token(id), "", e, nil))
	case "timeout":
		s.time(t.DecideWaitTimeout(client, id, e, nil))
	case "forget":
		s.time(t.DecideForget(client, e, nil))
	case "force-clear":
		s.time(t.DecideForceClear(e, nil))
	case "quarantine":
		s.time(t.DecideQuarantine(cluster.FileName(s.word(1)), s.word(2), e, nil))
	case "term":
		s.epoch++
		s.time(t.DecideTerm(cluster.ServerID(s.number(s.word(1))), s.epoch, nil))
	case "forget-marks":
		s.time(t.DecideForgetMarks(cluster.LSN(s.number(s.word(1))), e, nil))
	case "owed":
		s.time(t.DecideOwed(e, nil))
	case "able":
		s.time(t.DecideMember(cluster.ServerID(s.number(s.word(1))), e, nil))
	case "own":
		s.time(t.DecideOwn(own(s.tb, cluster.CellID(s.number(s.word(1)))), e, nil))
	case "resign":
		s.time(t.DecideHandover(s.word(1), e, nil))
	case "lookup":
		state, out := t.Lookup(client, id)
		s.printf("state %d%s", state, answer(out))
	case "show":
		for entity := range t.Export() {
			line, err := json.Marshal(entity)
			if err != nil {
				s.tb.Fatal(err)
			}
			s.printf("%s", line)
		}
	case "restore":
		s.reload()
		restored, err := overJSON(t)
		if err != nil {
			s.tb.Fatal(err)
		}
		s.table = restored
	default:
		s.request(client, id)
	}
}

// request builds and decides a request: OP CLIENT ID LOCK TOKEN FILE DATA.
func (s *story) request(client cluster.ClientID, id cluster.RequestID) {
	q := locktable.Request{
		Client: client, ID: id, LowWater: cluster.RequestID(s.number(s.opts["low"])),
		Lock: cluster.LockName(s.word(3)), Token: cluster.Token(s.number(s.word(4))), File: cluster.FileName(s.word(5)),
		AdoptExisting: s.opts["adopt"] == "yes", Actor: s.opts["actor"], Reason: s.opts["reason"],
	}
	switch s.word(0) {
	case "acquire":
		q.Op, q.TTL, q.Wait = locktable.OpAcquire, s.span("ttl", 10*time.Second), s.span("wait", 0)
		q.Holder.Host, q.MaxHold = s.opts["host"], s.span("max", 0)
		q.Slot = cluster.Slot(s.opts["once"])
		q.After, q.Remember, q.Level = cluster.Token(s.number(s.opts["after"])), s.opts["remember"] == "yes", uint32(s.number(s.opts["level"]))
		q.Permit = locktable.Permit{Limit: uint32(s.number(s.opts["limit"])), Weight: uint32(s.number(s.opts["weight"]))}
		if q.Permit.Limit > 0 && s.opts["weight"] == "" {
			q.Permit.Weight = 1
		}
		if s.opts["mode"] == "shared" {
			q.Mode = locktable.ModeShared
		}
	case "extend":
		q.Op, q.TTL = locktable.OpExtend, s.span("ttl", 0)
	case "append":
		adopt, low := q.AdoptExisting, q.LowWater
		q = appendTo(client, id, q.Lock, q.Token, q.File, s.word(6))
		q.AdoptExisting, q.LowWater = adopt, low
	case "members": // members CLIENT ID add|set|remove SERVER CLIENT-ADDRESS PEER-ADDRESS
		q = locktable.Request{Op: locktable.OpMembers, Client: client, ID: id, LowWater: q.LowWater, Level: uint32(s.number(s.opts["level"]))}
		q.Members = &locktable.MembersRequest{First: firstServers(), Change: cluster.MemberChange{
			Kind:      map[string]cluster.ChangeKind{"add": cluster.AddServer, "set": cluster.SetServer, "remove": cluster.RemoveServer}[s.word(3)],
			Server:    cluster.Member{ID: cluster.ServerID(s.number(s.word(4))), Client: s.word(5), Peer: s.word(6)},
			IfVersion: s.number(s.opts["if-version"]),
		}}
	case "open":
		q = locktable.Request{Op: locktable.OpOpenClient, Nonce: s.number(s.word(1))}
	case "release":
		q.Op, q.Done = locktable.OpRelease, s.opts["done"] == "yes"
	case "cancel":
		q.Op, q.ID, q.Target = locktable.OpCancel, 0, id
	default:
		for op := locktable.OpAcquire; op <= locktable.OpExtend; op++ {
			if op.String() == s.word(0) {
				q.Op = op
			}
		}
		if q.Op == 0 {
			s.tb.Fatalf("unknown command %q", s.words)
		}
	}
	q.Identity = s.opts["as"]
	dec, recs := s.do(q, locktable.FileFacts{Inode: s.number(s.opts["inode"]), Size: int64(s.number(s.opts["size"]))})
	for i := range recs {
		s.record(&recs[i])
	}
	if dec.Pending {
		s.printf("pending, queue length %d", dec.Outcome.QueueLength)
		return
	}
	s.printf("%v%s", dec.Outcome.Status, answer(dec.Outcome))
}

// time applies and prints the records of a decision that no request asked for.
func (s *story) time(recs []record) {
	s.apply(recs)
	if len(recs) == 0 {
		s.printf("nothing")
	}
	for i := range recs {
		s.record(&recs[i])
	}
}

// record prints a record and, if it answers a waiter, the answer.
func (s *story) record(r *record) {
	line := fmt.Sprintf("record %d %v", r.LSN, r.Kind)
	for _, f := range []struct {
		name string
		used bool
		val  any
	}{
		{"client", r.Client != "", r.Client}, {"request", r.Request != 0, r.Request}, {"low", r.LowWater != 0, r.LowWater},
		{"lock", r.Lock != "", r.Lock}, {"token", r.Token != 0, r.Token}, {"ttl", r.TTL != 0, r.TTL}, {"mode", r.Mode != 0, "shared"}, {"permit", r.Permit.Limit != 0, fmt.Sprintf("%d/%d", r.Permit.Weight, r.Permit.Limit)}, {"wait", r.Wait != 0, r.Wait},
		{"host", r.Holder.Host != "", r.Holder.Host}, {"file", r.File != "", r.File}, {"inode", r.Inode != 0, r.Inode},
		{"generation", r.Generation != 0, r.Generation}, {"offset", r.File != "" && r.Length > 0, r.Offset}, {"length", r.Length != 0, r.Length},
		{"actor", r.Actor != "", r.Actor}, {"reason", r.Reason != "", r.Reason}, {"server", r.Server != 0, r.Server}, {"members", r.Members != "", r.Members}, {"own", r.Own != "", r.Own}, {"remember", r.Remember, r.Remember}, {"after", r.After != 0, r.After}, {"slot", r.Slot != "", r.Slot}, {"identity", r.Identity != "", r.Identity},
	} {
		if f.used {
			line += fmt.Sprintf(" %s=%v", f.name, f.val)
		}
	}
	s.printf("%s", line)
}

// answer prints what an outcome says beside its status.
func answer(o locktable.Outcome) (line string) {
	if o.Client != "" && o.Request == 0 {
		line += fmt.Sprintf(" client=%s", o.Client)
	}
	if o.Token != 0 {
		line += fmt.Sprintf(" token=%d", o.Token)
	}
	if o.Version != 0 {
		line += fmt.Sprintf(" version=%d", o.Version)
	}
	if o.Status == cluster.StatusWrongCell {
		line += fmt.Sprintf(" cell=%d", o.Cell)
	}
	if o.Length > 0 {
		line += fmt.Sprintf(" file=%s generation=%d offset=%d length=%d", o.File, o.Generation, o.Offset, o.Length)
	}
	if o.Permit.Limit != 0 {
		line += fmt.Sprintf(" permit=%d/%d", o.Permit.Weight, o.Permit.Limit)
	}
	if o.Holder != nil {
		line += fmt.Sprintf(" holder=%s/%d host=%s", o.Holder.Client, o.Holder.Token, o.Holder.Holder.Host)
	}
	if o.Holder != nil && o.Holder.Count > 1 {
		line += fmt.Sprintf(" and %d more", o.Holder.Count-1)
	}
	if o.QueueLength > 0 {
		line += fmt.Sprintf(" queue=%d", o.QueueLength)
	}
	if o.Repeat {
		line += " (repeat)"
	}
	if o.Message != "" {
		line += ": " + o.Message
	}
	return line
}
