// Package telemetry tells OpenTelemetry what a pipeline does: a span for every
// transaction with links to the producers of its messages, and metrics.
//
//	mon := observe.NewMonitor(observe.Config{Pipeline: "orders"})
//	tel, err := telemetry.New(telemetry.Config{
//		Pipeline: "orders", System: "kafka", Destination: "orders",
//		Tracer: otel.GetTracerProvider(), Meter: otel.GetMeterProvider(), Monitor: mon,
//	})
//	…
//	defer tel.Close()
//	cfg.Observer = semel.Join(mon.Observer(), tel.Observer())
//	c, err := consumer.New(cfg, src, st, work)
//	…
//	go mon.Watch(ctx, observe.Target{Account: c.Account, Depth: src.Depth, Status: status})
//
// Only the API of OpenTelemetry is used; exporters and sampling are the
// program's. Names follow the semantic conventions 1.43.0 where these have one:
// those for messaging are not stable yet. Metrics have no ids and no keys for
// attributes, spans have ids where spans of single messages are asked for, and
// neither has bodies.
package telemetry
