package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/internal/printable"
)

// HostEnv is the environment variable by which "test/servers run" tells the
// processes below it where to ask for servers.
const HostEnv = "SEMEL_TEST_SERVERS"

// foreign, after the # of an address in the environment, says that the server
// there may be any server.
const foreign = "foreign"

// Database returns the address of an empty database for the test, which is
// removed at its end, on the server of this kind that all tests share. The
// address is a URL: postgres://, mysql:// (see MySQL), redis://.
//
// The server is the one of the environment; else the one of the run that this
// process is part of; else it is started for this process. A server that cannot
// be had fails the test.
func (k Kind) Database(t testing.TB) string {
	t.Helper()
	address, err := shared(k)
	if err != nil {
		t.Fatal(err)
	}
	return fresh(t, k, address)
}

// Start starts a server for the test alone, which may kill it. It is stopped at
// the end of the test.
func (k Kind) Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), k, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", k, s.Log())
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop %s: %v", k, err)
		}
	})
	return s
}

// Database is Kind.Database on this server. It lasts as long as the server.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	address, _, err := s.recipe.database(t.Context(), s.URL())
	if err != nil {
		t.Fatalf("make a database on %s: %v", s.kind, err)
	}
	return address
}

func fresh(t testing.TB, k Kind, server string) string {
	t.Helper()
	address, drop, err := k.recipe().database(t.Context(), server)
	if err != nil {
		t.Fatalf("make a database on %s: %v", k, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := drop(ctx); err != nil {
			t.Errorf("remove the test's database on %s: %v", k, err)
		}
	})
	return address
}

// found remembers the shared servers of this process.
var found struct {
	sync.Mutex
	of map[Kind]func() (string, error)
}

func shared(k Kind) (string, error) {
	found.Lock()
	once := found.of[k]
	if once == nil {
		if found.of == nil {
			found.of = map[Kind]func() (string, error){}
		}
		once = sync.OnceValues(func() (string, error) { return locate(context.Background(), k) })
		found.of[k] = once
	}
	found.Unlock()
	return once()
}

// locate finds the shared server, or makes one. One that it starts is never
// stopped: its keeper does that when this process ends.
func locate(ctx context.Context, k Kind) (string, error) {
	if value := os.Getenv(k.Env()); value != "" {
		return given(ctx, k, value)
	}
	if host := os.Getenv(HostEnv); host != "" {
		return request(ctx, host, string(k))
	}
	s, err := Start(ctx, k, Options{})
	if err != nil {
		return "", err
	}
	held.Lock()
	defer held.Unlock()
	held.servers = append(held.servers, s)
	return s.URL(), nil
}

// given checks the address of the environment. What follows its # is the data
// directory that the server there must have, or the word foreign.
func given(ctx context.Context, k Kind, value string) (string, error) {
	address, data, _ := strings.Cut(value, "#")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id, err := k.recipe().identify(ctx, address)
	if err != nil {
		return "", fmt.Errorf("the address in %s is of no use: %w", k.Env(), err)
	}
	if data == foreign || data != "" && data == id.data {
		return address, nil
	}
	return "", fmt.Errorf("%s names a server with the data directory %q, which is not the one that \"test/servers up\" started; "+
		"if it is meant to be used, add #%s to the address: tests make and remove databases there", k.Env(), printable.Line(id.data, 200), foreign)
}

// proven is the address with what proves that it is this server.
func (s *Server) proven() string { return s.URL() + "#" + s.data() }

// held is what must stay open to the end of this process: connections to the
// host, which keeps a server as long as they are, and servers, whose keepers
// would take the garbage collector's closing of the pipe for our end.
var held struct {
	sync.Mutex
	conns   []net.Conn
	servers []*Server
}

// reply is what a host answers.
type reply struct{ Address, Error string }

// request asks a host for a server.
func request(ctx context.Context, socket, what string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", fmt.Errorf("ask for %s where %s says: %w; is \"test/servers\" still running?", what, HostEnv, err)
	}
	held.Lock()
	held.conns = append(held.conns, conn)
	held.Unlock()
	if _, err := fmt.Fprintln(conn, what); err != nil {
		return "", err
	}
	var r reply
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return "", fmt.Errorf("ask for %s: %w", what, err)
	}
	if r.Error != "" {
		return "", errors.New(r.Error)
	}
	return r.Address, nil
}
