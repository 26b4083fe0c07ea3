// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// The headers of a file's bytes, and the trailer of a follow that says why it ended.
const (
	headerGeneration = "Holdfast-Generation"
	headerOffset     = "Holdfast-Offset"
	headerEnd        = "Holdfast-End"
	headerSealed     = "Holdfast-Sealed"
	headerEpoch      = "Holdfast-Epoch"
	headerLSN        = "Holdfast-Lsn"
	trailerEnded     = "Holdfast-Ended"
)

func (h *Handler) listFiles(w http.ResponseWriter, r *http.Request) {
	q := &pb.ListFilesRequest{}
	if err := parameters(r, listParameters(&q.Prefix, &q.After, &q.Limit, &q.MinLsn, &q.PrimaryOnly)); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.ListFiles(r.Context(), q)
	h.sendRead(w, r, x, err, func() any { return wire.FilesBodyOf(x) })
}

func (h *Handler) blameFile(w http.ResponseWriter, r *http.Request) {
	q := &pb.BlameFileRequest{File: r.PathValue("name")}
	if err := parameters(r, map[string]func(string) error{
		"generation": number(&q.Generation), "offset": position(&q.Offset), "length": position(&q.Length), "limit": count(&q.Limit),
	}); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.BlameFile(r.Context(), q)
	h.sendRead(w, r, x, err, func() any { return wire.BlameBodyOf(x) })
}

// fileQuery is what a GET of a file asks for.
type fileQuery struct {
	generation    uint64
	offset, limit int64 // negative = not given
	follow        bool
}

func fileQueryOf(r *http.Request) (fileQuery, error) {
	q := fileQuery{offset: -1, limit: -1}
	err := parameters(r, map[string]func(string) error{
		"generation": number(&q.generation), "offset": position(&q.offset), "limit": position(&q.limit), "follow": yes(&q.follow),
	})
	if err == nil && q.follow && q.limit >= 0 {
		err = wire.Invalid("a follow has no limit: it ends when its client goes")
	}
	return q, err
}

func position(p *int64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return fmt.Errorf("%q is no whole number from 0 on", s)
		}
		*p = int64(n)
		return nil
	}
}

// readFile sends bytes of a protected file as they are. Only the primary can; a replica passes the
// request on.
func (h *Handler) readFile(w http.ResponseWriter, r *http.Request) {
	q, err := fileQueryOf(r)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	name := cluster.FileName(r.PathValue("name"))
	if q.follow {
		h.followFile(w, r, name, &q)
		return
	}
	from := max(q.offset, 0)
	ctx, leave := h.s.WhileReadable(r.Context(), name)
	defer leave()
	f, err := h.s.OpenFile(ctx, name, cluster.Generation(q.generation), from)
	if err != nil {
		h.refuseRead(w, r, err)
		return
	}
	defer f.Close()
	state := f.State()
	n := state.End - from
	if q.limit >= 0 {
		n = min(n, q.limit)
	}
	contentHeaders(w.Header(), f.Response(from))
	w.Header().Set("Etag", fmt.Sprintf(`"%s-%d-%d-%d"`, name, state.Generation, state.Inode, state.Since))
	r.Header.Del("If-None-Match") // the generation is the same, and may have grown
	content := &fileContent{ctx: ctx, w: http.NewResponseController(w), f: f, from: from, size: n}
	http.ServeContent(w, r, "", time.Time{}, content)
	if content.err != nil {
		h.opt.Log.Warn().Err(content.err).Str("file", string(name)).Msg("read of a protected file broke off")
		panic(http.ErrAbortHandler)
	}
}

func contentHeaders(x http.Header, r *pb.ReadFileResponse) {
	x.Set("Content-Type", "application/octet-stream")
	x.Set("X-Content-Type-Options", "nosniff") // the bytes may be anything, from any client
	x.Set("Cache-Control", "no-store")
	x.Set(headerGeneration, fmt.Sprint(r.GetGeneration()))
	x.Set(headerOffset, fmt.Sprint(r.GetOffset()))
	x.Set(headerEnd, fmt.Sprint(r.GetEnd()))
	x.Set(headerSealed, strconv.FormatBool(r.GetSealed()))
	x.Set(headerEpoch, fmt.Sprint(r.GetEpoch()))
	x.Set(headerLSN, fmt.Sprint(r.GetLsn()))
}

// refuseRead answers a read that was refused with err, or has the primary answer.
func (h *Handler) refuseRead(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case !service.IsRefusal(err):
		err = &wire.Error{Status: cluster.StatusError, Message: "the call ended before its answer"}
	case errors.Is(err, wire.ErrSecondaryMode) && r.Header.Get(forwardedHeader) == "" && h.proxyToPrimary(w, r):
		return
	}
	h.sendRefusal(w, r, service.Refusal(err))
}

// fileContent is the part of a file that one answer sends, as an io.ReadSeeker. After an error in
// the middle the connection is broken off, so that a part does not look like the whole.
type fileContent struct {
	ctx        context.Context
	w          *http.ResponseController
	f          *service.File
	from, size int64
	at         int64 // from from
	piece      []byte
	err        error
}

// Read implements io.Reader.
func (c *fileContent) Read(b []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	if len(c.piece) == 0 {
		_ = c.w.SetWriteDeadline(time.Now().Add(bodyWait)) // for as long as it reads
		if c.piece, c.err = c.f.Piece(c.ctx, c.from+c.at, c.size-c.at); c.err != nil {
			return 0, c.err
		}
	}
	n := copy(b, c.piece)
	c.piece = c.piece[n:]
	c.at += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (c *fileContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	c.at, c.piece = offset, nil
	return offset, nil
}

// followFile sends bytes as they are appended, until the generation ends: the trailer says so.
func (h *Handler) followFile(w http.ResponseWriter, r *http.Request, name cluster.FileName, q *fileQuery) {
	ask := &pb.FollowFileRequest{File: string(name), Generation: q.generation}
	if q.offset >= 0 {
		ask.Offset = &q.offset
	}
	var first *pb.ReadFileResponse // nil until something was sent
	control := http.NewResponseController(w)
	_ = h.s.FollowFile(r.Context(), ask, func(x *pb.ReadFileResponse) error {
		if first == nil {
			if x.GetStatus() != pb.Status_STATUS_OK {
				h.refuseRead(w, r, readRefusal(x))
				return errOver
			}
			first = x
			w.Header().Set("Trailer", trailerEnded)
			contentHeaders(w.Header(), x)
		}
		switch {
		case x.GetStatus() != pb.Status_STATUS_OK:
			w.Header().Set(trailerEnded, fmt.Sprintf("%s %s", wire.FromStatus(x.GetStatus()), x.GetMessage()))
			return errOver
		case x.GetGeneration() != first.GetGeneration():
			w.Header().Set(trailerEnded, fmt.Sprintf("rotated: generation %d begins", x.GetGeneration()))
			return errOver
		}
		_ = control.SetWriteDeadline(time.Now().Add(bodyWait))
		if _, err := w.Write(x.GetData()); err != nil {
			return err
		}
		return control.Flush()
	}) // the client has got what ended it, unless it is gone
}

// errOver ends a follow whose end was sent.
var errOver = errors.New("the follow is over")

func readRefusal(x *pb.ReadFileResponse) error {
	return &wire.Error{
		Status: wire.FromStatus(x.GetStatus()), Message: x.GetMessage(), Epoch: cluster.Epoch(x.GetEpoch()),
		Primary: wire.PrimaryOf(x.GetPrimary()), RetryAfter: wire.Millis(x.GetRetryAfterMs()),
	}
}
