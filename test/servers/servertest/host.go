package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Host holds the servers that several processes share. A process asks for one
// over a Unix socket and keeps the connection open as long as it lives, so that
// the host knows when a server is not needed any more.
type Host struct {
	// idle is how long a server is kept that nobody uses.
	idle     time.Duration
	out      io.Writer
	dir      string
	listener net.Listener
	down     chan struct{} // closed when a client asks the host to end
	once     sync.Once

	mu      sync.Mutex
	closed  bool
	entries map[Kind]*entry
}

// entry is the server of one kind.
type entry struct {
	mu     sync.Mutex // one start or stop at a time
	server *Server    // nil while there is none
	users  int
	idle   *time.Timer
}

// Listen starts a host on a socket in dir, which it makes: nobody else can
// enter it. Servers that nobody used for the time idle are stopped, never if it
// is 0. It tells out what it does.
func Listen(dir string, idle time.Duration, out io.Writer) (*Host, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	h := &Host{idle: idle, out: out, dir: dir, listener: l, down: make(chan struct{}), entries: map[Kind]*entry{}}
	for _, k := range All() {
		h.entries[k] = &entry{}
	}
	go h.accept()
	return h, nil
}

// Env is what a process needs in its environment to ask this host.
func (h *Host) Env() string { return HostEnv + "=" + filepath.Join(h.dir, "socket") }

// Down is closed when somebody asks the host to end, as by Down.
func (h *Host) Down() <-chan struct{} { return h.down }

// Close stops all servers.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	err := h.listener.Close()
	for _, e := range h.entries {
		e.mu.Lock()
		err = errors.Join(err, e.stop())
		e.mu.Unlock()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

func (h *Host) accept() {
	for {
		conn, err := h.listener.Accept()
		if err != nil {
			return // closed
		}
		go h.serve(conn)
	}
}

func (h *Host) serve(conn net.Conn) {
	defer conn.Close()
	what, err := bufio.NewReader(io.LimitReader(conn, 64)).ReadString('\n')
	if err != nil {
		return
	}
	what = strings.TrimSpace(what)
	if what == "down" {
		h.once.Do(func() { close(h.down) })
		_ = json.NewEncoder(conn).Encode(reply{})
		return
	}
	var r reply
	kind, err := ParseKind(what)
	if err == nil {
		r.Address, err = h.Use(context.Background(), kind)
	}
	if err != nil {
		r.Error = err.Error()
	} else {
		defer h.leave(kind)
	}
	if json.NewEncoder(conn).Encode(r) == nil {
		_, _ = io.Copy(io.Discard, conn) // until the client is gone
	}
}

// Use starts the server unless it runs, and returns its address. It is held
// until the host ends.
func (h *Host) Use(ctx context.Context, k Kind) (string, error) {
	s, err := h.use(ctx, k)
	if err != nil {
		return "", err
	}
	return s.URL(), nil
}

// Export is Use, and returns the line that gives the address to a shell, with
// what proves that the server there is this one.
func (h *Host) Export(ctx context.Context, k Kind) (string, error) {
	s, err := h.use(ctx, k)
	if err != nil {
		return "", err
	}
	return "export " + k.Env() + "='" + s.proven() + "'", nil
}

func (h *Host) use(ctx context.Context, k Kind) (*Server, error) {
	e := h.entries[k]
	e.mu.Lock()
	defer e.mu.Unlock()
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return nil, errors.New("the host of the servers is ending")
	}
	if e.server == nil {
		s, err := Start(ctx, k, Options{})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(h.out, "servers: %s %s started in %.1f s on port %d\n", k, s.Version(), s.Took().Seconds(), s.Port())
		e.server = s
	}
	e.users++
	if e.idle != nil {
		e.idle.Stop()
	}
	return e.server, nil
}

func (h *Host) leave(k Kind) {
	e := h.entries[k]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users > 0 || h.idle == 0 {
		return
	}
	e.idle = time.AfterFunc(h.idle, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.users == 0 {
			_ = e.stop() // Close reports what is still there
		}
	})
}

func (e *entry) stop() error {
	if e.server == nil {
		return nil
	}
	err := e.server.Stop()
	e.server = nil
	return err
}

// Down asks the host whose socket is in dir to end, and waits until it has.
func Down(ctx context.Context, dir string) error {
	if _, err := request(ctx, filepath.Join(dir, "socket"), "down"); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
