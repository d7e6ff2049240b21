package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/observe"
)

// meters are the instruments of one pipeline, with the attributes made ahead.
type meters struct {
	process, handled, age    metric.Float64Histogram
	size                     metric.Int64Histogram
	failures, panics, dead   metric.Int64Counter
	rollbacks, unsettled     metric.Int64Counter
	common                   metric.MeasurementOption
	attrs                    []attribute.KeyValue
	failed                   metric.MeasurementOption
	classes                  [semel.ClassFault + 1]metric.MeasurementOption
	registered               metric.Registration
	monitor                  *observe.Monitor
	received, taken, decided metric.Int64ObservableCounter
	letters, source, scopes  metric.Int64ObservableGauge
	heldKeys, condition      metric.Int64ObservableGauge
	overdue                  metric.Float64ObservableGauge
	verdicts                 [semel.Discarded + 1]metric.MeasurementOption
}

// maker makes instruments and keeps what goes wrong.
type maker struct {
	metric.Meter
	errs []error
}

func keep[T any](m *maker, inst T, err error) T {
	m.errs = append(m.errs, err)
	return inst
}

func newMeters(cfg Config, common []attribute.KeyValue) (*meters, error) {
	m := &maker{Meter: cfg.Meter.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	s := &meters{attrs: common, monitor: cfg.Monitor}
	s.common = s.with()
	s.failed = s.with(semconv.ErrorTypeOther)
	for c := range s.classes {
		s.classes[c] = s.with(attribute.String("semel.class", semel.Class(c).String()))
	}
	for v := range s.verdicts {
		s.verdicts[v] = s.with(attribute.String("semel.verdict", semel.Verdict(v).String()))
	}
	s.told(m)
	if cfg.Monitor != nil {
		s.observed(m)
	}
	return s, errors.Join(m.errs...)
}

// with is the common attributes and more, made once.
func (s *meters) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(append([]attribute.KeyValue{}, s.attrs...), more...)...))
}

// told makes what observers are told of.
func (s *meters) told(m *maker) {
	seconds := metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
	histogram := func(name, text string, bounds metric.HistogramOption) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), bounds)
		return keep(m, h, err)
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		return keep(m, c, err)
	}
	s.process = histogram("messaging.process.duration", "Duration of processing operation.", seconds)
	s.handled = histogram("semel.handler.duration", "The part of a transaction that was spent in handlers.", seconds)
	s.age = histogram("semel.message.age", "Age of the oldest delivery of a transaction at its commit, by the time in the message.",
		metric.WithExplicitBucketBoundaries(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6*3600, 86400, 7*86400))
	size, err := m.Int64Histogram("semel.batch.messages", metric.WithUnit("{message}"), metric.WithDescription("Messages in a transaction that committed."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
	s.size = keep(m, size, err)
	s.failures = counter("semel.failures", "{attempt}", "Failed attempts and messages set aside, by the class of the error.")
	s.panics = counter("semel.panics", "{attempt}", "Failed attempts in which the handler or the decoder panicked.")
	s.dead = counter("semel.dead_letters", "{message}", "Messages that became dead letters in this process, by reason.")
	s.rollbacks = counter("semel.rollbacks", "{transaction}", "Transactions that did not commit.")
	s.unsettled = counter("semel.unsettled", "{message}", "Settlements that did not reach the source.")
}

func (s *meters) observer() semel.Observer {
	return semel.Observer{
		Open: s.open, Batch: s.batch, Failed: s.failure,
		Unsettled: func(n int, _ error) { s.unsettled.Add(context.Background(), int64(n), s.common) },
	}
}

// open measures a transaction in its own context, so that an SDK can tie the
// measurement to the span.
func (s *meters) open(ctx context.Context, _ semel.Opening) (context.Context, func(semel.Batch, error)) {
	began := time.Now()
	return ctx, func(_ semel.Batch, err error) {
		if err != nil {
			s.process.Record(ctx, time.Since(began).Seconds(), s.failed)
			s.rollbacks.Add(ctx, 1, s.common)
			return
		}
		s.process.Record(ctx, time.Since(began).Seconds(), s.common)
	}
}

func (s *meters) batch(b semel.Batch) {
	s.size.Record(context.Background(), int64(b.Messages), s.common)
	s.handled.Record(context.Background(), b.Handled.Seconds(), s.common)
	if !b.Letters && !b.Oldest.IsZero() {
		s.age.Record(context.Background(), max(0, time.Since(b.Oldest).Seconds()), s.common)
	}
}

func (s *meters) failure(f semel.Failure) {
	s.failures.Add(context.Background(), 1, s.classes[min(f.Class, semel.ClassFault)])
	if f.Panic {
		s.panics.Add(context.Background(), 1, s.common)
	}
	if f.Verdict == semel.Dead {
		s.dead.Add(context.Background(), 1, s.with(attribute.String("semel.reason", f.Reason)))
	}
}

// observed makes what the Monitor knows. It is read when somebody collects; the
// Monitor asks the store at a rate of its own.
func (s *meters) observed(m *maker) {
	counter := func(name, text string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit("{message}"), metric.WithDescription(text))
		return keep(m, c, err)
	}
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		return keep(m, g, err)
	}
	s.received = counter("messaging.client.consumed.messages", "Number of messages that were delivered to the application.")
	s.taken = counter("semel.letters.taken", "Parked messages that were taken up again.")
	s.decided = counter("semel.messages.decided", "What became of deliveries and of parked messages taken up again.")
	s.letters = gauge("semel.letters", "{letter}", "Open letters of the pipeline, all processes together, by state.")
	s.heldKeys = gauge("semel.held_keys", "{key}", "Keys with messages held behind one that failed.")
	s.source = gauge("semel.source.messages", "{message}", "What the source holds, by stage.")
	s.scopes = gauge("semel.scopes", "{scope}", "Scopes that this process owns, or that were stopped.")
	s.condition = gauge("semel.condition", "1", "1 for every reason for not being ready.")
	overdue, err := m.Float64ObservableGauge("semel.letters.overdue", metric.WithUnit("s"), metric.WithDescription("How long the letter that is due first has been due."))
	s.overdue = keep(m, overdue, err)
	registered, err := m.RegisterCallback(s.collect, s.received, s.taken, s.decided, s.letters, s.heldKeys, s.source, s.scopes, s.condition, s.overdue)
	s.registered = keep(m, registered, err)
}

func (s *meters) collect(_ context.Context, o metric.Observer) error {
	now := s.monitor.Snapshot()
	o.ObserveInt64(s.received, now.Account.Received, s.common)
	o.ObserveInt64(s.taken, now.Account.Taken, s.common)
	for v := semel.Applied; v <= semel.Discarded; v++ {
		o.ObserveInt64(s.decided, now.Account.Of[v], s.verdicts[v])
	}
	one := func(g metric.Int64Observable, n int64, name, value string) {
		o.ObserveInt64(g, n, s.with(attribute.String(name, value)))
	}
	one(s.scopes, int64(now.Assigned), "semel.state", "assigned")
	one(s.scopes, int64(now.Stopped), "semel.state", "stopped")
	for c, holds := range now.Conditions {
		var n int64
		if holds {
			n = 1
		}
		one(s.condition, n, "semel.condition", string(c))
	}
	if now.Measured {
		for stage, n := range map[string]int64{"waiting": now.Depth.Waiting, "claimed": now.Depth.Claimed, "settling": now.Depth.Settling} {
			if n >= 0 {
				one(s.source, n, "semel.stage", stage)
			}
		}
	}
	if now.Read.IsZero() {
		return nil
	}
	for state, n := range now.Letters {
		one(s.letters, n, "semel.state", string(state))
	}
	o.ObserveInt64(s.heldKeys, now.HeldKeys, s.common)
	var overdue float64
	if !now.NextDue.IsZero() {
		overdue = max(0, time.Since(now.NextDue).Seconds())
	}
	o.ObserveFloat64(s.overdue, overdue, s.common)
	return nil
}
