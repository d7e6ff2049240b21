// Package cutproxy stands between a store and its server and cuts a connection at
// the moment that matters: around a COMMIT.
package cutproxy

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Cut says where the connection is cut.
type Cut int32

const (
	never Cut = iota
	// Request: the server does not get it.
	Request
	// Answer: the server has answered, and the client does not get that.
	Answer
)

// Proxy passes everything on until it is told otherwise. It is safe for
// concurrent use.
type Proxy struct {
	server string
	mark   []byte
	cut    atomic.Int32
}

// Before puts a proxy before the server of address, a URL, and returns the URL
// of the proxy. mark is what the bytes of a request contain that may be cut.
func Before(t testing.TB, address string, mark []byte) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &Proxy{server: u.Host, mark: mark}
	go p.accept(l)
	u.Host = l.Addr().String()
	return p, u.String()
}

// Next cuts the next request with the mark, once.
func (p *Proxy) Next(c Cut) { p.cut.Store(int32(c)) }

func (p *Proxy) hit(c Cut) bool { return p.cut.CompareAndSwap(int32(c), int32(never)) }

func (p *Proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.serve(c)
	}
}

// answers are those of one connection on their way to the client.
type answers struct {
	once   sync.Once
	silent chan struct{} // closed: they do not pass any more
	came   chan struct{}
}

func (a *answers) silence() { a.once.Do(func() { close(a.silent) }) }

func (a *answers) pass(server, client net.Conn) {
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		select {
		case <-a.silent:
			a.came <- struct{}{}
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	a := &answers{silent: make(chan struct{}), came: make(chan struct{}, 1)}
	go a.pass(server, client)
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		marked := bytes.Contains(buf[:n], p.mark)
		if marked && p.hit(Request) {
			return
		}
		if marked && p.hit(Answer) {
			a.silence()
			if _, err := server.Write(buf[:n]); err == nil {
				<-a.came
			}
			return
		}
		if _, err := io.Copy(server, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}
