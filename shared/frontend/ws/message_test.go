// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestMessages(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, x := range []struct{ in, id, body, err string }{
		{`{"id":1,"op":"x"}`, `1`, `{}`, ""},
		{` { "op" : "x" , "a" : [1, {"b":2}] , "id" : "né\"" } `, `"né\""`, `{"a":[1,{"b":2}]}`, ""},
		{`{"id":-1.5e3,"op":"x","a":"b","c":null,"d":true}`, `-1.5e3`, `{"a":"b","c":null,"d":true}`, ""},
		{`{"id":1,"op":"x","a<":1}`, `1`, `{"a\u003c":1}`, ""},
		{"{\"id\":1,\"op\":\"x\",\"a\":{ \"b\" :\n[ 1,\t\" \" ]}}", `1`, `{"a":{"b":[1," "]}}`, ""},
		{`{"id":1,"op":"x","a":` + deep + `}`, `1`, `{"a":` + deep + `}`, ""},
		{`{"op":"x"}`, "", "", `"id" is missing`},
		{`{"id":1}`, "1", "", `"op" is missing`},
		{`{"id":1,"op":""}`, "1", "", `"op" is missing`},
		{`{"id":1,"op":7}`, "1", "", `"op": use a string`},
		{`{"id":1,"op":null}`, "1", "", `"op": use a string`},
		{`{"id":1,"op":"\ud800"}`, "1", "", `"op" holds half a character`},
		{`{"id":null,"op":"x"}`, "", "", "an id is a number or a string"},
		{`{"id":{},"op":"x"}`, "", "", "an id is a number or a string"},
		{`{"id":true,"op":"x"}`, "", "", "an id is a number or a string"},
		{`{"id":"` + strings.Repeat("x", maxID) + `","op":"x"}`, "", "", "at most 128 bytes"},
		{`{"id":1,"op":"x","id":2}`, "1", "", `"id" is given twice`},
		{`{"id":1,"op":"x","a":2,"a":2}`, "1", "", `"a" is given twice`},
		{`{"id":1,"op":"x"} x`, "1", "", "behind the JSON object"},
		{`{"id":1,"op":"x"}{}`, "1", "", "behind the JSON object"},
		{`{"id":1,"op":"x"`, "1", "", "not JSON"},
		{`{"id":1,"op":`, "1", "", "not JSON"},
		{`[1]`, "", "", "no JSON object"},
		{``, "", "", "no JSON object"},
		{"{\"id\":1,\"op\":\"\xff\"}", "", "", "not valid UTF-8"},
	} {
		m, err := decode([]byte(x.in))
		if x.err != "" {
			if err == nil || !strings.Contains(err.Error(), x.err) || !errors.Is(err, wire.ErrInvalidArgument) || string(m.id) != x.id {
				t.Errorf("%s: id %s, %v, want id %s and %q", x.in, m.id, err, x.id, x.err)
			}
			continue
		}
		if err != nil || string(m.id) != x.id || m.op != "x" || string(m.body()) != x.body {
			t.Errorf("%s: id %s, op %q, body %s, %v", x.in, m.id, m.op, m.body(), err)
		}
	}
}

func TestAppendings(t *testing.T) {
	for in, want := range map[string]string{
		`"lock":"a b","token":17,"file":"f","data":"x\ny"`: "file=f&lock=a+b&token=17 x\ny",
		`"lock":"a","adopt_existing":true,"data":""`:       "adopt_existing=true&lock=a ",
		`"data_base64":"AP8="`:                             " \x00\xff",
		`"data":"\ud83d\ude00\u00e9\\ud83d"`:               " \U0001F600é\\ud83d",
		`"lock":"a"`:                                       "lock=a ",
		`"data":"a","data_base64":"YQ=="`:                  "error",
		`"data_base64":"YQ"`:                               "error",
		`"data":7`:                                         "error",
		`"data":null`:                                      "error",
		`"lock":["a"],"data":""`:                           "error",
		`"lock":{},"data":""`:                              "error",
		`"lock":null,"data":""`:                            "error",
		`"data":"a\ud83d"`:                                 "error",
		`"data":"\ud83d\u0041"`:                            "error",
		`"data":"\ude00\ud83d"`:                            "error",
		`"data":"\ud83d\\ude00"`:                           "error",
	} {
		m, err := decode([]byte(`{"id":1,"op":"append",` + in + `}`))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		query, data, err := m.appending()
		got := query.Encode() + " " + string(data)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestIntroductions(t *testing.T) {
	for in, want := range map[string]string{
		`"op":"acquire","lock":"a","request_id":1`:                 `{"lock":"a","request_id":1,"client_id":"me"}`,
		`"op":"acquire","lock":"a"`:                                `{"lock":"a"}`,
		`"op":"acquire","lock":"a","request_id":1,"client_id":"x"`: `{"lock":"a","request_id":1,"client_id":"x"}`,
		`"op":"keepalive","held":2`:                                `{"held":2,"client_id":"me"}`,
		`"op":"renew","lock":"a","token":1`:                        `{"lock":"a","token":1}`,
	} {
		m, err := decode([]byte(`{"id":1,` + in + `}`))
		if err != nil {
			t.Fatal(err)
		}
		m.addClient("")
		if before := string(m.body()); strings.Contains(before, "me") {
			t.Errorf("%s: %s", in, before)
		}
		if m.addClient("me"); string(m.body()) != want {
			t.Errorf("%s: %s, want %s", in, m.body(), want)
		}
	}
}

func TestQuestions(t *testing.T) {
	for in, want := range map[string]string{
		`"op":"watch"`:                      `<nil> after -1 kinds [] bookmark 0`,
		`"op":"watch","lock":"a","after":7`: `&{a} after 7 kinds [] bookmark 0`,
		`"op":"watch","prefix":"p","kinds":["grant","append"],"bookmark":"5s"`: `&{p} after -1 kinds [EVENT_KIND_GRANT EVENT_KIND_APPEND] bookmark 5000`,
		`"op":"watch","lock":"a","prefix":"p"`:                                 "error",
		`"op":"watch","after":"reset"`:                                         "error",
		`"op":"watch","after":-1`:                                              "error",
		`"op":"watch","after":null`:                                            "error",
		`"op":"watch","kinds":"grant"`:                                         "error",
		`"op":"watch","kinds":["Grant"]`:                                       "error",
		`"op":"watch","bookmark":"2h"`:                                         "error",
		`"op":"watch","bookmark":"-5s"`:                                        "error",
		`"op":"watch","bookmark":5`:                                            "error",
		`"op":"watch","lock":7`:                                                "error",
		`"op":"watch","locks":"a"`:                                             "error",
	} {
		m, err := decode([]byte(`{"id":1,` + in + `}`))
		if err != nil {
			t.Fatal(err)
		}
		q, err := m.watch()
		got := "error"
		if err == nil {
			after := int64(-1)
			if q.AfterLsn != nil {
				after = int64(q.GetAfterLsn())
			}
			got = fmt.Sprintf("%v after %d kinds %v bookmark %d", q.Target, after, q.Kinds, q.BookmarkMs)
		}
		if got != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, x := range [][3]string{
		{`1`, "{\"status\":\"OK\"}\n", `{"id":1,"status":"OK"}`},
		{`"a"`, `{"status":"OK","lock":"{"}`, `{"id":"a","status":"OK","lock":"{"}`},
		{"", `{"status":"OK"}`, `{"id":null,"status":"OK"}`},
	} {
		id := json.RawMessage(x[0])
		if x[0] == "" {
			id = nil
		}
		if got := string(answer(id, []byte(x[1]))); got != x[2] {
			t.Errorf("got %s, want %s", got, x[2])
		}
	}
}

// FuzzMessage: whatever a client sends is understood or refused. What is understood says
// the same again when it is written out, and nothing of it can stand outside its object.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"c","request_id":1}`,
		`{"id":"x","op":"append","lock":"a","token":7,"file":"f","data":"\ud83d\ude00","adopt_existing":true}`,
		`{"id":-1e9,"op":"append","data_base64":"AP8="}`,
		`{"id":1,"op":"watch","prefix":"p","after":7,"kinds":["grant"],"bookmark":"5s"}`,
		`{"id":1,"op":"unwatch","watch":"w"}`, `{"id":1,"op":"hello","client_id":"c","losses_after_lsn":17}`,
		`{"id":1,"op":"x","a":{"b":[null,{}]}}`, `{"id":1,"id":2}`, `{"id":1,"op":"x"}}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if m.id != nil && (!json.Valid(m.id) || len(m.id) > maxID) {
			t.Fatalf("id %q", m.id)
		}
		if told := answer(m.id, []byte(`{"status":"OK"}`)); !json.Valid(told) {
			t.Fatalf("answer %s", told)
		}
		if err != nil {
			return
		}
		// The readers take whatever was understood.
		m.greeting()  //nolint:errcheck // it may be refused
		m.watch()     //nolint:errcheck // likewise
		m.unwatch()   //nolint:errcheck // likewise
		m.appending() //nolint:errcheck // likewise
		m.addClient("c")
		body := m.body()
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil || len(fields) != len(m.fields) {
			t.Fatalf("%d fields in %s: %v", len(m.fields), body, err)
		}
		again, err := decode(append([]byte(`{"id":`+string(m.id)+`,"op":`+string(encode(m.op))+sep(body)), body[1:]...))
		if err != nil || again.op != m.op || !bytes.Equal(again.id, m.id) || !bytes.Equal(again.body(), body) {
			t.Fatalf("%s\nbecame %s: %v", body, again.body(), err)
		}
	})
}

func sep(body []byte) string {
	if len(body) > 2 {
		return ","
	}
	return ""
}
