// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestStatusTellsTheCell, and everything that names a lock or a file of another one is refused, with the cell that has it.
func TestStatusTellsTheCell(t *testing.T) {
	h := serveHTTP(t, startPrimaryOf(t, primarytest.InitCell, nil))
	var status wire.StatusBody
	if code, _ := h.call("GET", "/v1/status", "", &status); code != 200 || status.Cell == nil {
		t.Fatalf("status: %d %+v", code, status)
	}
	if c := status.Cell; c.Cell != 0 || c.Version != 1 || !strings.HasPrefix(c.SiteID, "0700") || len(c.Ranges) != 1 || c.Ranges[0] != (wire.RangeBody{From: "0000000000000000"}) ||
		len(c.Pins) != 1 || c.Pins[0] != (wire.PinBody{Prefix: "p/", Cell: 1}) {
		t.Errorf("the cell is told as %+v", c)
	}
	token := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`).Token
	for path, data := range map[string]string{
		"/v1/acquire": `{"lock":"p/l","ttl":"30s"}`, "/v1/release": `{"lock":"p/l","token":1}`, "/v1/renew": `{"lock":"p/l","token":1}`, "/v1/verify": `{"lock":"p/l","token":1}`,
		fmt.Sprintf("/v1/append?lock=l&token=%d&file=p/f", token): "abc",
	} {
		if code, b := h.post(path, data); code != 421 || b.Status != "WRONG_CELL" || b.Cell == nil || *b.Cell != 1 || !strings.Contains(b.Message, "belongs to cell 1 of this site") {
			t.Errorf("%s: %d %+v", path, code, b)
		}
	}
	if code, b := h.post("/v1/acquire", `{"lock":"l","ttl":"30s"}`); code != 423 || b.Cell != nil {
		t.Errorf("another refusal: %d %+v", code, b)
	}
	var lock wire.LockBody
	if code, _ := h.call("GET", "/v1/locks/p/l", "", &lock); code != 421 || lock.Status != "WRONG_CELL" {
		t.Errorf("/v1/locks/p/l: %d %+v", code, lock)
	}
	var file wire.Body
	if code, _ := h.call("GET", "/v1/files/p/f", "", &file); code != 421 || file.Status != "WRONG_CELL" {
		t.Errorf("/v1/files/p/f: %d %+v", code, file)
	}
	plain := serveHTTP(t, startPrimary(t))
	status = wire.StatusBody{}
	if code, _ := plain.call("GET", "/v1/status", "", &status); code != 200 || status.Cell != nil {
		t.Errorf("a volume of no site: %d %+v", code, status.Cell)
	}
}

// TestStatusTellsWhereCellsAre to everybody, also of one server only, so that any server leads to the others. Who comes through a gateway learns of
// no way around it.
func TestStatusTellsWhereCellsAre(t *testing.T) {
	d := newDoors(t)
	d.b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"a:1", "b:1"}, ClusterID: "c0"}, {Cell: 1, Clients: []string{}, ClusterID: "c1"}}
	for _, local := range []bool{false, true} {
		for _, through := range []bool{false, true} {
			ctx := serving.WithRemote(t.Context(), &serving.KnownAddr{Addr: &net.TCPAddr{}, TLS: true, Gateway: through})
			r, err := d.s.Status(ctx, &pb.StatusRequest{Local: local})
			if err != nil || !strings.Contains(r.GetMessage(), "more is told") {
				t.Fatalf("a stranger is told %v, %v", r, err)
			}
			var got []string
			for _, c := range r.GetCells() {
				got = append(got, fmt.Sprint(c.GetCell(), " ", c.GetClients(), " ", c.GetClusterId()))
			}
			if want := map[bool]string{false: "0 [a:1 b:1] c0 1 [] c1", true: "0 [] c0 1 [] c1"}[through]; strings.Join(got, " ") != want {
				t.Errorf("local %t, through a gateway %t: %v, want %s", local, through, got, want)
			}
		}
	}
}

// TestStrangersLearnWhichCellHasWhat: who may use a lock, and read nothing, has to find the servers that have it.
func TestStrangersLearnWhichCellHasWhat(t *testing.T) {
	g := newCredentials(t)
	b := startPrimaryOf(t, primarytest.InitCell, g.Rules)
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"a:1"}, ClusterID: "c0", Pin: "pin"}}
	s := service.New(b, service.Options{Authenticator: g, Auditor: &audited{}})
	for _, local := range []bool{false, true} {
		ctx := serving.WithRemote(t.Context(), &serving.KnownAddr{Addr: &net.TCPAddr{}, TLS: true})
		r, err := s.Status(ctx, &pb.StatusRequest{Local: local})
		if err != nil || !strings.Contains(r.GetMessage(), "more is told") {
			t.Fatalf("a stranger is told %v, %v", r, err)
		}
		if x := r.GetCells()[0]; x.GetClusterId() != "c0" || x.GetPin() != "pin" {
			t.Errorf("cell 0 is told as %v", x)
		}
		if (r.GetCell() == nil) != local { // which waits for no table
			t.Errorf("local %t: what the cell owns is %v", local, r.GetCell())
		}
	}
}

// TestForeignLockIsNotShown: a watch of a lock of another cell would show nothing, and its history be empty.
func TestForeignLockIsNotShown(t *testing.T) {
	b := startPrimaryOf(t, primarytest.InitCell, nil)
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"a:1"}}}
	s := service.New(b, service.Options{})
	for range 2 { // the second time, the division is known
		var last *pb.WatchResponse
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		err := s.Watch(ctx, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "p/l"}}, nil, func(r *pb.WatchResponse) error { last = r; return nil })
		end()
		if err != nil || wire.FromStatus(last.GetStatus()) != cluster.StatusWrongCell || !strings.Contains(last.GetMessage(), "belongs to cell 1") {
			t.Errorf("a watch: %v, error %v", last, err)
		}
		r, err := s.History(t.Context(), &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: "p/l"}})
		if err != nil || wire.FromStatus(r.GetStatus()) != cluster.StatusWrongCell {
			t.Errorf("the history: %v, error %v", r, err)
		}
		if r, err := s.History(t.Context(), &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: "l"}}); err != nil || r.GetStatus() != pb.Status_STATUS_OK {
			t.Errorf("the history of an own lock: %v, error %v", r, err)
		}
	}
}

// TestLedToTheCell that has a lock are clients that can go there, over what they came by, and to the host that they reached.
func TestLedToTheCell(t *testing.T) {
	b := startPrimaryOf(t, primarytest.InitCell, nil)
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"h1:1"}}, {Cell: 1, Clients: []string{"h1:2", "localhost:2", "h3:2"}, ClusterID: "c1"}}
	h := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.Nop()})
	tcp := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for name, x := range map[string]struct {
		request, header string
		from            net.Addr
		location        string // "" for none
	}{
		"a lock":                     {"GET /v1/locks/p/l%20?waiters=1", "", tcp, "http://localhost:2/v1/locks/p/l%20?waiters=1"},
		"a name that is escaped":     {"GET /v1/locks/p%2Fl", "", tcp, "http://localhost:2/v1/locks/p%2Fl"},
		"over TLS":                   {"GET /v1/locks/p/l", "", &serving.KnownAddr{Addr: tcp, TLS: true}, "https://localhost:2/v1/locks/p/l"},
		"why":                        {"GET /v1/why/p/l", "", tcp, "http://localhost:2/v1/why/p/l"},
		"a history":                  {"GET /v1/history?lock=p/l", "", tcp, "http://localhost:2/v1/history?lock=p/l"},
		"a watch":                    {"GET /v1/watch?lock=p/l", "", tcp, "http://localhost:2/v1/watch?lock=p/l"},
		"a file":                     {"GET /v1/files/p/f", "", tcp, "http://localhost:2/v1/files/p/f"},
		"who wrote a file":           {"GET /v1/blame/p/f", "", tcp, "http://localhost:2/v1/blame/p/f"},
		"an operation":               {`POST /v1/release {"lock":"p/l","token":1}`, "", tcp, "http://localhost:2/v1/release"},
		"a renewal":                  {`POST /v1/renew {"lock":"p/l","token":1}`, "", tcp, "http://localhost:2/v1/renew"},
		"an append":                  {"POST /v1/append?lock=p/l&file=p/f&token=1 x", "", tcp, "http://localhost:2/v1/append?lock=p/l&file=p/f&token=1"},
		"lock and file apart":        {"POST /v1/append?lock=p/l&file=f&token=1 x", "", tcp, ""},
		"file and lock apart":        {"POST /v1/append?lock=l&file=p/f&token=1 x", "", tcp, ""},
		"a browser's address":        {"GET /v1/locks/p/l", "Sec-Fetch-Mode: navigate", tcp, "http://localhost:2/v1/locks/p/l"},
		"a script of the page":       {"GET /v1/locks/p/l", "Sec-Fetch-Mode: cors", tcp, ""},
		"a page":                     {"GET /v1/locks/p/l", "Origin: http://localhost:1", tcp, ""},
		"by a proxy":                 {"GET /v1/locks/p/l", "X-Forwarded-For: 10.0.0.1", tcp, ""},
		"the own page":               {"GET /v1/locks/p/l", "Holdfast-Page: 1", tcp, ""},
		"a forward":                  {"GET /v1/locks/p/l", "Holdfast-Forwarded-By: 2", tcp, ""},
		"one for a cluster":          {"GET /v1/locks/p/l", "Holdfast-Cluster: " + b.Status().ClusterID, tcp, ""},
		"through a gateway":          {"GET /v1/locks/p/l", "Host: localhost:7601", &serving.KnownAddr{Addr: tcp, Gateway: true}, "http://localhost:7602/v1/locks/p/l"},
		"to a gateway, over TLS":     {"GET /v1/locks/p/l", "Host: gw:7601", &serving.KnownAddr{Addr: tcp, Gateway: true, TLS: true}, "https://gw:7602/v1/locks/p/l"},
		"a gateway without a port":   {"GET /v1/locks/p/l", "Host: localhost", &serving.KnownAddr{Addr: tcp, Gateway: true}, ""},
		"by a socket":                {"GET /v1/locks/p/l", "", &serving.KnownAddr{Addr: &net.UnixAddr{Name: "s", Net: "unix"}}, ""},
		"another host that is known": {"GET /v1/locks/p/l", "Host: H3:1", &serving.KnownAddr{Addr: tcp, TLS: true}, "https://h3:2/v1/locks/p/l"},
	} {
		method, rest, _ := strings.Cut(x.request, " ")
		target, body, _ := strings.Cut(rest, " ")
		r := httptest.NewRequest(method, "http://localhost:1"+target, strings.NewReader(body))
		key, value, _ := strings.Cut(x.header, ": ")
		if key == "Host" {
			r.Host = value
		} else if key != "" {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(serving.WithRemote(r.Context(), x.from)))
		want := map[bool]int{true: 421, false: 307}[x.location == ""]
		if got := w.Header().Get("Location"); w.Code != want || got != x.location || !strings.Contains(w.Body.String(), `"WRONG_CELL"`) {
			t.Errorf("%s: %d to %q, want %d to %q: %s", name, w.Code, got, want, x.location, w.Body)
		}
	}
	at := b.cells
	for name, cells := range map[string][]serving.CellServers{
		"without an address":         at[:1],
		"to a cell with TLS":         {at[0], {Cell: 1, Clients: at[1].Clients, ClusterID: "c1", Pin: "pin", TLSOnly: true}},
		"a cell that was never read": {at[0], {Cell: 1, Clients: at[1].Clients}},
	} {
		b.cells = cells
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://localhost:1/v1/watch?lock=p/l", nil)
		if h.ServeHTTP(w, r.WithContext(serving.WithRemote(r.Context(), tcp))); w.Code != 421 || !strings.Contains(w.Body.String(), `"cell":1`) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestLedWithoutAPrimary: no server needs one to know who has a lock.
func TestLedWithoutAPrimary(t *testing.T) {
	b := startPrimaryOf(t, primarytest.InitCell, nil)
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"h1:1"}}, {Cell: 1, Clients: []string{"localhost:2"}, ClusterID: "c1"}}
	b.p, b.term = nil, 0
	h := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.Nop()})
	for _, path := range []string{"release", "append?lock=p/l&file=p/f&token=1"} {
		r := httptest.NewRequest("POST", "http://localhost:1/v1/"+path, strings.NewReader(`{"lock":"p/l","token":1}`))
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r.WithContext(serving.WithRemote(r.Context(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}))); w.Code != 307 {
			t.Errorf("%s without a primary: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestRequestOfAnotherCell: a cell that never had it would say that it was not executed, and never will be. Its client is led to the cell that opened
// the client, or, of one that named itself, has to say which lock it was for.
func TestRequestOfAnotherCell(t *testing.T) {
	b := startPrimaryOf(t, primarytest.InitCell, nil)
	b.clusterID = cluster.ID{1}.String()
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"h1:1"}}, {Cell: 1, Clients: []string{"localhost:2"}, ClusterID: cluster.ID{2}.String()}}
	h := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: zerolog.Nop()})
	own, other, unknown := cluster.OpenedClientID(7, cluster.MarkOf(cluster.ID{1})), cluster.OpenedClientID(7, cluster.MarkOf(cluster.ID{2})), cluster.OpenedClientID(7, 99)
	for _, x := range []struct {
		client         cluster.ClientID
		query          string
		code           int
		says, location string
	}{
		{own, "", 200, "", ""},
		{other, "", 307, "was opened by cell 1", "http://localhost:2/v1/"},
		{other, "?lock=l", 307, "was opened by cell 1", "http://localhost:2/v1/"},
		{unknown, "", 200, "", ""}, // a cell that was recovered, say: the table tells its client to open anew
		{"job-7", "", 400, "say it by ?lock=NAME", ""},
		{"job-7", "?lock=l", 200, "", ""},
		{"job-7", "?lock=p/l", 307, "belongs to cell 1", "http://localhost:2/v1/"},
	} {
		for path, body := range map[string]string{"outcome": `"request_id":1`, "cancel": `"request_id":1`, "keepalive": `"held":0`} {
			r := httptest.NewRequest("POST", "http://localhost:1/v1/"+path+x.query, strings.NewReader(fmt.Sprintf(`{"client_id":%q,%s}`, x.client, body)))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(serving.WithRemote(r.Context(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})))
			at, here := w.Header().Get("Location"), w.Code != 307 && w.Code != 400
			if here != (x.code == 200) || !here && w.Code != x.code || !strings.Contains(w.Body.String(), x.says) || (at == "") != (x.location == "") || at != "" && at != x.location+path+x.query {
				t.Errorf("%s of %s%s: %d to %q: %s", path, x.client, x.query, w.Code, at, w.Body)
			}
		}
	}
	b.cells[1].ClusterID = "" // its volume was not read yet
	r := httptest.NewRequest("POST", "http://localhost:1/v1/cancel", strings.NewReader(fmt.Sprintf(`{"client_id":%q,"request_id":2}`, other)))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 503 || !strings.Contains(w.Body.String(), "which one opened client") {
		t.Errorf("a request of a cell that was not read yet: %d %s", w.Code, w.Body)
	}
}

// TestStateOfTwoCells of Terraform is refused before it is locked: what was made under its lock could not be written down.
func TestStateOfTwoCells(t *testing.T) {
	b := startPrimaryOf(t, func(tb testing.TB, fsys vfs.FS, members cluster.Members) {
		primarytest.InitCellOf(tb, fsys, members, cluster.Pin{Prefix: "terraform/net.tfstate", Cell: 1})
	}, nil)
	b.cells = []serving.CellServers{{Cell: 0, Clients: []string{"h1:1"}}}
	h := serveHTTP(t, b)
	info := `{"ID":"8f4d6c2e-0000-4000-8000-000000000001","Operation":"apply"}`
	for name, want := range map[string]int{"net": 400, "other": 200} {
		var a wire.Body
		if code, _ := h.call("LOCK", "/v1/terraform/"+name, info, &a); code != want || code == 400 && !strings.Contains(a.Message, "of two cells of the site") {
			t.Errorf("LOCK of state %s: %d %+v", name, code, a)
		}
	}
}
