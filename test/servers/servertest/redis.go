package servertest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/printable"
)

// redisDatabases is how many numbered databases our own server has.
const redisDatabases = 1024

func redis() recipe {
	return recipe{
		what: "Redis of the distribution",
		source: source{
			programs: []string{"redis-server"},
			dirs:     []string{"/usr/bin"},
			packages: []string{"redis-server"},
		},
		dialect:   dialect{identify: redisIdentity, database: redisDatabase},
		stop:      syscall.SIGTERM,
		create:    redisCreate,
		arguments: func(s *Server) []string { return []string{s.path("redis.conf"), "--port", strconv.Itoa(s.port)} },
		url: func(s *Server) string {
			return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", s.secret, s.port)
		},
	}
}

func redisCreate(_ context.Context, s *Server) error {
	lines := []string{
		"bind 127.0.0.1", "dir " + strconv.Quote(s.data()), "requirepass " + s.secret,
		"databases " + strconv.Itoa(redisDatabases), `save ""`,
	}
	if !s.options.Fast {
		lines = append(lines, "appendonly yes", "appendfsync always")
	}
	_, err := s.write("redis.conf", strings.Join(lines, "\n")+"\n")
	return err
}

// redisConn is a connection that speaks RESP: the few questions asked here need
// no client library, which would log each refused connection of a start.
type redisConn struct {
	net.Conn
	in *bufio.Reader
}

// redisOpen connects to redis://user:password@host:port/number.
func redisOpen(ctx context.Context, address string) (*redisConn, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	c := &redisConn{conn, bufio.NewReader(conn)}
	if err := errors.Join(conn.SetDeadline(deadline), c.enter(at)); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *redisConn) enter(at *url.URL) error {
	if password, ok := at.User.Password(); ok {
		if _, err := c.do("AUTH", cmp.Or(at.User.Username(), "default"), password); err != nil {
			return err
		}
	}
	_, err := c.do("SELECT", cmp.Or(strings.Trim(at.Path, "/"), "0"))
	return err
}

// do sends a command and returns the strings of its answer; nil is none.
func (c *redisConn) do(args ...string) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return nil, err
	}
	return c.answer()
}

func (c *redisConn) answer() ([]string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	sort, text := line[0], strings.TrimSpace(line[1:])
	if sort == '-' {
		return nil, errors.New(printable.Line(text, 200))
	}
	if sort == '+' || sort == ':' {
		return []string{text}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > 1<<20 {
		return nil, fmt.Errorf("%q is no answer of Redis", printable.Line(line, 80))
	}
	if n < 0 {
		return nil, nil
	}
	if sort == '$' {
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(c.in, bulk)
		return []string{string(bulk[:n])}, err
	}
	var all []string
	for range n {
		one, err := c.answer()
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

func redisIdentity(ctx context.Context, address string) (id identity, err error) {
	c, err := redisOpen(ctx, address)
	if err != nil {
		return id, err
	}
	defer c.Close()
	info, err := c.do("INFO")
	if err != nil {
		return id, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(strings.Join(info, "")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	// While it loads its file, it answers this but no other question.
	if fields["loading"] != "0" {
		return id, errors.New("loading the data set")
	}
	id.version = fields["redis_version"]
	if id.pid, err = strconv.Atoi(fields["process_id"]); err != nil {
		return id, fmt.Errorf("its INFO has no process_id: %w", err)
	}
	if dir, err := c.do("CONFIG", "GET", "dir"); err == nil && len(dir) == 2 {
		id.data = dir[1] // a hosted server may refuse CONFIG
	}
	return id, nil
}

// redisDatabase takes a numbered database that is empty. Who has which is
// written in database 0, which no test gets; a test that was killed loses its
// claim after an hour.
func redisDatabase(ctx context.Context, address string) (string, func(context.Context) error, error) {
	at, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	at.Path = "/0"
	c, err := redisOpen(ctx, at.String())
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	zero := at.String()
	for n := 1; n < redisDatabases; n++ {
		claim := "semel-test-database:" + strconv.Itoa(n)
		at.Path = "/" + strconv.Itoa(n)
		mine, err := c.do("SET", claim, "1", "NX", "EX", "3600")
		if err != nil {
			return "", nil, err
		}
		if mine == nil {
			continue
		}
		empty, err := redisEmpty(ctx, at.String())
		if err != nil {
			_, undo := c.do("DEL", claim)
			return "", nil, errors.Join(fmt.Errorf("database %d: %w", n, err), undo)
		}
		if empty {
			address := at.String()
			return address, func(ctx context.Context) error { return redisDrop(ctx, zero, address, claim) }, nil
		}
	}
	return "", nil, errors.New("no numbered database is free and empty")
}

// redisEmpty keeps a test out of a database that somebody else uses.
func redisEmpty(ctx context.Context, address string) (bool, error) {
	size, err := redisDo(ctx, address, "DBSIZE")
	return len(size) == 1 && size[0] == "0", err
}

func redisDrop(ctx context.Context, zero, address, claim string) error {
	if _, err := redisDo(ctx, address, "FLUSHDB"); err != nil {
		return err
	}
	_, err := redisDo(ctx, zero, "DEL", claim)
	return err
}

func redisDo(ctx context.Context, address string, args ...string) ([]string, error) {
	c, err := redisOpen(ctx, address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.do(args...)
}
