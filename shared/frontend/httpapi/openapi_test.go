// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// openAPI is the description of the HTTP front end for programs.
const openAPI = "../../../docs/api/openapi.json"

// TestOpenAPI compares docs/api/openapi.json with what it is made of: the table of operations, what the front end accepts, the types
// of its answers, and docs/http.md. After a change on purpose, HOLDFAST_REWRITE=1 writes it anew.
func TestOpenAPI(t *testing.T) {
	d := newDescription(t)
	paths := object{}
	for _, o := range ops.All() {
		if o.Route == "" {
			continue
		}
		method, path, _ := strings.Cut(strings.Replace(o.Route, "{name...}", "{name}", 1), " ")
		if method == "LOCK" || method == "UNLOCK" {
			continue // OpenAPI knows no such methods
		}
		of, _ := paths[path].(object)
		if of == nil {
			of = object{}
			paths[path] = of
		}
		of[strings.ToLower(method)] = d.operation(o)
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Holdfast", "version": "v1", "license": object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
			"description": "Locks, and appends to files that happen exactly once. docs/http.md says what all of this means.",
		},
		"servers":  []any{object{"url": "http://localhost:7601"}},
		"security": []any{object{"bearer": []any{}}, object{}},
		"paths":    paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer", "description": "A key or a ticket; where the volume has access rules."}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		if err := os.WriteFile(openAPI, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/api/openapi.json does not have what the server has; if that is on purpose, type: HOLDFAST_REWRITE=1 go test ./shared/frontend/httpapi -run OpenAPI\n%s", firstDifference(got.String(), string(want)))
	}
}

// firstDifference returns the first line that differs.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: the server has %q, the file %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("the server has %d lines, the file %d", len(a), len(b))
}

// object is an object in JSON.
type object = map[string]any

// description makes the document.
type description struct {
	t       *testing.T
	h       *Handler
	words   map[string]string // what docs/http.md says of an operation, by the first cell of its row
	schemas object
	types   map[string]reflect.Type // of which the schemas are, by name
}

func newDescription(t *testing.T) *description {
	b, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &description{t: t, h: New(service.New(bare{}, service.Options{}), Options{Log: zerolog.Nop()}), words: map[string]string{}, types: map[string]reflect.Type{}, schemas: object{
		"Duration": object{"type": "string", "description": "A Go duration in whole milliseconds.", "example": "1m30s"},
		"Status":   object{"type": "string", "enum": statusWords()},
	}}
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z_/0-9 ]+)` \\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(string(b), -1) {
		d.words[m[1]] = strings.TrimSpace(link.ReplaceAllString(m[2], "$1"))
	}
	return d
}

func statusWords() (words []string) {
	for _, s := range cluster.Statuses() {
		words = append(words, s.String())
	}
	return words
}

// operation describes one row of the table.
func (d *description) operation(o *ops.Operation) object {
	row := rowOf(o)
	x := object{
		"operationId": o.Name, "summary": regexp.MustCompile("[:;.] .*").ReplaceAllString(d.words[row], ""), "responses": d.responses(o),
		"description": fmt.Sprintf("%s. Executed by: %s. A repeat: %s.", d.words[row], o.Server, o.Repeat),
	}
	if d.words[row] == "" {
		d.t.Errorf("docs/http.md says nothing of %s", row)
	}
	fields := accepts(d.t, d.h, o.Route)
	if o.Posted() && !o.Data {
		x["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.body(o, fields)}}}
		if o.Name == "cancel" || o.Name == "outcome" || o.Name == "keepalive" {
			x["parameters"] = []any{object{"name": "lock", "in": "query", "schema": object{"type": "string"}, "description": "In a site, for a client ID of the caller's own: a lock for which it was used."}}
		}
		return x
	}
	switch {
	case o.Name == "putstate":
		x["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": object{"type": "object"}}}}
	case o.Data:
		x["requestBody"] = object{"required": true, "content": object{"application/octet-stream": object{"schema": object{"type": "string", "format": "binary"}}}}
	}
	parameters := []any{}
	if strings.Contains(o.Path(), "{name...}") {
		parameters = append(parameters, object{
			"name": "name", "in": "path", "required": true, "schema": object{"type": "string"}, "description": "A name with a slash needs %2F for it, or the slash itself.",
		})
	}
	if o.Name == "livez" || o.Name == "readyz" {
		parameters = append(parameters, object{"name": "verbose", "in": "query", "allowEmptyValue": true, "schema": object{"type": "string"}})
	}
	for _, name := range fields {
		parameters = append(parameters, object{"name": name, "in": "query", "schema": d.parameter(o, name)})
	}
	if len(parameters) > 0 {
		x["parameters"] = parameters
	}
	return x
}

// body returns the schema of a JSON body with these fields.
func (d *description) body(o *ops.Operation, fields []string) object {
	properties := object{}
	for _, name := range fields {
		properties[name] = d.field(o, name)
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties}
}

// field returns the schema of a field of a request: that of the message, in milliseconds where HTTP has a duration.
func (d *description) field(o *ops.Operation, name string) any {
	fields := o.Message.ProtoReflect().Descriptor().Fields()
	if fields.ByName(protoreflect.Name(name+"_ms")) != nil {
		if name == "wait" {
			return object{"allOf": []any{ref("Duration")}, "description": `A duration, or "forever".`}
		}
		return ref("Duration")
	}
	f := fields.ByName(protoreflect.Name(name))
	switch {
	case f == nil:
		d.t.Errorf("%s takes %s, which its message has not", o.Name, name)
		return nil
	case f.Message() == nil:
		return scalar(d.t, f)
	}
	nested := object{}
	for _, inner := range acceptsIn(d.t, d.h, o.Path(), name) {
		nested[inner] = scalar(d.t, f.Message().Fields().ByName(protoreflect.Name(inner)))
	}
	return object{"type": "object", "additionalProperties": false, "properties": nested}
}

// acceptsIn lists the fields of an object within a body.
func acceptsIn(t *testing.T, h http.Handler, path, field string) []string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(`{"`+field+`":{"?":1}}`)))
	_, list, _ := strings.Cut(w.Body.String(), "allowed are ")
	list, _, _ = strings.Cut(list, `"`)
	return strings.Split(list, ", ")
}

// parameter returns the schema of a parameter of a query: that of the message's field, by its name there.
func (d *description) parameter(o *ops.Operation, name string) any {
	if o.Message != nil {
		fields := o.Message.ProtoReflect().Descriptor().Fields()
		if fields.ByName(protoreflect.Name(name+"_ms")) != nil {
			return ref("Duration")
		}
		if fields.ByName(protoreflect.Name(name+"_unix_ms")) != nil {
			return object{"type": "string", "description": "A time of day: 2006-01-02T15:04:05Z, or milliseconds since 1970."}
		}
		for _, f := range []protoreflect.FieldDescriptor{fields.ByName(protoreflect.Name(name)), fields.ByName(protoreflect.Name("max_" + name))} {
			if f != nil && !f.IsList() && f.Message() == nil {
				return scalar(d.t, f)
			}
		}
	}
	// What HTTP has beside the messages.
	switch o.Name + " " + name {
	case "status each", "lockmetrics holders", "file follow":
		return object{"type": "boolean"}
	case "watch after":
		return object{"type": "string", "description": "An LSN, or " + fromReset + "."}
	case "watch kinds":
		return object{"type": "string", "description": "Kinds of events, with commas between: " + strings.Join(wire.EventWords(), ", ") + "."}
	case "putstate ID", "deletestate ID":
		return object{"type": "string", "description": "The lock ID of a LOCK."}
	case "watch lock", "watch prefix", "lockmetrics prefix":
		return object{"type": "string"}
	case "lockmetrics lock":
		return object{"type": "array", "items": object{"type": "string"}}
	}
	d.t.Errorf("%s takes %s, of which the type is not known", o.Name, name)
	return nil
}

// scalar returns the schema of a field of a message that is a number, a text or a truth value.
func scalar(t *testing.T, f protoreflect.FieldDescriptor) any {
	switch f.Kind() {
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.EnumKind:
		if f.Enum() == pb.Mode(0).Descriptor() {
			return object{"type": "string", "enum": []string{wire.ModeWord(pb.Mode_MODE_EXCLUSIVE), wire.ModeWord(pb.Mode_MODE_SHARED)}}
		}
	case protoreflect.Int64Kind:
		return object{"type": "integer", "format": "int64"}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return object{"type": "integer", "minimum": 0}
	}
	t.Errorf("field %s is of a kind that no schema is known for", f.FullName())
	return nil
}

// responses describes the answers to an operation: OK, and all others.
func (d *description) responses(o *ops.Operation) object {
	refused := d.schema(reflect.TypeFor[wire.Body]())
	json := func(s any) object { return object{"application/json": object{"schema": s}} }
	answer := func(content any) object {
		return object{
			"200":     object{"description": "OK", "content": content},
			"default": object{"description": "refused: status and message say why", "content": json(refused)},
		}
	}
	either := func(own any) object {
		return object{"description": "refused: status and message say why", "content": json(object{"anyOf": []any{own, refused}})}
	}
	body := d.answerOf(o)
	if body == nil {
		text := object{"text/plain": object{"schema": object{"type": "string"}}}
		switch o.Name {
		case "lockmetrics": // locks that cannot be read are refused as their list is
			x := answer(text)
			x["default"] = either(d.schema(reflect.TypeFor[wire.LocksBody]()))
			return x
		case "state":
			return answer(json(object{"type": "object", "description": "A state, as it was posted."}))
		case "keys":
			return answer(json(object{"type": "object", "description": "A JSON Web Key Set."}))
		case "file":
			x := answer(object{"application/octet-stream": object{"schema": object{"type": "string", "format": "binary"}}})
			x["206"] = object{"description": "a range", "content": x["200"].(object)["content"]}
			return x
		case "watch":
			return answer(object{"text/event-stream": object{"schema": d.schema(reflect.TypeFor[wire.EventBody]())}})
		}
		return answer(text)
	}
	own := d.schema(body)
	x := answer(json(own))
	if o.Name == "livez" || o.Name == "readyz" { // with verbose
		for _, r := range []string{"200", "default"} {
			x[r].(object)["content"].(object)["text/plain"] = object{"schema": object{"type": "string"}}
		}
	}
	if body != reflect.TypeFor[wire.Body]() { // what is refused before it is asked has the fields of an answer
		x["default"] = either(own)
	}
	return x
}

// answerOf returns the type that is sent for an operation, nil for none that is a JSON object of the server's.
func (d *description) answerOf(o *ops.Operation) reflect.Type {
	switch o.Name {
	case "keys", "file", "state", "watch", "metrics", "lockmetrics":
		return nil
	case "outcome":
		return reflect.TypeFor[wire.OutcomeBody]()
	case "prove":
		return reflect.TypeFor[wire.ProofBody]()
	case "login":
		return reflect.TypeFor[wire.LoginBody]()
	case "locks":
		return reflect.TypeFor[wire.LocksBody]()
	case "lock":
		return reflect.TypeFor[wire.LockBody]()
	case "why":
		return reflect.TypeFor[why.Body]()
	case "files":
		return reflect.TypeFor[wire.FilesBody]()
	case "blame":
		return reflect.TypeFor[wire.BlameBody]()
	case "history":
		return reflect.TypeFor[wire.HistoryBody]()
	case "status":
		return reflect.TypeFor[wire.StatusBody]()
	case "whoami":
		return reflect.TypeFor[wire.WhoAmIBody]()
	}
	return reflect.TypeFor[wire.Body]()
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// schema returns the schema of a type as encoding/json writes it. Structs become components.
func (d *description) schema(of reflect.Type) any {
	switch {
	case of.Kind() == reflect.Pointer:
		return d.schema(of.Elem())
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch of.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(of.Elem())}
	case reflect.Struct:
		name := schemaName(of)
		if d.schemas[name] == nil {
			d.schemas[name], d.types[name] = object{}, of // where it refers to itself
			d.schemas[name] = d.structure(of)
		}
		if d.types[name] != of {
			d.t.Errorf("%v and %v are both called %s", of, d.types[name], name)
		}
		return ref(name)
	}
	d.t.Errorf("no schema is known for %v", of)
	return nil
}

func schemaName(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[wire.Body]():
		return "Answer"
	case reflect.TypeFor[why.Body]():
		return "Why"
	case reflect.TypeFor[wire.StatusBody]():
		return "ClusterStatus"
	}
	return strings.TrimSuffix(of.Name(), "Body")
}

// structure describes a struct: its fields are required unless they may be left out, and null where a pointer may be.
func (d *description) structure(of reflect.Type) object {
	properties, required := object{}, []string{}
	d.fields(of, false, properties, &required)
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	return s
}

// nullable describes a value that may be null. The version 3.0 of OpenAPI has no such form of a reference.
func (d *description) nullable(of reflect.Type) object {
	if of.Kind() == reflect.Struct {
		s := d.structure(of)
		s["nullable"] = true
		return s
	}
	s, _ := d.schema(of).(object)
	return object{"type": s["type"], "nullable": true}
}

func (d *description) fields(of reflect.Type, optional bool, properties object, required *[]string) {
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			inner, pointer := f.Type, f.Type.Kind() == reflect.Pointer
			if pointer {
				inner = inner.Elem()
			}
			d.fields(inner, optional || pointer, properties, required)
			continue
		}
		s, mayMiss := d.schema(f.Type), strings.Contains(options, "omit")
		switch {
		case name == "status":
			s = ref("Status")
		case f.Type.Kind() == reflect.Pointer && !mayMiss:
			s = d.nullable(f.Type.Elem())
		}
		if properties[name] = s; !optional && !mayMiss {
			*required = append(*required, name)
		}
	}
}
