package searchstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// server answers what Open asks, and bulks as the test says. What a real server
// answers is tested in the module test; here is what one cannot be brought to.
func server(t *testing.T, bulk http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/_bulk"):
			bulk(w, r)
		case strings.HasPrefix(r.URL.Path, "/_resolve/"):
			fmt.Fprint(w, `{"indices":[{"name":"i"}]}`)
		case r.URL.Path == "/":
			fmt.Fprint(w, `{"version":{"number":"8.19.0"},"tagline":"You Know, for Search"}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, c Config) *Index {
	t.Helper()
	c.Index = "i"
	x, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func doc(id string) Document {
	return Document{ID: id, Version: semel.Version{N: 1, Set: true}, Source: []byte(`{}`)}
}

// created answers 201 for each document of a bulk.
func created(w http.ResponseWriter, body []byte) {
	items := strings.Repeat(`,{"index":{"status":201}}`, bytes.Count(body, []byte{'\n'})/2)
	fmt.Fprintf(w, `{"items":[%s]}`, strings.TrimPrefix(items, ","))
}

// TestOneAtATime: a document that is on its way is not sent a second time by
// another caller; other documents are not kept waiting.
func TestOneAtATime(t *testing.T) {
	first, release := make(chan string), make(chan struct{})
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"a"`)) {
			first <- string(body)
			<-release
		}
		created(w, body)
	})
	s.Start()
	x := open(t, Config{URL: s.URL})
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- x.Write(t.Context(), []Document{doc("a"), doc("c")}) }()
	}
	<-first
	if err := x.Write(t.Context(), []Document{doc("b")}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := x.Write(ctx, []Document{doc("c")}); err == nil || ctx.Err() == nil {
		t.Errorf("c was sent while it was on its way: %v", err)
	}
	select {
	case <-first:
		t.Error("a is on its way twice")
	default:
	}
	release <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-first
	release <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNobodys: an answer that cannot be one is an error about nobody, and not
// infrastructure while the server answers something else.
func TestNobodys(t *testing.T) {
	for name, bulk := range map[string]http.HandlerFunc{
		"too few":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[{"index":{"status":201}}]}`) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hunter2") },
		"500":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"broke off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no answer": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // then the end of the connection is noticed
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, bulk)
			s.Start()
			x := open(t, Config{URL: s.URL, Timeout: time.Second})
			err := x.Write(t.Context(), []Document{doc("a"), doc("b")})
			if _, marked := semel.ClassOf(err); err == nil || marked || semel.EachAt(err, func(int, error) {}) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestItemStatus: what cannot be provoked on a real server.
func TestItemStatus(t *testing.T) {
	var answer string
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"items":[{"index":%s}]}`, answer) })
	s.Start()
	x := open(t, Config{URL: s.URL, Timeout: time.Second})
	for body, want := range map[string]semel.Class{
		`{"status":500,"error":{"type":"t","reason":"hunter2"}}`:         semel.ClassTransient,
		`{"status":400,"error":{"type":"t","reason":"hunter2"}}`:         semel.ClassPermanent,
		`{"status":403,"error":{"type":"security_exception"}}`:           semel.ClassFault,
		`{"status":403,"error":{"type":"cluster_block_exception"}}`:      semel.ClassInfrastructure,
		`{"status":404,"error":{"type":"index_not_found_exception"}}`:    semel.ClassFault,
		`{"status":400,"error":{"type":"index_closed_exception"}}`:       semel.ClassFault,
		`{"status":503,"error":{"type":"unavailable_shards_exception"}}`: semel.ClassInfrastructure,
	} {
		answer = body
		err := x.Write(t.Context(), []Document{doc("a")})
		named := semel.EachAt(err, func(_ int, e error) { err = e })
		class, _ := semel.ClassOf(err)
		if err == nil || class != want || named != (want == semel.ClassTransient || want == semel.ClassPermanent) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v (%s, named %v), want %s", body, err, class, named, want)
		}
	}
}

// TestCredentials go into each request and into no error; a certificate that
// nobody knows is refused.
func TestCredentials(t *testing.T) {
	var got string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Header.Get("Authorization")
		created(w, body)
	})
	s.StartTLS()
	for want, c := range map[string]Config{
		"ApiKey hunter2":     {APIKey: "hunter2"},
		"Basic dTpodW50ZXIy": {Username: "u", Password: "hunter2"},
	} {
		c.URL, c.Index = s.URL, "i"
		if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a certificate that nobody knows: %v", err)
		}
		c.Client = s.Client()
		if err := open(t, c).Write(t.Context(), []Document{doc("a")}); err != nil || got != want {
			t.Errorf("%v; the request has %q", err, got)
		}
	}
	for _, c := range []Config{{APIKey: "a\nhunter2"}, {Username: "u"}, {APIKey: "a", Username: "u", Password: "hunter2"}, {MaxDocs: -1}, {DeletedField: "a.b"}} {
		c.URL, c.Index = s.URL, "i"
		if err := c.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
