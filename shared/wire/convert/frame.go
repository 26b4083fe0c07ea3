// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"hash/crc32"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// maxNames is how many names a Names keeps.
const maxNames = 4096

// Names caches names of locks and files, and client IDs, so that repeated ones share one string. It belongs to
// one goroutine.
type Names map[string]string

func (n Names) of(text []byte) string {
	if name, ok := n[string(text)]; ok {
		return name
	}
	name := string(text)
	if len(name) > max(cluster.MaxLockName, cluster.MaxFileName) {
		return name // it will be refused
	}
	if len(n) >= maxNames {
		clear(n)
	}
	n[name] = name
	return name
}

// EachOperation calls f with each operation of an encoded SessionRequest that has nothing else, as
// wire.CountOnly reports. Plain acquires, releases and appends come as frames, others as op. The
// arguments are valid until f returns; the data of appends stays, so b must not be used again.
func EachOperation(b []byte, f func(plain *wire.OperationFrame, op *pb.Operation)) error {
	var plain wire.OperationFrame
	for len(b) > 0 {
		_, _, text, rest, err := wire.NextField(b)
		if err != nil {
			return err
		}
		ok, err := plain.Decode(text)
		switch {
		case err != nil:
			return err
		case ok:
			f(&plain, nil)
		default:
			op := &pb.Operation{}
			if err := proto.Unmarshal(text, op); err != nil {
				return err
			}
			f(nil, op)
		}
		b = rest
	}
	return nil
}

// FromFrame sets r to the request of a plain operation, like Into.
func FromFrame(r *locktable.Request, o *wire.OperationFrame, client cluster.ClientID, names Names) error {
	if named := len(o.Client) > 0; named && string(o.Client) != string(client) || !named && o.RequestID == 0 {
		client = cluster.ClientID(names.of(o.Client)) // each wait of a client library has an ID of its own
	}
	op := locktable.OpAcquire
	switch o.Kind {
	case wire.OperationRelease:
		op = locktable.OpRelease
	case wire.OperationAppend:
		op = locktable.OpAppend
	}
	if err := fill(r, op, string(client), o.RequestID, o.LowWater); err != nil {
		return err
	}
	r.Lock, r.Token = cluster.LockName(names.of(o.Lock)), cluster.Token(o.Token)
	switch op {
	case locktable.OpAcquire:
		return fillTimes(r, o.TTLMillis, o.WaitMillis)
	case locktable.OpAppend:
		r.File, r.Data, r.AdoptExisting, r.CRC = cluster.FileName(names.of(o.File)), o.Data, o.Adopt, o.CRC32C
		if !o.HasCRC {
			r.CRC = crc32.Checksum(r.Data, crc32.MakeTable(crc32.Castagnoli))
		}
	}
	return nil
}

// AppendOutcome appends the outcome of an operation to an encoded SessionResponse, without what
// the operation named. It returns false if the outcome has other fields: then use FromOutcome.
func AppendOutcome(b []byte, correlation uint64, out *locktable.Outcome) ([]byte, bool) {
	if out.Holder != nil || out.Committed || out.Ask != nil || out.Marked || out.Permit.Limit != 0 || out.Status == cluster.StatusWrongCell {
		return b, false
	}
	a := wire.AnswerFrame{
		Status: pb.Status(out.Status), Message: strings.ToValidUTF8(out.Message, "?"), Correlation: correlation,
		Epoch: uint64(out.Epoch), LSN: uint64(out.LSN), Token: uint64(out.Token),
		Protected: out.Client != "" && !out.Client.Anonymous(), Repeat: out.Repeat,
		TTLMillis: wire.FloorMillis(out.TTL), QueueLength: uint32(out.QueueLength),
	}
	if tellsFile(out) {
		a.Receipt = wire.ReceiptFrame{
			File: string(out.File), Offset: out.Offset, Length: out.Length, CRC32C: out.CRC, Generation: uint64(out.Generation),
		}
	}
	return a.AppendTo(b), true
}
