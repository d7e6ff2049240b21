package servertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/printable"
)

const (
	// patience bounds every wait for a server. It is generous, since the
	// machine may be busy: only what fails waits so long.
	patience = 2 * time.Minute
	// tail is how much of its log a server's failure shows, in bytes.
	tail = 4096
)

// Options are what a server of one's own is started with. The zero value is
// how the shared ones are started.
type Options struct {
	// Fast gives up durability: the server does not flush what it commits.
	// By default it does, as it would for a user.
	Fast bool
	// Args are added to the server's command line.
	Args []string
}

// Server is a server that this process started. It does not outlive the
// process. Its methods may be called from several goroutines.
type Server struct {
	kind    Kind
	recipe  recipe
	options Options
	bin     programs
	dir     string // mode 0700, of the user that the server runs as
	port    int
	secret  string
	keeper  *keeper
	took    time.Duration
	version string

	mu      sync.Mutex // one start or stop at a time
	process *process   // nil before the first start
	stopped bool
}

// process is one life of the server.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a server with a new data directory and waits until it answers
// queries and has been recognised by its answers. It installs what is missing
// where it can. Each server is to be stopped; if this process ends without, by
// whatever means, the server and its directory go with it.
func Start(ctx context.Context, k Kind, o Options) (*Server, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("start %s: servers are started on Linux only; give the address of one: %s", k, k.example())
	}
	bin, err := k.obtain(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	sweep()
	began := time.Now()
	s := &Server{kind: k, recipe: k.recipe(), options: o, bin: bin, secret: random()}
	if err := s.start(ctx); err != nil {
		err = fmt.Errorf("start %s: %w%s", k, err, s.excerpt())
		return nil, errors.Join(err, s.Stop())
	}
	s.took = time.Since(began)
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.home(); err != nil {
		return err
	}
	if err := s.recipe.create(ctx, s); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	// Somebody may take the port between the question for a free one and the
	// start of the server.
	var err error
	for range 3 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.launch(ctx); err == nil || !taken(s.port) {
			return err
		}
	}
	return err
}

// home makes the server's directory. The keeper comes first, so that there is
// no moment at which a killed test leaves something behind.
func (s *Server) home() error {
	dir, err := os.MkdirTemp("", prefix+string(s.kind)+"-")
	if err != nil {
		return err
	}
	if s.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if s.keeper, err = keep(s.dir, s.kind); err != nil {
		return err
	}
	if err := os.Mkdir(s.data(), 0o700); err != nil {
		return err
	}
	as, err := unprivileged()
	if err != nil || as == nil {
		return err
	}
	return errors.Join(chown(s.data(), as), chown(s.dir, as))
}

func chown(path string, to *syscall.Credential) error {
	return os.Chown(path, int(to.Uid), int(to.Gid))
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
func (s *Server) data() string            { return s.path("data") }

// write makes a file that only the server can read.
func (s *Server) write(name, content string) (string, error) {
	as, err := unprivileged()
	if err != nil {
		return "", err
	}
	path := s.path(name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil || as == nil {
		return path, err
	}
	return path, chown(path, as)
}

// exec is how all programs of the server are run: as the unprivileged user, in
// the server's directory, by which the keeper finds them, and in a session of
// their own, so that a Ctrl-C of the person at the terminal is not theirs.
func (s *Server) exec(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.bin[name], args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir, "TMPDIR=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	return cmd, nil
}

// command runs a program to its end.
func (s *Server) command(ctx context.Context, name string, args ...string) error {
	cmd, err := s.exec(ctx, name, args...)
	if err != nil {
		return err
	}
	log, err := s.log()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *Server) log() (*os.File, error) {
	return os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
}

// launch starts the process and waits until it is ready.
func (s *Server) launch(ctx context.Context) error {
	// Not CommandContext: the server lives longer than the wait for it.
	cmd, err := s.exec(context.WithoutCancel(ctx), s.recipe.source.programs[0], append(s.recipe.arguments(s), s.options.Args...)...)
	if err != nil {
		return err
	}
	log, err := s.log()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(p.ended)
	}()
	s.process = p
	if err := s.ready(ctx, p); err != nil {
		return errors.Join(err, s.kill())
	}
	return s.keeper.tell(s.describe())
}

// ready asks until the server answers as itself.
func (s *Server) ready(ctx context.Context, p *process) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.recognise(ctx, p)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended (%s) before it was ready: %w", p.cmd.ProcessState, err)
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w", err)
		case <-tick.C:
		}
	}
}

// recognise proves that the server that answers is ours: its data directory,
// whose name is random, and its pid.
func (s *Server) recognise(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := s.recipe.identify(ctx, s.URL())
	if err != nil {
		return err
	}
	if id.data != s.data() || id.pid != 0 && id.pid != p.cmd.Process.Pid {
		return fmt.Errorf("another server (data directory %s, pid %d) answers on port %d", printable.Line(id.data, 200), id.pid, s.port)
	}
	s.version = id.version
	return nil
}

// URL is the address, with the password: a new one for each server.
func (s *Server) URL() string { return s.recipe.url(s) }

// Port is the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Version is what the server says of itself, such as "15.18".
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Took is how long the start took until the first answer, the making of the
// data directory included, installing excluded.
func (s *Server) Took() time.Duration { return s.took }

// PID is the process of the server: of the last one if it has been killed.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.cmd.Process.Pid
}

// Log returns what the server wrote so far, at most the last 4 KiB, with
// control characters written out.
func (s *Server) Log() string {
	data, err := os.ReadFile(s.path("log"))
	if err != nil {
		return ""
	}
	if len(data) > tail {
		data = data[len(data)-tail:]
	}
	return printable.Text(string(bytes.TrimSpace(data)))
}

func (s *Server) excerpt() string {
	if text := s.Log(); text != "" {
		return "\n--- the end of its log:\n" + text
	}
	return ""
}

// Kill ends all processes of the server by SIGKILL and returns when they are
// gone. What the server had acknowledged must be there after Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	if s.process == nil {
		return nil
	}
	_ = s.process.cmd.Process.Kill() // the one that makes new ones goes first
	<-s.process.ended
	return signalAll(s.dir, syscall.SIGKILL, true)
}

// Pause stops all processes of the server by SIGSTOP: connections stay open,
// nobody answers. Resume lets them go on.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause %s: %w", s.kind, err)
	}
	return signalAll(s.dir, syscall.SIGSTOP, false)
}

// Resume undoes Pause.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return signalAll(s.dir, syscall.SIGCONT, false)
}

// Restart starts the server again, on the same port and the same data, and
// waits until it answers. If it still runs, it is stopped in good order first.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("restart %s: it was stopped, and its data is gone; start a new one", s.kind)
	}
	if err := s.quit(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("restart %s: %w%s", s.kind, err, s.excerpt())
	}
	return nil
}

// Stop ends the server in good order and removes its directory. It may be
// called more than once.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	err := s.quit()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	s.keeper.dismiss()
	return err
}

// quit asks the server to end, and makes it if it does not.
func (s *Server) quit() error {
	p := s.process
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(s.recipe.stop)
	if err := signalAll(s.dir, syscall.SIGCONT, false); err != nil {
		return err
	}
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
	}
	return s.kill()
}

func (s *Server) describe() string {
	return fmt.Sprintf("%s %s, port %d, pid %d, started by pid %d, data in %s",
		s.kind, s.version, s.port, s.process.cmd.Process.Pid, os.Getpid(), s.data())
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// taken reports whether somebody listens on the port.
func taken(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	l.Close()
	return false
}

// random is 64 bits that nobody can guess and every server takes as a name.
func random() string {
	b := make([]byte, 8)
	rand.Read(b) //nolint:errcheck // never fails
	return hex.EncodeToString(b)
}
