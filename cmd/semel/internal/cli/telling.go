package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/store"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
)

// telling are the flags that say to whom a run tells what.
type telling struct{ http, log, level string }

func (t *telling) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.http, "http", "", "metrics and health at `HOST:PORT` (127.0.0.1:9465)")
	f.StringVar(&t.log, "log", "", "records as `FORMAT` text or json (no terminal: text)")
	f.StringVar(&t.level, "log-level", "info", "`LEVEL`: debug, info, warn, error")
}

func (t *telling) check() error {
	if t.log != "" && t.log != "text" && t.log != "json" {
		return usagef("--log %s: it is text or json", t.log)
	}
	var level slog.Level
	if level.UnmarshalText([]byte(t.level)) != nil {
		return usagef("--log-level %s: it is debug, info, warn or error", t.level)
	}
	if _, port, err := net.SplitHostPort(t.http); t.http != "" && (err != nil || port == "") {
		return usagef("--http %s: it is an address and a port, such as 127.0.0.1:9465", t.http)
	}
	return nil
}

// records is where records go to.
func (t *telling) records(name string, w io.Writer) *observe.Log {
	var opt slog.HandlerOptions
	var level slog.Level
	if level.UnmarshalText([]byte(t.level)) == nil {
		opt.Level = level
	}
	var h slog.Handler = slog.NewTextHandler(w, &opt)
	if t.log == "json" {
		h = slog.NewJSONHandler(w, &opt)
	}
	return observe.NewLog(h, observe.LogConfig{Pipeline: name})
}

// monitor answers questions about a run over HTTP; nil: nobody may ask.
type monitor struct {
	*observe.Monitor
	cancel context.CancelFunc
	served chan struct{}
}

// monitored opens the address that is to be asked. It is red until watch.
func (t *telling) monitored(name string, p *progress) (*monitor, error) {
	if t.http == "" {
		return nil, nil
	}
	host, port, _ := net.SplitHostPort(t.http)
	if host == "" { // ":9465" would be the whole world
		host = "127.0.0.1"
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, usagef("--http %s: %w (choose an address of this machine and a port that is free; port 0 takes any)", t.http, err)
	}
	p.serving(ln.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	m := &monitor{Monitor: observe.NewMonitor(observe.Config{Pipeline: name}), cancel: cancel, served: make(chan struct{})}
	go func() {
		defer close(m.served)
		if err := m.Serve(ctx, ln); err != nil {
			p.unserved(err)
		}
	}()
	return m, nil
}

// observed joins o with what the monitor wants to know.
func (m *monitor) observed(o semel.Observer) semel.Observer {
	if m == nil {
		return o
	}
	return semel.Join(o, m.Observer())
}

// watch begins to look at the pipeline, until the returned function is called.
func (m *monitor) watch(name string, st *adapters.Store, c adapters.Consumer, depth broker.Measurer) (end func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Watch(ctx, observe.Target{Account: c.Account, Depth: depth.Depth, Status: func(ctx context.Context) (store.Status, error) {
			return st.Reader.Status(ctx, name, false)
		}})
	}()
	return func() { cancel(); <-done }
}

// close ends the service.
func (m *monitor) close() {
	if m != nil {
		m.cancel()
		<-m.served
	}
}

// describe names the flags that only a real run has.
func (t *telling) describe() string {
	for _, f := range []struct{ name, value string }{{"--http", t.http}, {"--log", t.log}} {
		if f.value != "" {
			return fmt.Sprintf("%s %s", f.name, f.value)
		}
	}
	return ""
}
