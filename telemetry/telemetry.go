package telemetry

import (
	"cmp"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/observe"
)

// scope names the instrumentation.
const scope = "github.com/semel-dev/semel/telemetry"

// Config says what is told to whom.
type Config struct {
	// Pipeline is messaging.consumer.group.name. Required.
	Pipeline string
	// System is messaging.system: "kafka", "rabbitmq", "nats". Default "semel".
	System string
	// Destination is messaging.destination.name: a topic, a queue. May be empty.
	Destination string

	// Tracer makes the spans. nil: none are made.
	Tracer trace.TracerProvider
	// Propagator reads the producer's span from the headers of a message.
	// Default propagation.TraceContext, which is W3C traceparent.
	Propagator propagation.TextMapPropagator
	// MaxLinks bounds the links of a span. Default 128, which is where SDKs
	// cut them; negative: no links.
	MaxLinks int
	// Handlers makes a span of every call of a handler that takes one message,
	// too, also of calls whose transaction is rolled back and done again.
	Handlers bool

	// Meter makes the metrics. nil: none are made.
	Meter metric.MeterProvider
	// Monitor is where metrics come from that observers are not told: what was
	// received, what became of it, what lies in store and source, health. nil:
	// there are none of these.
	Monitor *observe.Monitor
}

// Telemetry tells OpenTelemetry what one pipeline does. It is safe for
// concurrent use.
type Telemetry struct {
	cfg     Config
	tracer  trace.Tracer // nil: no spans
	name    string       // of spans of transactions
	handler string       // of spans of handlers
	common  []attribute.KeyValue
	meters  *meters // nil: no metrics
}

// New checks the configuration and makes the instruments.
func New(cfg Config) (*Telemetry, error) {
	if cfg.Pipeline == "" {
		return nil, errors.New("telemetry: Pipeline is missing")
	}
	cfg.System = cmp.Or(cfg.System, "semel")
	cfg.MaxLinks = cmp.Or(cfg.MaxLinks, 128)
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	t := &Telemetry{cfg: cfg, name: "process", handler: "handle", common: []attribute.KeyValue{
		semconv.MessagingSystemKey.String(cfg.System),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingOperationName("process"),
		semconv.MessagingConsumerGroupName(cfg.Pipeline),
	}}
	if cfg.Destination != "" {
		t.name, t.handler = t.name+" "+cfg.Destination, t.handler+" "+cfg.Destination
		t.common = append(t.common, semconv.MessagingDestinationName(cfg.Destination))
	}
	if cfg.Tracer != nil {
		t.tracer = cfg.Tracer.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	}
	if cfg.Meter != nil {
		var err error
		if t.meters, err = newMeters(cfg, t.common); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Observer returns what is to be told. Hooks that nothing needs are not set.
func (t *Telemetry) Observer() semel.Observer {
	var o semel.Observer
	if t.tracer != nil {
		o.Open = t.open
		if t.cfg.Handlers {
			o.Handle = t.handle
		}
	}
	if t.meters != nil {
		o = semel.Join(o, t.meters.observer())
	}
	return o
}

// Close ends the observation of the Monitor. The providers belong to the
// program.
func (t *Telemetry) Close() error {
	if t.meters == nil || t.meters.registered == nil {
		return nil
	}
	return t.meters.registered.Unregister()
}
