// SPDX-License-Identifier: Apache-2.0

// Package openapi_test compares docs/api/openapi.json with what a server does: every operation is asked for, and the requests and the
// answers are validated by another implementation of OpenAPI. (That the document has what the server's tables have is tested in
// package httpapi.)
package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
)

// api is the document, and a server.
type api struct {
	t   *testing.T
	doc *openapi3.T
	url string
	// token is that of the last answer that had one.
	token uint64
	asked map[string]bool
}

func newAPI(t *testing.T) *api {
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Clients take a field that they do not know for one of a newer server. Here it would be missing from the document.
	for _, s := range doc.Components.Schemas {
		closed(s)
	}
	return &api{t: t, doc: doc, url: holdfasttest.Start(t).URL(), asked: map[string]bool{}}
}

// closed makes an object one without further fields, and those within it.
func closed(s *openapi3.SchemaRef) {
	if len(s.Value.Properties) > 0 {
		*s.Value = *s.Value.WithoutAdditionalProperties()
	}
	for _, p := range s.Value.Properties {
		if p.Ref == "" {
			closed(p)
		}
	}
}

// request is one of an operation.
type request struct {
	op    string
	name  string // in the path
	query string
	body  string // TOKEN stands for the last token
	code  int
}

// requests are at least one for each operation, in an order in which most are executed.
func requests() []request {
	const held = `"lock":"a/b","token":TOKEN`
	return []request{
		{op: "acquire", body: `{"lock":"a/b","ttl":"30s","client_id":"c","request_id":1,"holder":{"user":"u","host":"h","pid":7,"command":"x"},"metadata":"m","max_hold":"1h","mode":"exclusive"}`, code: 200},
		{op: "acquire", body: `{"lock":"a/b","ttl":"30s","wait":"5ms"}`, code: 423},
		{op: "acquire", body: `{"lock":"","ttl":"30s"}`, code: 400},
		{op: "renew", body: `{` + held + `}`, code: 200},
		{op: "keepalive", body: `{"client_id":"c","held":3}`, code: 200},
		{op: "verify", body: `{` + held + `}`, code: 200},
		{op: "prove", body: `{` + held + `}`, code: 200},
		{op: "prove", body: `{"lock":"a/b","token":1}`, code: 412},
		{op: "extend", body: `{` + held + `,"ttl":"40s"}`, code: 200},
		{op: "metadata", body: `{` + held + `,"metadata":"n"}`, code: 200},
		{op: "append", query: "lock=a/b&token=TOKEN&file=d/f&client_id=c&request_id=2&crc32c=2721553421", body: "one\n", code: 200},
		{op: "append", query: "lock=a/b&token=TOKEN&file=d/f&expected_offset=9", body: "two\n", code: 412},
		{op: "bind", body: `{` + held + `,"file":"d/g","adopt_existing":false}`, code: 200},
		{op: "outcome", body: `{"client_id":"c","request_id":2}`, code: 200},
		{op: "outcome", body: `{"client_id":"c","request_id":99}`, code: 200},
		{op: "cancel", body: `{"client_id":"d","request_id":1}`, code: 409},
		{op: "open", body: `{"nonce":7}`, code: 200},
		{op: "locks", query: "prefix=a&limit=10&primary_only=true", code: 200},
		{op: "lock", name: "a/b", query: "waiters=5&min_lsn=1", code: 200},
		{op: "lock", name: "free", code: 200},
		{op: "why", name: "a/b", code: 200},
		{op: "files", code: 200},
		{op: "file", name: "d/f", query: "generation=1&offset=1&limit=2", code: 200},
		{op: "file", name: "none", code: 400},
		{op: "blame", name: "d/f", query: "offset=0&length=4", code: 200},
		{op: "watch", query: "lock=a/b&kinds=grant,release&bookmark=10s&after=reset", code: 200},
		{op: "watch", query: "after=1", code: 200},
		{op: "status", query: "each=true", code: 200},
		{op: "state", name: "net/prod", code: 404},
		{op: "putstate", name: "net/prod", query: "ID=i", body: `{"serial":1}`, code: 409},
		{op: "deletestate", name: "net/prod", query: "ID=i", code: 409},
		{op: "whoami", query: "verb=read&lock=a/b", code: 200},
		{op: "keys", code: 200},
		{op: "healthz", code: 200},
		{op: "livez", code: 200},
		{op: "livez", query: "verbose", code: 200},
		{op: "readyz", code: 200},
		{op: "readyz", query: "verbose=true", code: 200},
		{op: "metrics", code: 404}, // these servers measure nothing
		{op: "lockmetrics", query: "lock=a/b&lock=free&prefix=a&holders=true", code: 404},
		{op: "lockmetrics", code: 400},
		{op: "seal", body: `{` + held + `,"file":"d/f"}`, code: 200},
		{op: "rotate", body: `{` + held + `,"file":"d/f"}`, code: 400}, // nobody has moved the old one away
		{op: "unbind", body: `{` + held + `,"file":"d/g"}`, code: 200},
		{op: "downgrade", body: `{` + held + `}`, code: 200},
		{op: "acquire", body: `{"lock":"a/b","ttl":"30s","mode":"shared","remember":true}`, code: 200},
		{op: "lock", name: "a/b", code: 200},
		{op: "release", body: `{` + held + `}`, code: 200},
		{op: "break", body: `{"lock":"a/b","actor":"ann","reason":"a test","grace":"0s"}`, code: 200},
		{op: "history", query: "prefix=a&since=2020-01-02T03:04:05Z&limit=10", code: 200},
		{op: "handover", body: `{"to":9,"reason":"a test"}`, code: 400},
		{op: "upgrade", body: `{"level":99}`, code: 400},
		{op: "members", body: `{"change":"remove","server":9,"if_version":1}`, code: 400},
		{op: "takeover", body: `{"server":9,"reason":"a test"}`, code: 400},
		{op: "login", body: `{}`, code: 400},
	}
}

// TestServerDoesWhatIsDescribed asks for every operation.
func TestServerDoesWhatIsDescribed(t *testing.T) {
	x := newAPI(t)
	for _, q := range requests() {
		x.ask(q)
	}
	for _, o := range ops.All() {
		if o.Route != "" && !strings.Contains(o.Route, "LOCK ") && !x.asked[o.Name] { // OpenAPI knows neither LOCK nor UNLOCK
			t.Errorf("%s was not asked for", o.Name)
		}
	}
}

// route returns the operation with this ID.
func (x *api) route(id string) *routers.Route {
	for path, item := range x.doc.Paths.Map() {
		for method, o := range item.Operations() {
			if o.OperationID == id {
				return &routers.Route{Spec: x.doc, Server: x.doc.Servers[0], Path: path, PathItem: item, Method: method, Operation: o}
			}
		}
	}
	x.t.Fatalf("operation %s is not described", id)
	return nil
}

// ask makes one request, and wants it and its answer to be as described.
func (x *api) ask(q request) {
	x.t.Helper()
	said := fmt.Sprintf("%s %s %s %s", q.op, q.name, q.query, q.body)
	filled := strings.NewReplacer("TOKEN", fmt.Sprint(x.token))
	route := x.route(q.op)
	x.asked[q.op] = true
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	url := x.url + strings.Replace(route.Path, "{name}", q.name, 1) + "?" + filled.Replace(q.query)
	body := filled.Replace(q.body)
	r, err := http.NewRequestWithContext(ctx, route.Method, url, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	if route.Operation.RequestBody != nil {
		for kind := range route.Operation.RequestBody.Value.Content {
			r.Header.Set("Content-Type", kind)
		}
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: map[string]string{"name": q.name}, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true,
	}}
	if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
		x.t.Errorf("%s is not described: %v", said, err)
	}
	r.Body = io.NopCloser(strings.NewReader(body)) // the validation has read it
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		x.t.Fatalf("%s: %v", said, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != q.code {
		x.t.Errorf("%s: code %d, want %d", said, resp.StatusCode, q.code)
	}
	answer := x.body(resp)
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header, Options: input.Options}
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") { // what no schema says anything of
		described := route.Operation.Responses.Status(resp.StatusCode)
		if described == nil || described.Value.Content.Get(kind) == nil {
			x.t.Errorf("%s: an answer of type %s is not described", said, kind)
		}
		return
	}
	if err := openapi3filter.ValidateResponse(ctx, out.SetBodyBytes(answer)); err != nil {
		x.t.Errorf("%s: the answer is not described: %v\n%s", said, err, answer)
	}
	var told struct{ Token uint64 }
	if json.Unmarshal(answer, &told) == nil && told.Token != 0 && resp.StatusCode == http.StatusOK && q.op == "acquire" {
		x.token = told.Token
	}
}

// body returns the body of an answer: of a stream of events the first one.
func (x *api) body(resp *http.Response) []byte {
	x.t.Helper()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			x.t.Fatal(err)
		}
		return b
	}
	var b bytes.Buffer
	for !bytes.Contains(b.Bytes(), []byte("\n\n")) {
		if _, err := io.CopyN(&b, resp.Body, 1); err != nil {
			x.t.Fatalf("a watch ended after %q: %v", b.Bytes(), err)
		}
	}
	for line := range strings.Lines(b.String()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var v any
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				x.t.Errorf("event %s: %v", data, err)
			} else if err := x.doc.Components.Schemas["Event"].Value.VisitJSON(v); err != nil {
				x.t.Errorf("the event is not described: %v\n%s", err, data)
			}
		}
	}
	return b.Bytes()
}
