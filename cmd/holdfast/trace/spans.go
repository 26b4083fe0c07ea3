// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// parentLength is the length in bytes of a traceparent of version 00. Later versions may have more, and maxParent is up to
	// where one is looked at.
	parentLength, maxParent = 55, 256
)

// traceparent is the name of the W3C header.
const traceparent = "traceparent"

// parse returns the span that a traceparent names, and an invalid one for what is no traceparent.
func parse(parent string) api.SpanContext {
	if len(parent) < parentLength || len(parent) > maxParent || len(parent) > parentLength && strings.HasPrefix(parent, "00") {
		return api.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: parent})
	return api.SpanContextFromContext(ctx)
}

// parentOf returns the traceparent that names a span.
func parentOf(s api.SpanContext) string {
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(api.ContextWithSpanContext(context.Background(), s), to)
	return to[traceparent]
}

// newTraceID returns a random one, which is not zero.
func newTraceID() (id api.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

func newSpanID() (id api.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// call is one traced call. It implements serving.Trace.
type call struct {
	p      *pipeline
	parent api.SpanContext // the caller's span, invalid for none
	trace  api.TraceID
}

// ID implements serving.Trace.
func (c *call) ID() string { return c.trace.String() }

// Report implements serving.Trace.
func (c *call) Report(s serving.Stages) { c.p.offer(report{call: c, stages: s}) }

// Forward implements serving.Trace.
func (c *call) Forward(to cluster.ServerID) (parent string, end func(cluster.Status)) {
	id, began := newSpanID(), time.Now()
	parent = parentOf(api.NewSpanContext(api.SpanContextConfig{TraceID: c.trace, SpanID: id, TraceFlags: api.FlagsSampled}))
	return parent, func(s cluster.Status) {
		c.p.offer(report{call: c, to: to, span: id, stages: serving.Stages{Status: s, Put: began, Answered: time.Now()}})
	}
}

// report is what becomes spans: what this server did for a call, or, where to is set, an attempt to have another one do it.
type report struct {
	call   *call
	stages serving.Stages
	to     cluster.ServerID
	span   api.SpanID // of the attempt, which the other server knows already
}

// makeSpans makes the spans of a report. They are ended when it returns.
func (r *report) makeSpans(t api.Tracer) {
	ctx := context.WithValue(context.Background(), chosenKey{}, chosen{r.call.trace, r.span})
	if r.call.parent.IsValid() {
		ctx = api.ContextWithRemoteSpanContext(ctx, r.call.parent)
	}
	s := &r.stages
	name, kind := s.Op, api.SpanKindServer
	attributes := []attribute.KeyValue{attribute.String("holdfast.status", s.Status.String())}
	if r.to != 0 {
		name, kind = "forward", api.SpanKindClient
		attributes = append(attributes, attribute.Int("holdfast.to_server", int(r.to)))
	} else {
		attributes = append(attributes, attribute.Int64("holdfast.epoch", int64(s.Epoch)))
	}
	if s.Lock != "" {
		attributes = append(attributes, attribute.String("holdfast.lock", string(s.Lock)))
	}
	if s.File != "" {
		attributes = append(attributes, attribute.String("holdfast.file", string(s.File)))
	}
	_, span := t.Start(ctx, name, api.WithSpanKind(kind), api.WithTimestamp(s.Put), api.WithAttributes(attributes...))
	if wire.HTTPCode(s.Status) >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, s.Status.String())
	}
	if r.to == 0 {
		r.makeStages(t, span)
	}
	span.End(api.WithTimestamp(s.Answered))
}

// makeStages makes the spans of the stages that a call has passed.
func (r *report) makeStages(t api.Tracer, parent api.Span) {
	s := &r.stages
	ctx := api.ContextWithSpan(context.Background(), parent)
	last := "push"
	if s.Writes {
		last = "write"
	}
	for _, x := range []struct {
		name     string
		from, to time.Time
		always   bool
	}{
		{"wait", s.Put, s.Ready, false},
		{"queue", s.Ready, s.Commit, true},
		{"sync", s.Commit, s.Synced, false}, // of a batch without records there is none
		{"check", s.Synced, s.Checked, true},
		{last, s.Checked, s.Answered, false},
	} {
		if x.from.IsZero() || x.to.IsZero() || !x.always && !x.to.After(x.from) {
			continue
		}
		_, span := t.Start(ctx, x.name, api.WithTimestamp(x.from))
		span.End(api.WithTimestamp(x.to))
	}
}

// chosen are IDs of a span that were told to others before it is made; those that are zero are drawn.
type chosen struct {
	trace api.TraceID
	span  api.SpanID
}

type chosenKey struct{}

// ids is the sdk.IDGenerator: it takes the IDs that the context of a span has chosen.
type ids struct{}

// NewIDs implements sdk.IDGenerator, for a span without a parent.
func (g ids) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	c, _ := ctx.Value(chosenKey{}).(chosen)
	if !c.trace.IsValid() {
		c.trace = newTraceID()
	}
	return c.trace, g.NewSpanID(ctx, c.trace)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	if c, _ := ctx.Value(chosenKey{}).(chosen); c.span.IsValid() {
		return c.span
	}
	return newSpanID()
}

// newPipeline returns a pipeline to an exporter. The caller has run called.
func newPipeline(r *Recorder, c Config, exporter sdk.SpanExporter) *pipeline {
	p := &pipeline{
		Recorder: r, config: c, exporter: exporter, reports: make(chan report, queued),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.tracer = sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // Begin has decided
		sdk.WithIDGenerator(ids{}),
		sdk.WithSpanProcessor(p),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "holdfast"),
			attribute.String("service.version", r.opt.Version),
			attribute.Int("holdfast.server", int(r.opt.Server)),
		)),
	).Tracer("github.com/holdfast-lock/holdfast")
	return p
}

// CheckOTLP returns what is wrong with the address of a collector, nil if nothing is.
func CheckOTLP(address string) error {
	_, _, err := split(address)
	return err
}

// dialOTLP returns an exporter to a collector, which need not run yet. Headers and certificates are those of the environment
// variables that every exporter has: OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and so on.
func dialOTLP(address string) (sdk.SpanExporter, error) {
	host, secure, err := split(address)
	if err != nil {
		return nil, err
	}
	opts := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(host), otlptracegrpc.WithTimeout(exportWait),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // none: what comes meanwhile is worth as much
		otlptracegrpc.WithDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: exportWait},
			MinConnectTimeout: exportWait,
		})),
	}
	if !secure {
		opts = append(opts, otlptracegrpc.WithInsecure())
	}
	return otlptracegrpc.New(context.Background(), opts...)
}

// split returns host:port of a collector's address, and whether it is to be reached over TLS.
func split(address string) (host string, secure bool, err error) {
	host, secure = strings.CutPrefix(address, "https://")
	if _, port, err := net.SplitHostPort(host); err != nil || port == "" || strings.Contains(host, "/") {
		return "", false, fmt.Errorf("%q: use HOST:PORT, or https://HOST:PORT", address)
	}
	return host, secure, nil
}
