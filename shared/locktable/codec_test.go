// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// samples has a record of every kind, with every field its kind can use.
func samples() []record {
	holder := locktable.Holder{Host: "node-7", PID: 4711, Command: "make é"}
	req := record{LSN: 1 << 40, Epoch: 7, Client: "@12", Request: 300, LowWater: 299, Hash: 0xfedcba9876543210, Lock: "billing/job"}
	of := func(kind locktable.Kind, change func(r *record)) record {
		r := req
		r.Kind = kind
		change(&r)
		return r
	}
	bare := func(kind locktable.Kind, change func(r *record)) record {
		r := record{LSN: 1 << 40, Epoch: 7, Kind: kind}
		change(&r)
		return r
	}
	return []record{
		of(locktable.KindGrant, func(r *record) { r.TTL, r.Mode, r.Holder = 30*time.Second, locktable.ModeShared, holder }),
		of(locktable.KindEnqueue, func(r *record) {
			r.TTL, r.Wait, r.Holder, r.MaxHold, r.Heartbeat = 30*time.Second, forever, holder, time.Hour, true
		}),
		of(locktable.KindRelease, func(r *record) { r.Token = 1 << 33 }),
		bare(locktable.KindExpire, func(r *record) { r.Lock, r.Token, r.Reason = "x", 1, "held for an hour" }),
		bare(locktable.KindWaitTimeout, func(r *record) { r.Lock, r.Client, r.Request = "x", "~y", 1 }),
		bare(locktable.KindCancel, func(r *record) { r.Client, r.Request, r.LowWater, r.Lock = "curl", 9, 9, "x" }),
		of(locktable.KindAppend, func(r *record) {
			r.Token, r.File, r.Generation, r.Offset, r.Length, r.CRC = 5, "a/b", 3, 1<<62, cluster.MaxAppend, 0xdeadbeef
		}),
		of(locktable.KindBind, func(r *record) { r.Token, r.File, r.Inode, r.Generation, r.Offset = 5, "a/b", 1<<64-1, 1, 9 }),
		of(locktable.KindGrant, func(r *record) { r.TTL, r.Remember, r.After = time.Second, true, 1<<40-1 }),
		of(locktable.KindEnqueue, func(r *record) { r.TTL, r.Wait, r.Remember = time.Second, forever, true }),
		of(locktable.KindRelease, func(r *record) { r.Token, r.Slot = 5, "2026-11-22T06:00:00Z" }),
		of(locktable.KindGrant, func(r *record) { r.TTL, r.Slot = time.Second, "build-10" }),
		of(locktable.KindGrant, func(r *record) {
			r.TTL, r.Mode, r.Permit = time.Second, locktable.ModeShared, locktable.Permit{Limit: 1<<32 - 1, Weight: 1<<32 - 1}
		}),
		of(locktable.KindEnqueue, func(r *record) {
			r.TTL, r.Wait, r.Mode, r.Permit = time.Second, forever, locktable.ModeShared, locktable.Permit{Limit: 3, Weight: 1}
		}),
		bare(locktable.KindSkip, func(r *record) { r.Lock, r.Client, r.Request = "x", "y", 1 }),
		bare(locktable.KindForgetMark, func(r *record) { r.Lock = "x" }),
		of(locktable.KindUnbind, func(r *record) { r.Token, r.File, r.Remember = 5, "a/b", true }),
		bare(locktable.KindQuarantine, func(r *record) { r.File, r.Generation, r.Reason = "a/b", 2, "foreign bytes" }),
		of(locktable.KindRotate, func(r *record) { r.Token, r.File, r.Inode, r.Generation = 5, "a/b", 12, 4 }),
		bare(locktable.KindForceClear, func(r *record) {}),
		of(locktable.KindBreak, func(r *record) { r.Token, r.Actor, r.Reason = 5, "root", "stuck" }),
		bare(locktable.KindOpenClient, func(r *record) { r.Nonce = 1 }),
		bare(locktable.KindOpenClient, func(r *record) { r.Nonce, r.Mark = 1, 0xdeadbeef }),
		bare(locktable.KindForgetClient, func(r *record) { r.Client = "curl" }),
		bare(locktable.KindHandedOver, func(r *record) { r.Reason = "handover" }),
		bare(locktable.KindTerm, func(r *record) { r.Server, r.Time = 3, 1<<41 }),
		of(locktable.KindMetadata, func(r *record) { r.Token, r.Metadata, r.Time = 5, `{"url":"http://é"}`, 1 }),
		of(locktable.KindAsk, func(r *record) { r.Token, r.Wait, r.Actor, r.Reason = 5, time.Minute, "root", "maintenance" }),
		of(locktable.KindSeal, func(r *record) { r.Token, r.File, r.Generation, r.Offset = 5, "a/b", 3, 1<<40 }),
		of(locktable.KindAlready, func(r *record) { r.Token, r.File, r.Generation, r.Offset = 5, "a/b", 3, 1<<40 }),
		bare(locktable.KindBreak, func(r *record) { r.Lock, r.Token, r.Actor = "x", 1, "root" }),
		of(locktable.KindDowngrade, func(r *record) { r.Token = 5 }),
		of(locktable.KindExtend, func(r *record) { r.Token, r.TTL = 5, time.Hour }),
		of(locktable.KindMembers, func(r *record) { r.Lock, r.Members = "", membersText }),
		bare(locktable.KindMembers, func(r *record) { r.Members = membersText }),
		bare(locktable.KindOwn, func(r *record) { r.Own = ownText }),
		bare(locktable.KindLevel, func(r *record) { r.Level, r.Version, r.Time = locktable.MaxLevel, "0.2.0 é", 1<<41 }),
		of(locktable.KindGrant, func(r *record) { r.TTL, r.Time, r.Identity = 30*time.Second, 1<<41, "cert:spiffe://é.org/a b" }),
		bare(locktable.KindOpenClient, func(r *record) { r.Nonce, r.Identity = 1, "user:alice" }),
	}
}

func TestCodecRoundTrip(t *testing.T) {
	seen := map[locktable.Kind]bool{}
	for _, r := range samples() {
		recode(t, &r)
		seen[r.Kind] = true
		if kind, ok := locktable.ParseKind(r.Kind.String()); !ok || kind != r.Kind {
			t.Errorf("kind %v does not survive its word", r.Kind)
		}
	}
	for _, k := range kinds() {
		if !seen[k] {
			t.Errorf("no sample of kind %v", k)
		}
	}
}

// level1 says why a binary of feature level 1 cannot decode a record: it knows fields up to 28
// and skips those from 64 on, and kinds up to 24.
func level1(r *record) error {
	for b := r.AppendHeader(nil); len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if b = b[n:]; num > 28 && num < 64 {
			return fmt.Errorf("LSN %d: %v has field %d", r.LSN, r.Kind, num)
		}
		if kind, _ := protowire.ConsumeVarint(b); num == 3 && kind > 24 {
			return fmt.Errorf("LSN %d is of kind %d", r.LSN, kind)
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}

// The format is for ever: these bytes must decode to this record in all versions.
func TestCodecGolden(t *testing.T) {
	const golden = "080510021801220161280130013909000000000000004202646250809dec84127a016d"
	r := record{
		LSN: 5, Epoch: 2, Kind: locktable.KindGrant, Client: "a", Request: 1, LowWater: 1, Hash: 9, Lock: "db",
		TTL: 2421 * time.Millisecond, Holder: locktable.Holder{Command: "m"},
	}
	if got := hex.EncodeToString(r.AppendHeader(nil)); got != golden {
		t.Errorf("encoding is %s, want %s", got, golden)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	r := samples()[0]
	good := r.AppendHeader(nil)
	for n := range len(good) {
		if _, err := locktable.DecodeHeader(good[:n]); err == nil && n > 0 {
			// A cut between fields may leave a shorter valid record, but not of this kind before its TTL.
			if rec, _ := locktable.DecodeHeader(good[:n]); rec.TTL == 0 {
				t.Errorf("%d of %d bytes were accepted", n, len(good))
			}
		}
	}
	field := func(num protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
	}
	clear := record{LSN: 1, Epoch: 1, Kind: locktable.KindForceClear}
	base := clear.AppendHeader(nil)
	for why, tc := range map[string]struct {
		b    []byte
		want error
	}{
		"unknown field":         {append(bytes.Clone(base), field(63, 1)...), locktable.ErrUnknownField},
		"first unknown field":   {append(bytes.Clone(base), field(38, 1)...), locktable.ErrUnknownField},
		"limit beyond its size": {append(bytes.Clone(base), field(36, 1<<32)...), locktable.ErrMalformed},
		"weight without limit":  {append(bytes.Clone(base), field(37, 1)...), locktable.ErrMalformed},
		"unknown field before":  {append(bytes.Clone(base), field(39, 1)...), locktable.ErrUnknownField},
		"unknown field behind":  {append(bytes.Clone(base), field(41, 1)...), locktable.ErrUnknownField},
		"a bad text of a cell":  {protowire.AppendString(protowire.AppendTag(append(bytes.Clone(base[:4]), field(3, 32)...), 40, protowire.BytesType), " "+ownText), locktable.ErrMalformed},
		"too high a level":      {append(append(bytes.Clone(base[:4]), field(3, 27)...), field(31, locktable.MaxLevel+1)...), locktable.ErrUnknownLevel},
		"a bad list of servers": {protowire.AppendString(protowire.AppendTag(append(bytes.Clone(base[:4]), field(3, 28)...), 33, protowire.BytesType), " "+membersText), locktable.ErrMalformed},
		"level beyond its size": {append(append(bytes.Clone(base[:4]), field(3, 27)...), field(31, 1<<32)...), locktable.ErrMalformed},
		"level of another kind": {append(bytes.Clone(base), field(31, 4)...), locktable.ErrMalformed},
		"raise to nothing":      {append(bytes.Clone(base[:4]), field(3, 27)...), locktable.ErrMalformed},
		"unknown kind":          {append(bytes.Clone(base[:4]), field(3, 21)...), locktable.ErrUnknownKind},
		"large unknown kind":    {append(bytes.Clone(base[:4]), field(3, 1<<20)...), locktable.ErrUnknownKind},
		"duplicate":             {append(bytes.Clone(base), field(3, 12)...), locktable.ErrMalformed},
		"descending":            {append(bytes.Clone(base), field(1, 1)...), locktable.ErrMalformed},
		"explicit zero":         {append(bytes.Clone(base), field(5, 0)...), locktable.ErrMalformed},
		"wrong wire type":       {append(bytes.Clone(base), protowire.AppendFixed32(protowire.AppendTag(nil, 5, protowire.Fixed32Type), 1)...), locktable.ErrMalformed},
		"number of fixed size":  {append(protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 1), base[2:]...), locktable.ErrMalformed},
		"overlong varint":       {append(bytes.Clone(base[:4]), 0x18, 0x8c, 0x00), locktable.ErrMalformed},
		"overlong tag":          {append(bytes.Clone(base[:4]), 0x98, 0x00, 0x0c), locktable.ErrMalformed},
		"truncated skippable":   {append(bytes.Clone(base), field(66, 300)[:3]...), locktable.ErrMalformed},
		"identity as a number":  {append(bytes.Clone(base), field(65, 300)...), locktable.ErrMalformed},
		"bad identity":          {protowire.AppendString(protowire.AppendTag(bytes.Clone(base), 65, protowire.BytesType), "user:a\n"), locktable.ErrMalformed},
		"negative time":         {append(bytes.Clone(base), field(64, 1<<63)...), locktable.ErrMalformed},
		"half a heartbeat":      {append(bytes.Clone(base), field(28, 2)...), locktable.ErrMalformed},
		"negative offset":       {append(bytes.Clone(base), field(19, 1<<63)...), locktable.ErrMalformed},
		"empty":                 {nil, locktable.ErrUnknownKind},
	} {
		if _, err := locktable.DecodeHeader(tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", why, err, tc.want)
		}
	}
	skipped, err := locktable.DecodeHeader(append(bytes.Clone(base), field(66, 300)...))
	if err != nil || skipped.Kind != locktable.KindForceClear {
		t.Errorf("a skippable field: %v", err)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.AppendHeader(nil))
	}
	f.Add([]byte{0x08, 1, 0x10, 1, 0x18, 12, 0x80, 0x04, 1})
	newer := record{LSN: 2, Epoch: 1, Kind: locktable.KindLevel, Level: locktable.MaxLevel + 1, Version: "9.9"}
	f.Add(newer.AppendHeader(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := locktable.DecodeHeader(b)
		if err != nil {
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("decoded an invalid record: %v", err)
		}
		again := r.AppendHeader(nil)
		back, err := locktable.DecodeHeader(again)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		if !bytes.Equal(back.AppendHeader(nil), again) {
			t.Fatal("not a fixpoint")
		}
		if !bytes.Equal(again, b) && !skips(b) {
			t.Fatalf("encoded %x, decoded from %x", again, b)
		}
	})
}

// skips reports whether b has a field that a decoder may skip.
func skips(b []byte) bool {
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 || num >= 64 {
			return n >= 0
		}
		b = b[n:]
	}
	return false
}

// Kind zero-values, statuses and requests have words for people.
func TestWords(t *testing.T) {
	for op := locktable.OpAcquire; op <= locktable.OpOpenClient; op++ {
		if op.String() == "" || op.String()[0] == 'o' && op != locktable.OpOpenClient {
			t.Errorf("operation %d has the word %q", op, op)
		}
	}
	if s := locktable.Op(0).String() + locktable.Kind(0).String(); s != "op(0)kind(0)" {
		t.Errorf("words of nothing: %q", s)
	}
	for _, d := range []time.Duration{forever, 0, 1, 1234567891, time.Hour + time.Nanosecond, 999 * time.Microsecond, 24 * time.Hour} {
		text, _ := locktable.Span(d).MarshalText()
		var back locktable.Span
		if err := back.UnmarshalText(text); err != nil || time.Duration(back) != d {
			t.Errorf("%v became %s, then %v: %v", d, text, time.Duration(back), err)
		}
	}
}
