// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// An index file is a sequence of blocks, each written at once: the word "hfx1" or "hfx2", the
// length of the payload and its CRC-32C as little-endian 32-bit numbers, the payload. It ends
// at the first block that is not whole. A payload is a sequence of entries:
//
//	file        uvarint: the number of the name in this block, from 1; 0 = a new one follows
//	            as its length and its bytes
//	generation  zigzag varint, from the file's entry before in this block, like all that follow
//	offset      zigzag varint, from where the file's entry before ended
//	length      uvarint
//	crc         32 bits
//	token       zigzag varint, from the file's entry before
//	client      as file; in an "hfx2" block, a new one is followed by the length and the bytes of
//	            its identity, and the same client with another identity is another one
//	request     zigzag varint, from the client's entry before
//	lsn, epoch, time
//	            zigzag varints, from the entry before
//
// What is not there before counts as 0. An append takes some 20 bytes. Servers from before there were identities read
// an index up to its first "hfx2" block; so there is none where nobody shows a credential.

// Entry is one append as the index tells it: where its bytes are, and whose they are.
type Entry struct {
	File       cluster.FileName   `json:"file"`
	Generation cluster.Generation `json:"generation"`
	Offset     int64              `json:"offset"`
	Length     int64              `json:"length"`
	CRC        uint32             `json:"crc32c"`
	LSN        cluster.LSN        `json:"lsn"`
	Token      cluster.Token      `json:"token"`
	Epoch      cluster.Epoch      `json:"epoch"`
	Client     cluster.ClientID   `json:"client_id"`
	Request    cluster.RequestID  `json:"request_id"`
	// Identity is whom the client belonged to, "" for nobody.
	Identity string `json:"identity,omitempty"`
	// Time is when it was decided, in milliseconds since 1970; 0 where that is not known.
	Time int64 `json:"unix_ms"`
}

// EntryOf returns the entry of an append, from its record.
func EntryOf(r *locktable.Record) Entry {
	return Entry{
		File: r.File, Generation: r.Generation, Offset: r.Offset, Length: r.Length, CRC: r.CRC,
		LSN: r.LSN, Token: r.Token, Epoch: r.Epoch, Client: r.Client, Request: r.Request, Identity: r.Identity, Time: r.Time,
	}
}

// End returns the offset after the append.
func (e *Entry) End() int64 { return e.Offset + e.Length }

const (
	plainMagic  = "hfx1"
	ownedMagic  = "hfx2" // clients have identities
	indexHeader = 12
	// maxIndexBlock bounds the payload of a block that is read, in bytes.
	maxIndexBlock = 16 << 20
	// blockEntries bounds the entries of a block that is written. With the longest names, all different, they
	// have less than 4 MiB.
	blockEntries = 4096
)

// errIndexEnd says that an index ends here.
var errIndexEnd = errors.New("no whole block of an index")

// indexState is what entries of one block are told from.
type state struct {
	owned   bool // it is an "hfx2" block
	files   map[cluster.FileName]int
	clients map[owned]int
	ofFile  []Entry // the last of each
	request []cluster.RequestID
	names   []owned
	last    Entry
}

// owned is a client with its identity.
type owned struct {
	client   cluster.ClientID
	identity string
}

func newState() *state {
	return &state{files: map[cluster.FileName]int{}, clients: map[owned]int{}}
}

// appendIndexBlock appends a block of these entries.
func appendBlock(b []byte, entries []Entry) []byte {
	start := len(b)
	s, magic := newState(), plainMagic
	if s.owned = slices.ContainsFunc(entries, func(e Entry) bool { return e.Identity != "" }); s.owned {
		magic = ownedMagic
	}
	b = append(b, magic+"12345678"...)
	for i := range entries {
		b = s.append(b, &entries[i])
	}
	payload := b[start+indexHeader:]
	binary.LittleEndian.PutUint32(b[start+4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+8:], crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func (s *state) append(b []byte, e *Entry) []byte {
	f, known := s.files[e.File]
	if !known {
		f = len(s.ofFile)
		s.files[e.File], s.ofFile = f, append(s.ofFile, Entry{})
		b = appendName(b, string(e.File))
	} else {
		b = binary.AppendUvarint(b, uint64(f)+1)
	}
	p := &s.ofFile[f]
	b = binary.AppendVarint(b, int64(e.Generation-p.Generation))
	b = binary.AppendVarint(b, e.Offset-p.End())
	b = binary.AppendUvarint(b, uint64(e.Length))
	b = binary.LittleEndian.AppendUint32(b, e.CRC)
	b = binary.AppendVarint(b, int64(e.Token-p.Token))
	*p = *e
	who := owned{e.Client, e.Identity}
	c, known := s.clients[who]
	if !known {
		c = len(s.request)
		s.clients[who], s.request = c, append(s.request, 0)
		b = appendName(b, string(e.Client))
		if s.owned {
			b = append(binary.AppendUvarint(b, uint64(len(e.Identity))), e.Identity...)
		}
	} else {
		b = binary.AppendUvarint(b, uint64(c)+1)
	}
	b = binary.AppendVarint(b, int64(e.Request-s.request[c]))
	s.request[c] = e.Request
	b = binary.AppendVarint(b, int64(e.LSN-s.last.LSN))
	b = binary.AppendVarint(b, int64(e.Epoch-s.last.Epoch))
	b = binary.AppendVarint(b, e.Time-s.last.Time)
	s.last = *e
	return b
}

func appendName(b []byte, name string) []byte {
	b = binary.AppendUvarint(append(b, 0), uint64(len(name)))
	return append(b, name...)
}

// Decode decodes the first block of b and returns its entries and what follows it. Returns an error if b
// does not begin with a whole block.
func Decode(b []byte) (entries []Entry, rest []byte, err error) {
	if len(b) < indexHeader {
		return nil, nil, errIndexEnd
	}
	s, magic := newState(), string(b[:4])
	if s.owned = magic == ownedMagic; !s.owned && magic != plainMagic {
		return nil, nil, errIndexEnd
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if n > maxIndexBlock || n > len(b)-indexHeader {
		return nil, nil, errIndexEnd
	}
	payload, rest := b[indexHeader:indexHeader+n], b[indexHeader+n:]
	if crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, nil, errIndexEnd
	}
	d := &decoder{b: payload}
	for len(d.b) > 0 {
		e := s.decode(d)
		if d.bad || e.File.Validate() != nil || e.Length <= 0 || e.Length > cluster.MaxAppend || e.Offset < 0 || e.End() < 0 || e.Generation == 0 || e.LSN == 0 {
			return nil, nil, fmt.Errorf("%w: entry %d is malformed", errIndexEnd, len(entries))
		}
		entries = append(entries, e)
	}
	return entries, rest, nil
}

func (s *state) decode(d *decoder) (e Entry) {
	f, name, fresh := d.name(len(s.ofFile))
	if fresh {
		s.ofFile = append(s.ofFile, Entry{File: cluster.FileName(name)})
	}
	if d.bad {
		return e
	}
	p := &s.ofFile[f]
	e.File = p.File
	e.Generation = p.Generation + cluster.Generation(d.varint())
	e.Offset = p.End() + d.varint()
	e.Length = int64(d.uvarint())
	e.CRC = d.fixed32()
	e.Token = p.Token + cluster.Token(d.varint())
	c, name, fresh := d.name(len(s.request))
	if fresh {
		who := owned{client: cluster.ClientID(name)}
		if s.owned {
			who.identity = d.text()
		}
		s.request, s.names = append(s.request, 0), append(s.names, who)
	}
	if d.bad {
		return e
	}
	e.Client, e.Identity = s.names[c].client, s.names[c].identity
	e.Request = s.request[c] + cluster.RequestID(d.varint())
	e.LSN = s.last.LSN + cluster.LSN(d.varint())
	e.Epoch = s.last.Epoch + cluster.Epoch(d.varint())
	e.Time = s.last.Time + d.varint()
	*p, s.request[c], s.last = e, e.Request, e
	return e
}

// indexDecoder takes numbers and names from the front of b.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) skip(n int) {
	if n <= 0 || n > len(d.b) {
		d.b, d.bad = nil, true
		return
	}
	d.b = d.b[n:]
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) fixed32() uint32 {
	if len(d.b) < 4 {
		d.b, d.bad = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint32(d.b)
	d.skip(4)
	return v
}

// name takes the number of a name, of which there are known ones, or a fresh one.
func (d *decoder) name(known int) (number int, name string, fresh bool) {
	ref := d.uvarint()
	if ref > 0 {
		if ref > uint64(known) {
			d.b, d.bad = nil, true
			return 0, "", false
		}
		return int(ref - 1), "", false
	}
	name = d.text()
	return known, name, !d.bad
}

// text takes a text behind its length.
func (d *decoder) text() string {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return ""
	}
	text := string(d.b[:n])
	d.b = d.b[n:]
	return text
}
