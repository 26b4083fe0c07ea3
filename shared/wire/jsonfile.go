// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/holdfast-lock/holdfast/shared/wire/pb"

// FilesBody is a page of protected files. Next is "" on the last one.
type FilesBody struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	Epoch   uint64     `json:"epoch"`
	LSN     uint64     `json:"lsn"`
	Age     string     `json:"age"`
	Files   []FileBody `json:"files"`
	Next    string     `json:"next"`
}

// FilesBodyOf converts a page of protected files.
func FilesBodyOf(r *pb.ListFilesResponse) FilesBody {
	b := FilesBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Epoch: r.GetEpoch(), LSN: r.GetLsn(),
		Age: duration(r.GetAgeMs()), Files: make([]FileBody, len(r.GetFiles())), Next: r.GetNext(),
	}
	for i, f := range r.GetFiles() {
		b.Files[i] = fileBody(f)
	}
	return b
}

func fileBody(f *pb.File) FileBody {
	return FileBody{
		File: f.GetName(), Lock: f.GetLock(), Generation: f.GetGeneration(), Start: f.GetStart(), End: f.GetEnd(),
		LastOffset: f.GetLastOffset(), LastLength: f.GetLastLength(), LastCRC32C: f.GetLastCrc32C(), LastLSN: f.GetLastLsn(),
		Quarantined: f.GetQuarantined(), Reason: f.GetReason(), Sealed: f.GetSealed(),
	}
}

// BlameBody lists which appends wrote bytes of a protected file. Next is the offset of the next
// page, 0 on the last one.
type BlameBody struct {
	Status     string        `json:"status"`
	Message    string        `json:"message"`
	Epoch      uint64        `json:"epoch"`
	LSN        uint64        `json:"lsn"`
	Age        string        `json:"age"`
	File       string        `json:"file"`
	Generation uint64        `json:"generation"`
	Pieces     []BlamedPiece `json:"pieces"`
	Next       int64         `json:"next"`
}

// BlamedPiece is one append, or bytes of which the index has no entry.
type BlamedPiece struct {
	Offset    int64  `json:"offset"`
	Length    int64  `json:"length"`
	Indexed   bool   `json:"indexed"`
	CRC32C    uint32 `json:"crc32c"`
	LSN       uint64 `json:"lsn"`
	Token     uint64 `json:"token"`
	Epoch     uint64 `json:"epoch"`
	ClientID  string `json:"client_id"`
	RequestID uint64 `json:"request_id"`
	Identity  string `json:"identity"`
	Time      Moment `json:"time"` // by the primary's clock
}

// BlameBodyOf converts a page of blame.
func BlameBodyOf(r *pb.BlameFileResponse) BlameBody {
	b := BlameBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Epoch: r.GetEpoch(), LSN: r.GetLsn(),
		Age: duration(r.GetAgeMs()), File: r.GetFile(), Generation: r.GetGeneration(),
		Pieces: make([]BlamedPiece, len(r.GetPieces())), Next: r.GetNext(),
	}
	for i, p := range r.GetPieces() {
		b.Pieces[i] = BlamedPiece{
			Offset: p.GetOffset(), Length: p.GetLength(), Indexed: p.GetLsn() != 0, CRC32C: p.GetCrc32C(), LSN: p.GetLsn(),
			Token: p.GetToken(), Epoch: p.GetEpoch(), ClientID: p.GetClientId(), RequestID: p.GetRequestId(), Identity: p.GetIdentity(), Time: Moment(p.GetUnixMs()),
		}
	}
	return b
}
