// Package observe turns what a pipeline tells its Observer into log records,
// metrics and answers about its health, with nothing but the standard library:
//
//	log := observe.NewLog(slog.NewJSONHandler(os.Stderr, nil), observe.LogConfig{Pipeline: "orders"})
//	defer log.Flush()
//	mon := observe.NewMonitor(observe.Config{Pipeline: "orders"})
//	cfg.Observer = semel.Join(log.Observer(), mon.Observer())
//	c, err := consumer.New(cfg, src, st, work)
//	…
//	go mon.Watch(ctx, observe.Target{Account: c.Account, Status: status})
//	go mon.Serve(ctx, listener)
//
// The module semel/telemetry does the same for OpenTelemetry, and traces.
//
// No metric has an id or a key for a label, no record and no answer has a body.
package observe
