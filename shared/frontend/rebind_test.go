// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// A page of another site that has its own name lead to this server, as a browser believes, gets nothing: no answer, no
// change, no stream and no WebSocket.
func TestAPageUnderAStrangersName(t *testing.T) {
	s := service.New(startPrimary(t), service.Options{})
	pages := origins.New(nil)
	pages.Know([]string{"lb.example.org"})
	h := httpapi.New(s, httpapi.Options{Log: zerolog.Nop(), Pages: pages})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	sockets := ws.New(h.Door(), ws.Options{Log: zerolog.Nop(), Pages: pages})
	mux.Handle(ws.Path, h.Authenticated(sockets))
	t.Cleanup(func() { sockets.Stop(context.Background()) })
	front := h.Server()
	front.Handler = mux
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go front.Serve(l)                   //nolint:errcheck // it is closed
	t.Cleanup(func() { front.Close() }) //nolint:errcheck // likewise
	at := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}}
	t.Cleanup(at.CloseIdleConnections)
	for host, code := range map[string]int{"evil.org:7601": 403, "lb.example.org": 200, "localhost:7601": 200} {
		for path, body := range map[string]string{
			"/v1/acquire": `{"lock":"l","ttl":"30s","client_id":"c","request_id":1}`, "/v1/locks": "", "/v1/status": "", "/v1/watch": "", "/metrics": "", "/v1/append?lock=l&token=1&file=f": "x",
		} {
			r, err := http.NewRequestWithContext(t.Context(), map[bool]string{true: "GET", false: "POST"}[body == ""], "http://"+host+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if body != "" { // browsers send it with these, and it is the page's own
				r.Header.Set("Origin", "http://"+host)
			}
			resp, err := at.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			refused, said := resp.StatusCode == 403, []byte("-")
			if refused { // else it may have no end
				said, err = io.ReadAll(resp.Body)
			}
			resp.Body.Close() //nolint:errcheck // it was only read
			if err != nil || refused != (code == 403) || refused && !strings.Contains(string(said), "start it with --names evil.org") {
				t.Errorf("%s at %s: %d %s, %v", path, host, resp.StatusCode, said, err)
			}
		}
		c, resp, err := websocket.Dial(t.Context(), "ws://"+host+ws.Path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: at}, HTTPHeader: http.Header{"Origin": {"http://" + host}}})
		if (err == nil) != (code == 200) || err != nil && (resp == nil || resp.StatusCode != 403) {
			t.Errorf("a WebSocket at %s: %v", host, err)
		}
		if err == nil {
			c.CloseNow() //nolint:errcheck // nothing was said
		}
	}
}

// Only who may be such a page is asked for a name: not who has shown a credential, or came over TLS, where browsers look at the
// certificate, or by a Unix socket. What tells nothing is told under every name.
func TestWhoIsAskedForAName(t *testing.T) {
	h := httpapi.New(service.New(startPrimary(t), service.Options{Authenticator: newCredentials(t)}), httpapi.Options{Log: zerolog.Nop()})
	tcp := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for name, x := range map[string]struct {
		path, as string
		from     net.Addr
		code     int
	}{
		"a stranger":               {"/v1/status", "", tcp, 403},
		"the keys":                 {"/v1/keys", "", tcp, 403},
		"nothing for strangers":    {"/v1/locks", "", tcp, 401},
		"a credential":             {"/v1/status", "alice", tcp, 200},
		"a credential that is bad": {"/v1/status", "nobody", tcp, 403},
		"over TLS":                 {"/v1/status", "", &serving.KnownAddr{Addr: tcp, TLS: true}, 200},
		"plain text, known":        {"/v1/status", "", &serving.KnownAddr{Addr: tcp}, 403},
		"a socket":                 {"/v1/status", "", &serving.KnownAddr{Addr: &net.UnixAddr{Name: "s", Net: "unix"}}, 200},
		"the metrics":              {"/metrics", "", tcp, 401}, // as strangers may do nothing
		"healthz":                  {"/healthz", "", tcp, 200},
		"livez":                    {"/livez", "", tcp, 200},
		"readyz":                   {"/readyz", "", tcp, 200},
		"the page":                 {"/", "", tcp, 200},
	} {
		r := httptest.NewRequest("GET", "http://alias:7601"+x.path, nil)
		if x.as != "" {
			r.Header.Set("Authorization", "Bearer "+x.as)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r.WithContext(serving.WithRemote(r.Context(), x.from))); w.Code != x.code {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, x.code)
		}
	}
}
