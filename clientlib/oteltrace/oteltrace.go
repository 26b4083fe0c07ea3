// SPDX-License-Identifier: Apache-2.0

// Package oteltrace traces the calls of a client with OpenTelemetry.
//
//	o.Hooks.Call = oteltrace.Calls(otel.GetTracerProvider())
//
// Each call to the service becomes a span below that of the context of the caller, holdfast.acquire for example, and each try of
// it a span holdfast.try below that: a failover in the middle of a call shows as tries that failed, and one that did not.
// Where the trace is sampled, the server is told of it. A server that sends traces itself adds below the try what it did: the
// wait for the lock, the log, the check of the fence, the file.
//
// The package needs the API of OpenTelemetry and not its SDK, which the program chooses and sets up. Whether a call is traced is
// for the sampler of the program; without an SDK none is.
package oteltrace

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// Calls returns a hook for clientlib.Hooks.Call, which makes spans by the tracers of p. Several clients may share it. The names
// of locks and the addresses of servers are in the spans.
func Calls(p trace.TracerProvider) func(ctx context.Context, op string, lock clientlib.LockName) *clientlib.CallTrace {
	t := p.Tracer("github.com/holdfast-lock/holdfast/clientlib")
	return func(ctx context.Context, op string, lock clientlib.LockName) *clientlib.CallTrace {
		var about []attribute.KeyValue
		if lock != "" {
			about = append(about, attribute.String("holdfast.lock", string(lock)))
		}
		ctx, span := t.Start(ctx, "holdfast."+strings.ReplaceAll(op, " ", "_"), trace.WithAttributes(about...))
		if !span.SpanContext().IsSampled() {
			span.End()
			return nil
		}
		return &clientlib.CallTrace{
			Try:   func(server string) (string, func(error)) { return try(ctx, t, server) },
			Ended: func(err error) { ended(span, err) },
		}
	}
}

// try begins the span of a try, for clientlib.CallTrace.Try.
func try(ctx context.Context, t trace.Tracer, server string) (traceparent string, ended func(error)) {
	ctx, span := t.Start(ctx, "holdfast.try", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("server.address", server)))
	if span.SpanContext().IsSampled() {
		to := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, to)
		traceparent = to.Get("traceparent")
	}
	return traceparent, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// ended ends the span of a call. A refusal is an answer, as that others hold the lock: the span has its status, and is no failed
// one.
func ended(span trace.Span, err error) {
	if refusal, ok := errors.AsType[*clientlib.ServiceError](err); ok {
		span.SetAttributes(attribute.String("holdfast.status", refusal.Status.String()))
	}
	if failed, ok := errors.AsType[*clientlib.CallError](err); ok {
		span.SetStatus(codes.Error, failed.Error())
	}
	span.End()
}
