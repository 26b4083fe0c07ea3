// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/md5" //nolint:gosec // the protocol wants it, and nothing rests on it
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/terraform"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// terraformPath begins the paths of states.
const terraformPath = "/v1/terraform/"

// terraformRoutes returns the handlers of the states of Terraform and OpenTofu, by operation.
func (h *Handler) terraformRoutes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"lockstate": h.lockState, "unlockstate": h.unlockState, "state": h.getState, "putstate": h.putState, "deletestate": h.deleteState,
	}
}

// basicCredential returns the credential of a request that has one as the password of a user: Terraform sends no other. Only paths of states
// take it, since browsers keep passwords and send them without being asked.
func basicCredential(r *http.Request) string {
	if !strings.HasPrefix(r.URL.Path, terraformPath) {
		return ""
	}
	_, password, _ := r.BasicAuth()
	return password
}

// stateRequest begins the answer to a request about a state: its name, its lock ID, if it has one as a parameter, and its body, of at most limit
// bytes. It reports whether there is more to do.
func (h *Handler) stateRequest(w http.ResponseWriter, r *http.Request, into map[string]func(string) error, limit int64) (terraform.Name, []byte, bool) {
	name := terraform.Name(r.PathValue("name"))
	err := parameters(r, into)
	if err == nil {
		if invalid := name.Validate(); invalid != nil {
			err = wire.Invalid(invalid.Error())
		}
	}
	if err == nil {
		err = h.whole(name)
	}
	var body []byte
	if err == nil && limit > 0 {
		body, err = readBody(w, r, limit)
	}
	if err != nil {
		h.refuse(w, 0, err)
		return "", nil, false
	}
	return name, body, true
}

// whole returns an error for a state whose file would be of another cell than its lock: that is told before anything is made that could not be
// written down.
func (h *Handler) whole(name terraform.Name) error {
	if h.s.Parted(name.Lock(), name.File()) {
		return wire.Invalid(fmt.Sprintf("lock %q and file %q of this state are of two cells of the site: put a part of its name in braces, such as {%s}, or have a site with terraform/ pinned to one cell",
			name.Lock(), name.File(), name))
	}
	return nil
}

// stateOperation returns the operation that a request about a state is for the primary: that gets it as it is. Local executes it there.
func stateOperation(r *http.Request, name terraform.Name, body []byte, local func(context.Context) (*pb.Answer, error)) *operation {
	return &operation{
		method: r.Method, path: r.URL.RequestURI(), body: body, lock: name.Lock(), forwarded: true, repeatable: true, recorded: true,
		local: func(ctx context.Context) (reply, error) {
			a, err := local(ctx)
			code := 0
			if a.GetStatus() == pb.Status_STATUS_INVALID_TOKEN {
				code = http.StatusConflict // its client has named no token
			}
			return answerReply(a, code), err
		},
	}
}

// lockState answers LOCK: an acquire that does not wait. Its repeat gets the same answer, the lock itself included.
func (h *Handler) lockState(w http.ResponseWriter, r *http.Request) {
	name, body, ok := h.stateRequest(w, r, nil, maxJSONBody)
	if !ok {
		return
	}
	info, err := terraform.ParseLockInfo(body)
	metadata := ""
	if err == nil {
		metadata, err = info.Metadata()
	}
	if err != nil {
		h.refuse(w, 0, wire.Invalid(err.Error()))
		return
	}
	q := &locktable.Request{
		Op: locktable.OpAcquire, Client: terraform.Holder(info.ID), ID: terraform.LockRequest, Lock: name.Lock(),
		TTL: h.s.Backend().Timing().MaxTTL, Holder: info.HolderOf(), Metadata: metadata,
	}
	o := stateOperation(r, name, body, nil)
	o.request = q
	o.local = func(ctx context.Context) (reply, error) {
		again := *q // a backend keeps what it was given
		a, err := h.s.Execute(ctx, &again)
		if err != nil || a.GetStatus() != pb.Status_STATUS_HELD {
			return answerReply(a, 0), err
		}
		return h.heldState(ctx, name, a)
	}
	h.execute(w, r, o)
}

// stateHeld is the answer to a LOCK that finds the lock held: what clients of Terraform read, and what every answer has.
type stateHeld struct {
	*terraform.LockInfo
	wire.Body
}

// heldState answers a LOCK that finds the lock held. Who may not read the lock is told no more than an acquire tells.
func (h *Handler) heldState(ctx context.Context, name terraform.Name, a *pb.Answer) (reply, error) {
	x := a.GetHolder()
	held := terraform.Held{
		Client: cluster.ClientID(x.GetClientId()), Token: cluster.Token(x.GetToken()), Command: x.GetCommand(),
		Who: locktable.HostOf(x.GetUser(), x.GetHost()), Since: wire.Moment(x.GetSinceUnixMs()).Time(),
	}
	allowed := h.s.Permission(serving.CallerOf(ctx), serving.RemoteOf(ctx))
	if allowed.May(access.Read, string(name.Lock()), "") {
		l, err := h.s.GetLock(ctx, &pb.GetLockRequest{Lock: string(name.Lock()), PrimaryOnly: true})
		if err != nil {
			return reply{}, err
		}
		if l.GetLock().GetGrant().GetToken() == x.GetToken() {
			held.Metadata = l.GetLock().GetGrant().GetMetadata()
		}
	}
	return newReply(a.GetStatus(), 0, stateHeld{terraform.InfoOf(name, &held), wire.BodyOf(a)}), nil
}

// unlockState answers UNLOCK, whose body is that of the LOCK.
func (h *Handler) unlockState(w http.ResponseWriter, r *http.Request) {
	name, body, ok := h.stateRequest(w, r, nil, maxJSONBody)
	if !ok {
		return
	}
	if len(body) == 0 { // as force-unlock sends it
		h.refuse(w, 0, wire.Invalid(fmt.Sprintf("the request does not say whose lock to release, as force-unlock never does; type: holdfast break %s", name.Lock())))
		return
	}
	info, err := terraform.ParseLockInfo(body)
	if err != nil {
		h.refuse(w, 0, wire.Invalid(err.Error()))
		return
	}
	h.execute(w, r, stateOperation(r, name, body, func(ctx context.Context) (*pb.Answer, error) {
		holder := terraform.Holder(info.ID)
		return h.s.ExecuteHeld(ctx, holder, &locktable.Request{Op: locktable.OpRelease, Client: holder, ID: terraform.UnlockRequest, Lock: name.Lock()})
	}))
}

// putState answers POST: one append, fenced by the lock ID.
func (h *Handler) putState(w http.ResponseWriter, r *http.Request) {
	id := ""
	name, state, ok := h.stateRequest(w, r, lockID(&id), terraform.MaxState)
	if !ok {
		return
	}
	request, err := terraform.Request(state)
	if err != nil {
		h.refuse(w, 0, wire.Invalid(err.Error()))
		return
	}
	data, err := terraform.Pack(state)
	if large, ok := errors.AsType[*terraform.TooLargeError](err); ok {
		err = &wire.Error{Status: cluster.StatusTooLarge, Message: large.Error()}
	}
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	h.writeState(w, r, name, id, request, state, data)
}

// deleteState answers DELETE: an append that says that there is no state. The versions stay.
func (h *Handler) deleteState(w http.ResponseWriter, r *http.Request) {
	id := ""
	if name, _, ok := h.stateRequest(w, r, lockID(&id), 0); ok {
		h.writeState(w, r, name, id, terraform.DeleteRequest, nil, []byte(terraform.Deleted))
	}
}

// lockID reads the parameter that names the lock under which a state is written.
func lockID(id *string) map[string]func(string) error {
	return map[string]func(string) error{"ID": text(id)}
}

// writeState appends data to the file of a state under a lock ID, once. That renews the lease, as every use of a token does: the
// protocol has nothing else for that.
func (h *Handler) writeState(w http.ResponseWriter, r *http.Request, name terraform.Name, id string, request cluster.RequestID, body, data []byte) {
	if id == "" {
		h.refuse(w, http.StatusConflict, &wire.Error{Status: cluster.StatusInvalidToken, Message: fmt.Sprintf(
			"a state is written under its lock only, and the request has no lock ID: set lock_address and unlock_address, and leave out -lock=false; nothing was written to %s", name.File())})
		return
	}
	h.execute(w, r, stateOperation(r, name, body, func(ctx context.Context) (*pb.Answer, error) {
		return h.s.ExecuteHeld(ctx, terraform.Holder(id), &locktable.Request{
			Op: locktable.OpAppend, Client: terraform.Writer(id), ID: request, LowWater: request, Lock: name.Lock(),
			File: name.File(), Data: data, CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)),
		})
	}))
}

// getState answers GET: what was appended last. There is none before the first POST and after a DELETE.
func (h *Handler) getState(w http.ResponseWriter, r *http.Request) {
	name, _, ok := h.stateRequest(w, r, nil, 0)
	if !ok {
		return
	}
	x, err := h.s.LastAppend(r.Context(), name.File())
	if errors.Is(err, service.ErrNothingAppended) {
		// Whoever took it for no state would make everything anew.
		h.refuse(w, http.StatusConflict, wire.Invalid(err.Error()+"; docs/terraform.md says how to go on"))
		return
	}
	var state []byte
	if err == nil {
		if state, err = terraform.Unpack(x.Data); err != nil {
			err = &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("file %q: %v", name.File(), err)}
		}
	}
	switch {
	case err != nil:
		h.refuseRead(w, r, err)
		return
	case len(state) == 0:
		h.refuse(w, http.StatusNotFound, wire.Invalid(fmt.Sprintf("there is no state %q", name)))
		return
	}
	sum := md5.Sum(state) //nolint:gosec // as above
	w.Header().Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	w.Header().Set("Etag", fmt.Sprintf(`"%d"`, x.LSN))
	w.Header().Set(headerGeneration, fmt.Sprint(x.Generation))
	w.Header().Set(headerEpoch, fmt.Sprint(x.Epoch))
	w.Header().Set(headerLSN, fmt.Sprint(x.LSN))
	h.send(w, reply{status: cluster.StatusOK, code: http.StatusOK, body: state})
}
