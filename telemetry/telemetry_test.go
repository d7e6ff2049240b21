package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/retry"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
	"github.com/semel-dev/semel/telemetry"
)

type tx = *memstore.Tx

// published is a message with the span of its producer in its headers.
func published(id string, span byte) semel.Message {
	parent := fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", span)
	return semel.Message{ID: id, Body: []byte("secret"), Header: semel.Header{{Name: "other", Value: []byte("x")}, {Name: "TraceParent", Value: []byte(parent)}}}
}

// run handles the messages of one partition in a pipeline that is told to tel,
// until nothing is left.
func run(t *testing.T, o semel.Observer, mon *observe.Monitor, handle func(context.Context, tx, semel.Message) error, ms ...semel.Message) {
	t.Helper()
	b, st := membroker.New(membroker.Config{Partitions: 1}), memstore.New()
	b.Publish(0, ms...)
	r := b.Receiver()
	defer r.Close(context.Background())
	c, err := consumer.New(consumer.Config{
		Name: "orders", Horizon: time.Hour, Start: consumer.StartFirst, Drain: &consumer.Drain{}, Observer: o,
		Decoder: broker.DecoderFunc(func(*semel.Delivery) error { return nil }),
		Retry:   retry.Policy{Delays: []time.Duration{time.Second}},
	}, r, store.Backend[tx](st), consumer.Each(handle))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if mon != nil {
		go mon.Watch(ctx, observe.Target{Account: c.Account, Depth: r.Depth, Status: func(ctx context.Context) (store.Status, error) { return st.Status(ctx, "orders", false) }})
	}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // the monitor looks once more
	synctest.Wait()
}

func nothing(context.Context, tx, semel.Message) error { return nil }

func traced(t *testing.T, cfg telemetry.Config) (*tracetest.SpanRecorder, semel.Observer) {
	t.Helper()
	rec := tracetest.NewSpanRecorder()
	cfg.Pipeline, cfg.System, cfg.Destination = "orders", "kafka", "topic"
	cfg.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
	tel, err := telemetry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rec, tel.Observer()
}

// describe writes a span's name, kind, status and attributes.
func describe(s sdktrace.ReadOnlySpan) string {
	attrs := map[string]string{}
	for _, a := range s.Attributes() {
		attrs[string(a.Key)] = a.Value.String()
	}
	parts := []string{s.Name(), s.SpanKind().String(), s.Status().Code.String(), fmt.Sprintf("links=%d", len(s.Links()))}
	for _, k := range slices.Sorted(maps.Keys(attrs)) {
		if !strings.HasPrefix(k, "messaging.") || strings.HasSuffix(k, "message_count") || strings.HasSuffix(k, "message.id") {
			parts = append(parts, k+"="+attrs[k])
		}
	}
	return strings.Join(parts, " ")
}

func wantSpans(t *testing.T, got []sdktrace.ReadOnlySpan, want ...string) {
	t.Helper()
	var all []string
	for _, s := range got {
		all = append(all, describe(s))
	}
	if !slices.Equal(all, want) {
		t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
}

// TestSpanOfATransaction: every transaction is a span, with what it decided,
// the names of the conventions, and links to the producers, each once.
func TestSpanOfATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, o := traced(t, telemetry.Config{})
		inside := map[string]trace.SpanContext{}
		run(t, o, nil, func(ctx context.Context, _ tx, m semel.Message) error {
			inside[m.ID] = trace.SpanContextFromContext(ctx)
			if m.ID == "c" {
				return semel.Permanent(errors.New("no"))
			}
			return nil
		}, published("a", 1), published("b", 1), published("c", 2), semel.Message{ID: "d"})
		spans := rec.Ended()
		wantSpans(t, spans,
			"process topic consumer Error links=2 error.type=permanent messaging.batch.message_count=4",
			"process topic consumer Unset links=2 messaging.batch.message_count=3 semel.verdict.applied=2 semel.verdict.dead=1",
			"process topic consumer Unset links=0 messaging.batch.message_count=1 semel.verdict.applied=1")
		for key, want := range map[attribute.Key]string{
			"messaging.system": "kafka", "messaging.operation.type": "process", "messaging.operation.name": "process",
			"messaging.destination.name": "topic", "messaging.consumer.group.name": "orders",
		} {
			found := ""
			for _, a := range spans[0].Attributes() {
				if a.Key == key {
					found = a.Value.AsString()
				}
			}
			if found != want {
				t.Errorf("%s is %q, want %q", key, found, want)
			}
		}
		link := spans[0].Links()[1].SpanContext
		if link.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || link.SpanID().String() != "0000000000000002" {
			t.Errorf("link to %v", link)
		}
		if !inside["b"].Equal(spans[1].SpanContext()) || !inside["d"].Equal(spans[2].SpanContext()) {
			t.Errorf("handlers run in %v", inside)
		}
	})
}

// TestSpanOfALetter: a parked message that is taken up again is a span of its
// own, with the link to the producer of before.
func TestSpanOfALetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, o := traced(t, telemetry.Config{})
		calls := 0
		run(t, o, nil, func(context.Context, tx, semel.Message) error {
			if calls++; calls < 3 {
				return errors.New("not now")
			}
			return nil
		}, published("a", 7))
		spans := rec.Ended()
		last := spans[len(spans)-1]
		wantSpans(t, spans[len(spans)-1:], "process topic consumer Unset links=1 messaging.batch.message_count=1 semel.letters=true semel.verdict.applied=1")
		if got := last.Links()[0].SpanContext.SpanID().String(); got != "0000000000000007" {
			t.Errorf("link to %s", got)
		}
		if spans[0].Status().Code != codes.Error || strings.Contains(spans[0].Status().Description, "secret") {
			t.Errorf("%+v", spans[0].Status())
		}
	})
}

// TestSpansOfHandlers: asked for, every call is a span within that of its
// transaction; a verdict is no failure.
func TestSpansOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, o := traced(t, telemetry.Config{Handlers: true})
		run(t, o, nil, func(ctx context.Context, _ tx, m semel.Message) error {
			switch m.ID {
			case "b\xff":
				return semel.ErrSuperseded
			case "c":
				return semel.Invalidf("no")
			}
			return nil
		}, published("a", 1), published("b\xff", 2), published("c", 3))
		spans := rec.Ended()
		wantSpans(t, spans,
			"handle topic internal Unset links=1 messaging.message.id=a",
			"handle topic internal Unset links=1 messaging.message.id=b\uFFFD semel.verdict=superseded",
			"handle topic internal Error links=1 error.type=invalid messaging.message.id=c",
			"process topic consumer Error links=3 error.type=invalid messaging.batch.message_count=3",
			"handle topic internal Unset links=1 messaging.message.id=a",
			"handle topic internal Unset links=1 messaging.message.id=b\uFFFD semel.verdict=superseded",
			"process topic consumer Unset links=3 messaging.batch.message_count=3 semel.verdict.applied=1 semel.verdict.dead=1 semel.verdict.superseded=1")
		if spans[0].Parent().SpanID() != spans[3].SpanContext().SpanID() {
			t.Error("the handler's span is not within that of the transaction")
		}
	})
}

// TestLinksAreBounded: a large batch does not make a span of any size.
func TestLinksAreBounded(t *testing.T) {
	for most, want := range map[int]string{
		3:  "process topic consumer Unset links=3 messaging.batch.message_count=10 semel.links.left_out=7 semel.verdict.applied=10",
		-1: "process topic consumer Unset links=0 messaging.batch.message_count=10 semel.verdict.applied=10",
		0:  "process topic consumer Unset links=10 messaging.batch.message_count=10 semel.verdict.applied=10",
	} {
		synctest.Test(t, func(t *testing.T) {
			rec, o := traced(t, telemetry.Config{MaxLinks: most})
			var ms []semel.Message
			for i := range 10 {
				ms = append(ms, published(fmt.Sprint(i), byte(i+1)))
			}
			run(t, o, nil, nothing, ms...)
			wantSpans(t, rec.Ended(), want)
		})
	}
}

// TestForgedHeaders: what a producer writes into the header is not trusted to
// be anything.
func TestForgedHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, o := traced(t, telemetry.Config{Handlers: true})
		var ms []semel.Message
		for i, v := range []string{"", "00", strings.Repeat("f", 1<<20), "00-00000000000000000000000000000000-0000000000000000-01", "\xff\x00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"} {
			ms = append(ms, semel.Message{ID: fmt.Sprint(i), Header: semel.Header{{Name: "traceparent", Value: []byte(v)}}})
		}
		run(t, o, nil, nothing, ms...)
		for _, s := range rec.Ended() {
			if len(s.Links()) > 0 {
				t.Errorf("%s has links %v", s.Name(), s.Links())
			}
		}
	})
}

// collected are the data points by name and own attributes.
func collected(t *testing.T, r *metric.ManualReader) map[string]float64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	add := func(name string, set attribute.Set, v float64) {
		if got, _ := set.Value("messaging.system"); got.AsString() != "kafka" {
			t.Errorf("%s has the attributes %v", name, set.ToSlice())
		}
		for _, a := range set.ToSlice() {
			if !strings.HasPrefix(string(a.Key), "messaging.") {
				name += " " + a.Value.String()
			}
		}
		all[name] += v
	}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Sum))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return all
}

// TestMetrics: what a run with every outcome comes to.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		mon := observe.NewMonitor(observe.Config{Pipeline: "orders"})
		tel, err := telemetry.New(telemetry.Config{Pipeline: "orders", System: "kafka", Destination: "topic",
			Meter: metric.NewMeterProvider(metric.WithReader(reader)), Monitor: mon})
		if err != nil {
			t.Fatal(err)
		}
		old := published("old", 1)
		old.Time = time.Now().Add(-time.Hour)
		run(t, semel.Join(mon.Observer(), tel.Observer()), mon, func(_ context.Context, _ tx, m semel.Message) error {
			switch m.ID {
			case "panics":
				panic("oh")
			case "dead":
				return semel.Permanent(errors.New("no"))
			}
			return nil
		}, old, published("twice", 2), published("twice", 2), published("dead", 3), published("panics", 4))
		tel.Observer().Unsettled(2, errors.New("gone"))
		got := collected(t, reader)
		for name, want := range map[string]float64{
			"messaging.client.consumed.messages": 5,
			"semel.messages.decided applied":     2,
			"semel.messages.decided duplicate":   1,
			"semel.messages.decided dead":        2,
			"semel.messages.decided parked":      1,
			"semel.letters.taken":                1,
			"semel.failures permanent":           1,
			"semel.failures transient":           3,
			"semel.panics":                       3,
			"semel.dead_letters permanent":       1,
			"semel.dead_letters exhausted":       1,
			"semel.letters dead":                 2,
			"semel.letters retry":                0,
			"semel.letters.overdue":              0,
			"semel.scopes assigned":              0,
			"semel.source.messages waiting":      0,
			"semel.condition ended":              1,
			"semel.condition paused":             0,
			"semel.held_keys":                    0, "semel.unsettled": 2,
			"semel.message.age":                 1,
			"semel.batch.messages":              6,
			"messaging.process.duration _OTHER": got["semel.rollbacks"],
			"semel.handler.duration":            got["messaging.process.duration"],
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
			}
		}
		if got["semel.rollbacks"] == 0 || got["messaging.process.duration"] == 0 {
			t.Errorf("nothing was measured: %v", got)
		}
		wantDocumented(t, got)
		for name := range got {
			if strings.Contains(name, "secret") || strings.Contains(name, "twice") {
				t.Errorf("%s tells of a message", name)
			}
		}
		if err := tel.Close(); err != nil {
			t.Error(err)
		}
		if _, there := collected(t, reader)["semel.letters dead"]; there {
			t.Error("after Close the monitor is still read")
		}
	})
}

// wantDocumented compares the names with the table of the documentation.
func wantDocumented(t *testing.T, got map[string]float64) {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## OpenTelemetry\n")
	documented := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(cells[1], " `") {
			documented[strings.Trim(cells[1], " `")] = true
		}
	}
	exposed := map[string]bool{}
	for name := range got {
		name, _, _ = strings.Cut(name, " ")
		exposed[name] = true
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
	}
	for name := range documented {
		if !exposed[name] {
			t.Errorf("%s is documented and was not collected", name)
		}
	}
}

// TestNothingAsked: without providers there are no hooks, so it costs nothing.
func TestNothingAsked(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{Pipeline: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if o := tel.Observer(); o.Open != nil || o.Handle != nil || o.Batch != nil || o.Failed != nil {
		t.Errorf("%+v", o)
	}
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
	rec, o := traced(t, telemetry.Config{})
	if _ = rec; o.Handle != nil || o.Batch != nil {
		t.Error("spans of transactions need one hook")
	}
	if _, err := telemetry.New(telemetry.Config{}); err == nil {
		t.Error("a pipeline without a name was accepted")
	}
}

// BenchmarkTransaction is what a span with links and metrics costs, of which a
// hundred messages share one.
func BenchmarkTransaction(b *testing.B) {
	tel, err := telemetry.New(telemetry.Config{Pipeline: "orders",
		Tracer: sdktrace.NewTracerProvider(), Meter: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
	if err != nil {
		b.Fatal(err)
	}
	ms := make([]semel.Message, 100)
	for i := range ms {
		ms[i] = published(fmt.Sprint(i), byte(i+1))
	}
	o := tel.Observer()
	opening := semel.Opening{N: len(ms), Messages: func(yield func(*semel.Message) bool) {
		for i := range ms {
			if !yield(&ms[i]) {
				return
			}
		}
	}}
	b.ReportAllocs()
	for b.Loop() {
		_, end := o.Open(b.Context(), opening)
		batch := semel.Batch{Messages: len(ms), Took: time.Millisecond}
		o.Batch(batch)
		end(batch, nil)
	}
}

// TestTransactionsAreRoots: a span in the context of Run does not become the
// parent of everything that is ever done.
func TestTransactionsAreRoots(t *testing.T) {
	rec, o := traced(t, telemetry.Config{})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
	_, end := o.Open(ctx, semel.Opening{N: 0, Messages: func(func(*semel.Message) bool) {}})
	end(semel.Batch{}, nil)
	if spans := rec.Ended(); len(spans) != 1 || spans[0].Parent().IsValid() || spans[0].SpanContext().TraceID() == (trace.TraceID{1}) {
		t.Errorf("%+v", spans)
	}
}
