package observe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Handler serves GET /metrics, /livez and /readyz. The latter two answer 200 or
// 503, and with the reasons as JSON.
func (m *Monitor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = m.WriteMetrics(w) // whoever asked is gone
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		h := m.Health()
		answer(w, m.cfg.Pipeline, h.Live, h.Reasons, func(r Reason) bool { return r.dead })
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := m.Health()
		answer(w, m.cfg.Pipeline, h.Ready, h.Reasons, func(Reason) bool { return true })
	})
	return mux
}

func answer(w http.ResponseWriter, pipeline string, ok bool, all []Reason, counts func(Reason) bool) {
	body := struct {
		Pipeline string   `json:"pipeline"`
		OK       bool     `json:"ok"`
		Reasons  []Reason `json:"reasons"`
	}{pipeline, ok, []Reason{}}
	for _, r := range all {
		if counts(r) {
			body.Reasons = append(body.Reasons, r)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // whoever asked is gone
}

// connections is how many are served at the same time.
const connections = 64

// bounded closes connections that are too many at once: memory and open files
// are the pipeline's.
type bounded struct {
	net.Listener
	taken chan struct{}
}

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.taken <- struct{}{}:
			return &place{c, sync.OnceFunc(func() { <-b.taken })}, nil
		default:
			c.Close()
		}
	}
}

// place is a connection that counts until it is closed.
type place struct {
	net.Conn
	leave func()
}

// Close ends the connection.
func (p *place) Close() error {
	p.leave()
	return p.Conn.Close()
}

// Serve answers on ln until ctx ends, and closes it. There are at most 64
// connections, and nobody can hold one for long, or send it much.
func (m *Monitor) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler: m.Handler(), ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	down := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(down)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(&bounded{ln, make(chan struct{}, connections)}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-down // answers that were begun are finished
	return nil
}
