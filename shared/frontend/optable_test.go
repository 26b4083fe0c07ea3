// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// indexed is a replica whose volume has an index of no file.
type indexed struct{ *fedReplica }

func (indexed) Blame(context.Context, index.Query) (index.Blame, error) { return index.Blame{}, nil }

// A replica answers what the table of operations says that any server does, and nothing else.
func TestReplicaServesWhatTheTableSays(t *testing.T) {
	r := newFedReplica(t)
	r.ask(locktable.Request{Op: locktable.OpAcquire, Client: "c", Lock: "l", TTL: time.Minute})
	c := reflect.ValueOf(dialGRPC(t, indexed{r}))
	for _, o := range ops.All() {
		if o.Method == "" || !o.Unary() {
			continue
		}
		out := c.MethodByName(o.Method).Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(filled(o.New()))})
		err, _ := out[1].Interface().(error)
		got := statusOf(out[0].Interface().(ops.Response).GetStatus(), err)
		if (got == cluster.StatusSecondaryMode) != (o.Server == ops.Primary) {
			t.Errorf("%s is for %s, and a replica answers %v", o.Name, o.Server, got)
		}
	}
}

// filled sets the fields of a message that most requests have.
func filled(m proto.Message) proto.Message {
	x := m.ProtoReflect()
	for name, value := range map[protoreflect.Name]any{
		"client_id": "c", "request_id": uint64(1), "lock": "l", "token": uint64(1), "file": "f", "nonce": uint64(1), "ttl_ms": wire.CeilMillis(time.Second),
	} {
		if f := x.Descriptor().Fields().ByName(name); f != nil {
			x.Set(f, protoreflect.ValueOf(value))
		}
	}
	return m
}
