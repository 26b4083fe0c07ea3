// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// dialReflection serves s and connects to it.
func dialReflection(t *testing.T, s *service.Service) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpcapi.Options()...)
	grpcapi.Register(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	c, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close() //nolint:errcheck // once
		g.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // or it had not begun
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

// interview is a stream of questions to a server about itself.
type interview struct {
	stream grpc.BidiStreamingClient[reflectionpb.ServerReflectionRequest, reflectionpb.ServerReflectionResponse]
}

func newInterview(ctx context.Context, t *testing.T, c *grpc.ClientConn) *interview {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &interview{stream}
}

func (x *interview) ask(q *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
	if err := x.stream.Send(q); err != nil && !errors.Is(err, io.EOF) { // io.EOF: it has ended, and Recv says why
		return nil, err
	}
	r, err := x.stream.Recv()
	if err == nil && r.GetErrorResponse() != nil {
		err = status.Error(codes.Code(r.GetErrorResponse().GetErrorCode()), r.GetErrorResponse().GetErrorMessage())
	}
	return r, err
}

// services lists the services of the server.
func (x *interview) services() (names []string, err error) {
	r, err := x.ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	for _, s := range r.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names, err
}

// find returns what a name stands for, as the server describes it.
func (x *interview) find(name string) (protoreflect.Descriptor, error) {
	r, err := x.ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	if err != nil {
		return nil, err
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, b := range r.GetFileDescriptorResponse().GetFileDescriptorProto() {
		f := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(b, f); err != nil {
			return nil, err
		}
		set.File = append(set.File, f)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	return files.FindDescriptorByName(protoreflect.FullName(name))
}

// TestReflectionIsForCallers wants a description of the service for clients, and of nothing else, for those whom the rules permit anything.
func TestReflectionIsForCallers(t *testing.T) {
	served := []string{"grpc.reflection.v1.ServerReflection", "holdfast.v1.LockService"}
	open := dialReflection(t, service.New(startPrimary(t), service.Options{}))
	if names, err := newInterview(t.Context(), t, open).services(); err != nil || !slices.Equal(names, served) {
		t.Errorf("an open cluster has %q, %v", names, err)
	}
	for name, want := range map[string]codes.Code{"holdfast.v1.AcquireRequest": codes.OK, "holdfast.v1.Push": codes.NotFound, "google.protobuf.FileDescriptorProto": codes.NotFound} {
		if _, err := newInterview(t.Context(), t, open).find(name); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	other := metadata.AppendToOutgoingContext(t.Context(), wire.ClusterKey, strings.Repeat("0", 32))
	if names, err := newInterview(other, t, open).services(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("meant for another cluster: %q, %v", names, err)
	}
	ruled := dialReflection(t, service.New(startPrimary(t), service.Options{Authenticator: newCredentials(t)}))
	for who, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "wrong": codes.Unauthenticated, "fired": codes.Unauthenticated, "alice": codes.OK, "late": codes.OK, "root": codes.OK,
	} {
		ctx := t.Context()
		if who != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", wire.Bearer+who)
		}
		if names, err := newInterview(ctx, t, ruled).services(); status.Code(err) != want || (len(names) > 0) != (want == codes.OK) {
			t.Errorf("%q: %q, %v, want %v", who, names, err, want)
		}
	}
}

// A stream that was begun under other rules ends with the first question that they do not permit.
func TestReflectionAsksTheRulesEachTime(t *testing.T) {
	g := newCredentials(t)
	g.set(t, &access.File{Rules: []access.Rule{{Who: []string{"anonymous"}, May: []access.Verb{access.Read}, Locks: []string{"l"}}}})
	x := newInterview(t.Context(), t, dialReflection(t, service.New(startPrimary(t), service.Options{Authenticator: g})))
	if _, err := x.services(); err != nil {
		t.Error(err)
	}
	g.set(t, &access.File{Rules: []access.Rule{{Who: []string{"user:alice"}, May: []access.Verb{access.Read}, Locks: []string{"l"}}}})
	if names, err := x.services(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%q, %v", names, err)
	}
}

// TestGRPCDocument does what the commands of docs/grpc.md do, with what the server says of itself, and compares the answers that it shows.
func TestGRPCDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	x := &grpcurl{t: t, conn: dialReflection(t, service.New(startPrimary(t), service.Options{}))}
	kind, ran := "", 0
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		word, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && word != "" && kind != "":
			t.Fatalf("a block within a block: %s", line)
		case fence:
			if kind == "text" && len(x.said) > 0 {
				t.Errorf("not shown: %q", x.said)
			}
			kind = word
		case kind == "sh":
			x.run(strings.ReplaceAll(line, "TOKEN", x.token))
			ran++
		case kind == "text":
			if len(x.said) == 0 || x.said[0] != line {
				t.Fatalf("%q is shown, and said was %q", line, x.said)
			}
			x.said = x.said[1:]
		case kind == "json":
			x.compare(line)
		}
	}
	if ran < 7 || x.token == "" {
		t.Errorf("%d commands, and token %q", ran, x.token)
	}
}

// grpcurl does what the program of this name does, as far as the document needs it.
type grpcurl struct {
	t    *testing.T
	conn *grpc.ClientConn
	// said is the output of the last command, by line. A call has one line.
	said  []string
	token string
}

// run executes a command.
func (x *grpcurl) run(line string) {
	x.t.Helper()
	data, rest := "{}", []string{}
	args := shellWords(line)
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-plaintext":
		case "-d":
			i++
			data = args[i]
		case "-max-time":
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	if args[0] != "grpcurl" || len(rest) < 2 || rest[0] != "localhost:7601" {
		x.t.Fatalf("what is %s?", line)
	}
	ask := newInterview(x.t.Context(), x.t, x.conn)
	var err error
	switch {
	case rest[1] == "list":
		x.said, err = ask.services()
	case rest[1] == "describe":
		_, err = ask.find(rest[2])
	default:
		x.said, err = x.call(ask, rest[1], data)
	}
	if err != nil {
		x.t.Errorf("%s: %v", line, err)
	}
}

// call makes a call, and returns its answer, or the first one of a stream.
func (x *grpcurl) call(ask *interview, method, data string) ([]string, error) {
	d, err := ask.find(strings.Replace(method, "/", ".", 1))
	if err != nil {
		return nil, err
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no method", method)
	}
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(data), in); err != nil {
		return nil, err
	}
	if m.IsStreamingServer() {
		ctx, cancel := context.WithCancel(x.t.Context())
		defer cancel()
		stream, err := x.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+method)
		if err != nil {
			return nil, err
		}
		if err := stream.SendMsg(in); err != nil {
			return nil, err
		}
		if err := stream.RecvMsg(out); err != nil {
			return nil, err
		}
	} else if err := x.conn.Invoke(x.t.Context(), "/"+method, in, out); err != nil {
		return nil, err
	}
	b, err := protojson.MarshalOptions{Resolver: &protoregistry.Types{}}.Marshal(out)
	return []string{string(b)}, err
}

// compare wants the fields that the document shows in the last answer. The first token is what TOKEN stands for from then on.
func (x *grpcurl) compare(shown string) {
	x.t.Helper()
	var want, got map[string]any
	if err := json.Unmarshal([]byte(shown), &want); err != nil {
		x.t.Fatalf("%s: %v", shown, err)
	}
	if err := json.Unmarshal([]byte(strings.Join(x.said, "")), &got); err != nil {
		x.t.Fatalf("%q: %v", x.said, err)
	}
	if want["token"] == "TOKEN" {
		x.token, _ = got["token"].(string)
		want["token"] = x.token
	}
	if !within(want, got) {
		x.t.Errorf("%s is shown, and the answer is %q", shown, x.said)
	}
}

// within reports whether got has all fields of want, and those of its objects.
func within(want, got map[string]any) bool {
	for name, v := range want {
		inner, object := v.(map[string]any)
		of, _ := got[name].(map[string]any)
		if object && !within(inner, of) || !object && !reflect.DeepEqual(v, got[name]) {
			return false
		}
	}
	return true
}

// shellWords splits a command as a shell does, as far as single quotes go.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
