// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/terraform"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// pageHeader is in requests of the own page. Browsers do not say everywhere that a script asks.
const pageHeader = "Holdfast-Page"

// lead makes an answer WRONG_CELL one that leads its client to a server of the cell that has these names: 307, which clients that follow
// redirects repeat there as it was, and nothing was done here. The others read the answer, which is the same.
func (h *Handler) lead(w http.ResponseWriter, r *http.Request, x *reply, lock cluster.LockName, file cluster.FileName) {
	if x.status != cluster.StatusWrongCell {
		return
	}
	if cell, ok := h.s.Elsewhere(lock, file); ok {
		h.leadTo(w, r, x, cell)
	}
}

// leadTo is lead where it is known which cell it is.
func (h *Handler) leadTo(w http.ResponseWriter, r *http.Request, x *reply, cell serving.CellServers) {
	from := serving.RemoteOf(r.Context())
	if serving.ThroughGateway(from) { // whose client stays with it
		cell.Clients = sitemap.Through([]string{r.Host}, h.s.Owns().Cell, cell.Cell)
	}
	if !mayFollow(r) || len(cell.Clients) == 0 || cell.ClusterID == "" { // others may be at addresses that were only planned
		return
	}
	scheme := "https" // who asked over TLS is never sent to plain text
	if serving.PlainTCP(from) {
		if cell.TLSOnly { // what may be said in plain text on this host is not to leave it
			return
		}
		scheme = "http"
	}
	there := url.URL{Scheme: scheme, Host: nearest(cell.Clients, r.Host), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", there.String())
	x.code = http.StatusTemporaryRedirect
}

// elsewhere returns the answer to an operation that is for another cell, or may be. It returns false where this is the cell, which needs no primary to know
// that. What is about a client and names no lock is for the cell that has its requests: any other knows nothing of them, and would say that they never
// were. That cell is the one that opened the client; one that has named itself may have been led to any, and says by the parameter lock which.
func (h *Handler) elsewhere(w http.ResponseWriter, r *http.Request, o *operation) (x reply, is bool) {
	if h.s.Owns() == nil || r.Header.Get(forwardedHeader) != "" {
		return reply{}, false
	}
	if o.client == "" {
		return h.namesElsewhere(w, r, o.lock, o.file)
	}
	cell, ok, certain := h.s.Opener(o.client)
	switch {
	case !certain: // that cell may have what it is about
		why := fmt.Sprintf("this server has not heard of all cells of the site yet, and so does not know which one opened client %s: try again, or ask another server", o.client)
		return answerReply(service.Refusal(&wire.Error{Status: cluster.StatusSecondaryMode, Message: why}), 0), true
	case ok:
		if cell.Cell == h.s.Owns().Cell {
			return reply{}, false
		}
		why := fmt.Sprintf("client %s was opened by %v of this site, and this is %v: ask that one", o.client, cell.Cell, h.s.Owns().Cell)
		x = answerReply(&pb.Answer{Status: pb.Status_STATUS_WRONG_CELL, Message: why, Cell: uint32(cell.Cell)}, 0)
		h.leadTo(w, r, &x, cell)
		return x, true
	}
	if o.client.Opened() { // by a cluster that is no cell of the site any more: the table says so
		return reply{}, false
	}
	lock := cluster.LockName(r.URL.Query().Get("lock"))
	if lock == "" {
		why := fmt.Sprintf("client ID %q does not say which cell of this site has its requests: say it by ?lock=NAME, with a lock for which it was used", o.client)
		return answerReply(service.Refusal(wire.Invalid(why)), 0), true
	}
	return h.namesElsewhere(w, r, lock, "")
}

// namesElsewhere is elsewhere for what is about a lock or a file.
func (h *Handler) namesElsewhere(w http.ResponseWriter, r *http.Request, lock cluster.LockName, file cluster.FileName) (x reply, is bool) {
	why, has := h.s.Owns().Refuses(lock, file)
	if why == "" {
		return reply{}, false
	}
	x = answerReply(&pb.Answer{Status: pb.Status_STATUS_WRONG_CELL, Message: why, Cell: uint32(has)}, 0)
	h.lead(w, r, &x, lock, file)
	return x, true
}

// mayFollow reports whether the client of a request could follow a redirect. The socket of a server leads to one cell only;
// a proxy or another server sends the answer on, and what was said to a proxy over TLS came from it in plain text; who names a cluster would be
// refused by that of the other cell; and the script of a page would see nothing but that its browser did not let it go there.
func mayFollow(r *http.Request) bool {
	if _, tcp := serving.PlainAddr(serving.RemoteOf(r.Context())).(*net.TCPAddr); !tcp {
		return false
	}
	for _, name := range []string{forwardedHeader, clusterHeader, pageHeader, "Origin", "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

// nearest returns the address on the host that was asked, which its client reached a moment ago, else any.
func nearest(all []string, asked string) string {
	host := (&url.URL{Host: asked}).Hostname()
	for _, at := range all {
		if on, _, err := net.SplitHostPort(at); err == nil && strings.EqualFold(on, host) {
			return at
		}
	}
	return all[rand.IntN(len(all))]
}

// namesOf returns which lock or file a GET is about: by its path, or by its parameter.
func namesOf(r *http.Request) (cluster.LockName, cluster.FileName) {
	name := r.PathValue("name")
	switch {
	case name == "":
		return cluster.LockName(r.URL.Query().Get("lock")), ""
	case strings.HasPrefix(r.URL.Path, terraformPath):
		return terraform.Name(name).Lock(), ""
	case strings.HasPrefix(r.URL.Path, "/v1/files/"), strings.HasPrefix(r.URL.Path, "/v1/blame/"):
		return "", cluster.FileName(name)
	}
	return cluster.LockName(name), ""
}

// sendRefusal answers a GET that was refused.
func (h *Handler) sendRefusal(w http.ResponseWriter, r *http.Request, a *pb.Answer) {
	if a.GetStatus() == pb.Status_STATUS_WRONG_CELL { // not all that refuses says which cell it is
		lock, file := namesOf(r)
		_, has := h.s.Owns().Refuses(lock, file)
		a.Cell = uint32(has)
	}
	h.sendLeading(w, r, answerReply(a, 0))
}

// sendLeading sends the answer to a GET, and leads its client to the cell that has what it asked for, if that is another one.
func (h *Handler) sendLeading(w http.ResponseWriter, r *http.Request, x reply) {
	lock, file := namesOf(r)
	h.lead(w, r, &x, lock, file)
	h.send(w, x)
}

// sendElsewhere answers a GET that is about another cell, and reports whether it did.
func (h *Handler) sendElsewhere(w http.ResponseWriter, r *http.Request) bool {
	lock, file := namesOf(r)
	x, is := h.namesElsewhere(w, r, lock, file)
	if is {
		h.send(w, x)
	}
	return is
}
