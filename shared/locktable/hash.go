// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The state hash is the sum, modulo 2^64, of the hashes of all entities: grants,
// phases, waiters, files, clients, receipts, what is remembered of ended bindings, the level, the list of servers, marks of locks, and what the cell owns. Each
// begins with a byte of its own kind and names all it belongs to, so that no two entities have
// the same encoding.
const (
	tagGrant   = 'G'
	tagPhase   = 'P'
	tagWaiter  = 'W'
	tagFile    = 'F'
	tagClient  = 'C'
	tagReceipt = 'R'
	tagPast    = 'B'
	tagUsed    = 'U'
	tagLost    = 'L'
	tagLevel   = 'V'
	tagMembers = 'M'
	tagMark    = 'K'
	tagOwn     = 'O'
)

// OlderHash returns the hash as older binaries computed it, which did not keep Since and Lost of
// a file.
func (t *Table) OlderHash() uint64 {
	h := t.hash
	for _, f := range t.files { // a sum: the order does not matter
		h -= t.sum(f.appendTo)
		older := *f
		older.Since, older.Lost = 0, lostList{}
		h += t.sum(older.appendTo)
	}
	return h
}

// sum hashes one entity.
func (t *Table) sum(appendTo func([]byte) []byte) uint64 {
	t.scratch = appendTo(t.scratch[:0])
	return xxhash.Sum64(t.scratch)
}

func (t *Table) sumReceipt(c *client, rc *receipt) uint64 {
	t.scratch = rc.appendTo(t.scratch[:0], c)
	return xxhash.Sum64(t.scratch)
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendText[S ~string](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (h *Holder) appendTo(b []byte) []byte {
	b = appendText(b, h.Host)
	b = appendNumbers(b, uint64(h.PID))
	return appendText(b, h.Command)
}

func (l *lock) appendGrant(b []byte) []byte {
	b = appendText(append(b, tagGrant), l.name)
	b = appendText(b, l.client.id)
	b = appendNumbers(b, uint64(l.token), uint64(l.epoch), uint64(l.request), uint64(l.ttl), uint64(l.mode))
	b = appendLimits(l.holder.appendTo(b), l.grantParams)
	// Fields that came later are left out where they are not used: older states keep their hash.
	if x := l.grant; x != nil {
		b = appendSlot(appendMetadata(b, x.metadata), x.slot)
		if a := x.ask; a != nil {
			b = appendNumbers(append(b, 'a'), uint64(a.LSN), uint64(a.Grace))
			b = appendText(appendText(b, a.Actor), a.Reason)
		}
	}
	return b
}

func appendLimits(b []byte, x *grantParams) []byte {
	if x.maxHold != 0 {
		b = appendNumbers(append(b, 'x'), uint64(x.maxHold))
	}
	if x.heartbeat {
		b = append(b, 'h')
	}
	if x.remember {
		b = append(b, 'r')
	}
	return appendPermit(b, x.permit)
}

// appendPhase encodes a phase that is not granted in full.
func (l *lock) appendPhase(b []byte) []byte {
	return appendNumbers(appendText(append(b, tagPhase), l.name), uint64(l.sharing.phase))
}

func appendMetadata(b []byte, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(append(b, 'm'), s)
}

func appendSlot(b []byte, s cluster.Slot) []byte {
	if s == "" {
		return b
	}
	return appendText(append(b, 's'), s)
}

func (w *waiter) appendTo(b []byte) []byte {
	b = appendText(append(b, tagWaiter), w.lock.name)
	b = appendText(b, w.client.id)
	b = appendNumbers(b, uint64(w.request), w.hash, uint64(w.lsn), uint64(w.epoch), uint64(w.ttl), uint64(w.wait), uint64(w.mode))
	return appendSlot(appendMetadata(appendLimits(w.holder.appendTo(b), w.grantParams), w.metadata), w.slot)
}

func (f *file) appendTo(b []byte) []byte {
	b = appendText(append(b, tagFile), f.name)
	b = appendText(b, f.Lock)
	b = appendNumbers(b, f.Inode, uint64(f.Generation), uint64(f.Start), uint64(f.End),
		uint64(f.LastOffset), uint64(f.LastLength), uint64(f.LastCRC), uint64(f.LastLSN))
	quarantined := byte(0)
	if f.Quarantined {
		quarantined = 1
	}
	b = appendText(append(b, quarantined), f.Reason)
	if f.Since != 0 {
		b = appendNumbers(append(b, 'b'), uint64(f.Since))
	}
	if f.Sealed {
		b = append(b, 's')
	}
	return f.Lost.appendTo(b)
}

func (c *client) appendTo(b []byte) []byte {
	b = appendText(append(b, tagClient), c.id)
	return appendNumbers(b, c.nonce, uint64(c.lowWater), uint64(c.dropped))
}

func (rc *receipt) appendTo(b []byte, c *client) []byte {
	b = appendText(append(b, tagReceipt), c.id)
	b = appendNumbers(b, uint64(rc.request), rc.hash, uint64(rc.lsn), uint64(rc.epoch), uint64(rc.token), uint64(rc.kind))
	b = appendText(b, rc.lock)
	if f := rc.file; f != nil {
		b = appendText(b, f.name)
		b = appendNumbers(b, uint64(f.generation), uint64(f.offset), uint64(f.length), uint64(f.crc))
	}
	return b
}
