package telemetry

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
)

// open begins the span of a transaction. It is the root of a trace of its own:
// within a span of the program all of them would be one trace without an end.
func (t *Telemetry) open(ctx context.Context, o semel.Opening) (context.Context, func(semel.Batch, error)) {
	links, more := t.links(o)
	attrs := append(t.attributes(3), semconv.MessagingBatchMessageCount(o.N))
	if o.Letters {
		attrs = append(attrs, attribute.Bool("semel.letters", true))
	}
	if more > 0 {
		attrs = append(attrs, attribute.Int("semel.links.left_out", more))
	}
	ctx, span := t.tracer.Start(ctx, t.name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...), trace.WithLinks(links...))
	return ctx, func(b semel.Batch, err error) {
		defer span.End()
		if !span.IsRecording() {
			return
		}
		if err != nil {
			fail(span, err)
			return
		}
		for v, n := range b.Of {
			if n > 0 {
				span.SetAttributes(attribute.Int64("semel.verdict."+semel.Verdict(v).String(), n))
			}
		}
	}
}

// handle begins the span of one call of a handler.
func (t *Telemetry) handle(ctx context.Context, m *semel.Message) (context.Context, func(error)) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(append(t.attributes(1), semconv.MessagingMessageID(valid(m.ID)))...)}
	if p := t.producer(m); p.IsValid() && t.cfg.MaxLinks > 0 {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: p}))
	}
	ctx, span := t.tracer.Start(ctx, t.handler, opts...)
	return ctx, func(err error) {
		defer span.End()
		// A verdict is an answer, and no failure.
		switch {
		case errors.Is(err, semel.ErrDuplicate):
			span.SetAttributes(attribute.String("semel.verdict", semel.Duplicate.String()))
		case errors.Is(err, semel.ErrSuperseded):
			span.SetAttributes(attribute.String("semel.verdict", semel.Superseded.String()))
		case err != nil:
			fail(span, err)
		}
	}
}

// attributes are those of all spans, with room for more.
func (t *Telemetry) attributes(more int) []attribute.KeyValue {
	return append(make([]attribute.KeyValue, 0, len(t.common)+more), t.common...)
}

// links are the spans of the producers, each once, and how many were left out.
func (t *Telemetry) links(o semel.Opening) (links []trace.Link, more int) {
	if t.cfg.MaxLinks < 0 {
		return nil, 0
	}
	seen := map[spanKey]bool{}
	for m := range o.Messages {
		p := t.producer(m)
		key := spanKey{p.TraceID(), p.SpanID()}
		switch {
		case !p.IsValid() || seen[key]:
		case len(links) >= t.cfg.MaxLinks:
			more++
		default:
			seen[key] = true
			links = append(links, trace.Link{SpanContext: p})
		}
	}
	return links, more
}

// spanKey is what tells one span from another.
type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

// producer is the span in which a message was published, if it says so.
func (t *Telemetry) producer(m *semel.Message) trace.SpanContext {
	if len(m.Header) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.cfg.Propagator.Extract(context.Background(), carrier{m.Header}))
}

// fail marks a span as failed.
func fail(span trace.Span, err error) {
	class, marked := semel.ClassOf(err)
	name := class.String()
	if !marked {
		name = semconv.ErrorTypeOther.Value.AsString()
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(name))
	span.SetStatus(codes.Error, valid(clip(err.Error())))
}

// longest is how many bytes of an error a span gets.
const longest = 500

func clip(s string) string {
	if len(s) > longest {
		return s[:longest] + "…"
	}
	return s
}

// valid replaces what OTLP refuses.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// carrier reads headers for a propagator. Their names are compared without
// regard to case.
type carrier struct{ semel.Header }

// Get returns the first value of a header, "" if there is none.
func (c carrier) Get(name string) string {
	for _, f := range c.Header {
		if strings.EqualFold(f.Name, name) {
			return string(f.Value)
		}
	}
	return ""
}

// Set does nothing: messages are not changed.
func (carrier) Set(string, string) {}

// Keys returns the names of the headers.
func (c carrier) Keys() []string {
	names := make([]string, len(c.Header))
	for i, f := range c.Header {
		names[i] = f.Name
	}
	return names
}
