// SPDX-License-Identifier: Apache-2.0

// Package collector is a collector of traces in the process of a test: a server that takes spans by OTLP over gRPC, and keeps
// them.
package collector

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Span is a span as the tests look at it.
type Span struct {
	Name, Trace, ID, Parent string // IDs in hexadecimal, Parent "" for none
	Kind                    string
	Began, Ended            time.Time
	Failed                  bool
	// Attributes has those of the span, and Resource those of the process that sent it, as text.
	Attributes, Resource map[string]string
}

// Took returns how long the span lasted.
func (s Span) Took() time.Duration { return s.Ended.Sub(s.Began) }

// Collector keeps what it gets. Its methods are safe for use by several goroutines.
type Collector struct {
	otlp.UnimplementedTraceServiceServer
	// Addr is where it listens.
	Addr string

	mu    sync.Mutex
	spans []Span
	calls int
	fails bool
	hangs chan struct{} // not nil while exports hang; closed at the end
}

// New starts a collector, which ends with the test.
func New(tb testing.TB) *Collector {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Collector{Addr: l.Addr().String()}
	g := grpc.NewServer()
	otlp.RegisterTraceServiceServer(g, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Serve(l) //nolint:errcheck // it ends with Stop
	}()
	tb.Cleanup(func() {
		c.Hang(false)
		g.Stop()
		<-ended
	})
	return c
}

// Hang has exports hang from now on, or go on.
func (c *Collector) Hang(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && c.hangs == nil:
		c.hangs = make(chan struct{})
	case !on && c.hangs != nil:
		close(c.hangs)
		c.hangs = nil
	}
}

// Fail has exports fail from now on, or be taken.
func (c *Collector) Fail(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = on
}

// Calls returns how many exports have begun.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Spans returns what was taken, in order of beginning.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return a.Began.Compare(b.Began) })
	return all
}

// Await returns the spans when they are as ok wants them, or fails the test after a while.
func (c *Collector) Await(tb testing.TB, what string, ok func([]Span) bool) []Span {
	tb.Helper()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for over := time.After(20 * time.Second); ; {
		all := c.Spans()
		if ok(all) {
			return all
		}
		select {
		case <-t.C:
		case <-over:
			tb.Fatalf("the collector did not get %s; it has %d spans: %+v", what, len(all), all)
		}
	}
}

// Export implements otlp.TraceServiceServer.
func (c *Collector) Export(ctx context.Context, q *otlp.ExportTraceServiceRequest) (*otlp.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	c.calls++
	hangs, fails := c.hangs, c.fails
	c.mu.Unlock()
	if fails {
		return nil, status.Error(codes.ResourceExhausted, "this collector is full")
	}
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		resource := attributesOf(r.GetResource().GetAttributes())
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(s, resource))
			}
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

func spanOf(s *pb.Span, resource map[string]string) Span {
	return Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Kind: s.GetKind().String(), Began: time.Unix(0, int64(s.GetStartTimeUnixNano())), Ended: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == pb.Status_STATUS_CODE_ERROR, Attributes: attributesOf(s.GetAttributes()), Resource: resource,
	}
}

func attributesOf(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return m
}
