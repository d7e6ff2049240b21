package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/idempotency"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
)

func client(r *http.Request) string { return r.Header.Get("X-Client") }

func wrap(t *testing.T, s store.Effects, c idempotency.Config, h http.HandlerFunc) http.Handler {
	t.Helper()
	c.Name = "payments"
	if c.Client == nil {
		c.Client = client
	}
	m, err := idempotency.New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(h)
}

type request struct{ method, path, key, client, body string }

func (q request) to(h http.Handler) *httptest.ResponseRecorder {
	if q.method == "" {
		q.method = "POST"
	}
	if q.path == "" {
		q.path = "/charge"
	}
	r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	r.Header.Set("X-Client", q.client)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// charges counts what it is asked to do, and answers with a number that is
// never the same.
type charges struct{ n atomic.Int64 }

func (c *charges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	n := c.n.Add(1)
	w.Header().Set("Location", fmt.Sprintf("/charges/%d", n))
	w.Header().Set("Set-Cookie", "session=1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "charge %d of %s", n, b)
}

// TestContract is the contract, case by case: what was sent before, what is
// sent, and the answer.
func TestContract(t *testing.T) {
	one := request{key: "k", client: "ann", body: "10"}
	for name, tc := range map[string]struct {
		config   idempotency.Config
		before   []request
		send     request
		status   int
		body     string
		charges  int64
		replayed bool
	}{
		"no key":                {send: request{body: "10"}, status: 201, body: "charge 1 of 10", charges: 1},
		"no key, again":         {before: []request{{body: "10"}}, send: request{body: "10"}, status: 201, body: "charge 2 of 10", charges: 2},
		"no key where required": {config: idempotency.Config{Required: true}, send: request{body: "10"}, status: 400, body: "missing"},
		"first":                 {config: idempotency.Config{Required: true}, send: one, status: 201, body: "charge 1 of 10", charges: 1},
		"again":                 {before: []request{one, one}, send: one, status: 201, body: "charge 1 of 10", charges: 1, replayed: true},
		"again, quoted":         {before: []request{one}, send: request{key: `"k"`, client: "ann", body: "10"}, status: 201, body: "charge 1 of 10", charges: 1, replayed: true},
		"another body":          {before: []request{one}, send: request{key: "k", client: "ann", body: "11"}, status: 422, body: "another request", charges: 1},
		"another path":          {before: []request{one}, send: request{key: "k", client: "ann", body: "10", path: "/refund"}, status: 422, body: "another request", charges: 1},
		"another method":        {before: []request{one}, send: request{method: "PATCH", key: "k", client: "ann", body: "10"}, status: 422, body: "another request", charges: 1},
		"another client":        {before: []request{one}, send: request{key: "k", client: "bob", body: "10"}, status: 201, body: "charge 2 of 10", charges: 2},
		"another key":           {before: []request{one}, send: request{key: "K", client: "ann", body: "10"}, status: 201, body: "charge 2 of 10", charges: 2},
		"a method that is safe": {before: []request{one}, send: request{method: "GET", key: "k", client: "ann"}, status: 201, body: "charge 2 of ", charges: 2},
		"a long key":            {send: request{key: strings.Repeat("x", 256), body: "10"}, status: 400, body: "1 to 255"},
		"an empty key":          {send: request{key: `""`, body: "10"}, status: 400, body: "1 to 255"},
		"a key that is no text": {send: request{key: "k\xff", body: "10"}, status: 400, body: "1 to 255"},
		"a large request":       {config: idempotency.Config{MaxRequest: 4}, send: request{key: "k", body: "12345"}, status: 413, body: "at most 4 bytes"},
		"one that just fits":    {config: idempotency.Config{MaxRequest: 4}, send: request{key: "k", body: "1234"}, status: 201, body: "charge 1 of 1234", charges: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &charges{}
			h := wrap(t, memstore.New(), tc.config, c.ServeHTTP)
			for _, q := range tc.before {
				q.to(h)
			}
			w := tc.send.to(h)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || c.n.Load() != tc.charges {
				t.Errorf("%d %q, %d charges; want %d %q, %d", w.Code, w.Body, c.n.Load(), tc.status, tc.body, tc.charges)
			}
			if w.Header().Get("Idempotency-Replayed") == "true" != tc.replayed || tc.replayed && w.Header().Get("Set-Cookie") != "" {
				t.Errorf("header %v", w.Header())
			}
			if w.Code == 201 && w.Header().Get("Location") == "" {
				t.Error("no Location")
			}
			if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("an error is %s", w.Header().Get("Content-Type"))
			}
		})
	}
}

// TestConcurrent: of many at once one is handled; the others are told when to
// come again.
func TestConcurrent(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	c := &charges{}
	h := wrap(t, memstore.New(), idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-release
		c.ServeHTTP(w, r)
	})
	q := request{key: "k", body: "10"}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- q.to(h) }()
	<-inside
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			if w := q.to(h); w.Code != 409 || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		})
	}
	others.Wait()
	if w := (request{key: "k", body: "11"}).to(h); w.Code != 422 {
		t.Errorf("another request meanwhile: %d", w.Code)
	}
	close(release)
	if w := <-first; w.Code != 201 {
		t.Errorf("the first: %d", w.Code)
	}
	if w := q.to(h); w.Code != 201 || w.Body.String() != "charge 1 of 10" || c.n.Load() != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestResponses: which are stored, and how large they may be.
func TestResponses(t *testing.T) {
	n := 0
	h := wrap(t, memstore.New(), idempotency.Config{MaxResponse: 8}, func(w http.ResponseWriter, r *http.Request) {
		n++
		var status, size int
		b, _ := io.ReadAll(r.Body)
		if _, err := fmt.Sscan(string(b), &status, &size); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(status)
		w.Header().Set("X-Late", "yes") // after the status: not sent
		_, err := w.Write(bytes.Repeat([]byte{0xff}, size))
		if (err != nil) != (size > 8) {
			t.Errorf("%d bytes: %v", size, err)
		}
	})
	for body, want := range map[string]struct {
		status, size, runs int
	}{
		"200 8": {200, 8, 1}, "204 0": {204, 0, 1}, "400 3": {400, 3, 1}, "500 3": {500, 3, 1}, "200 9": {500, -1, 1},
		"429 1": {429, 1, 2}, "503 1": {503, 1, 2},
	} {
		n = 0
		var first *httptest.ResponseRecorder
		for i := range 2 {
			w := request{key: "key " + body, body: body}.to(h)
			if w.Code != want.status || want.size >= 0 && w.Body.Len() != want.size || w.Header().Get("X-Late") != "" {
				t.Errorf("%s, time %d: %d, %d bytes, %v", body, i, w.Code, w.Body.Len(), w.Header())
			}
			if i == 0 {
				first = w
			} else if !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) || w.Header().Get("Content-Type") != first.Header().Get("Content-Type") {
				t.Errorf("%s: another answer the second time", body)
			}
		}
		if n != want.runs {
			t.Errorf("%s: handled %d times, want %d", body, n, want.runs)
		}
	}
}

// TestDoubt: a handler that panicked, or whose process died, is not run again
// until somebody has looked.
func TestDoubt(t *testing.T) {
	s := memstore.New()
	c := &charges{}
	fail := true
	h := wrap(t, s, idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r)
		if fail {
			panic(http.ErrAbortHandler)
		}
	})
	q := request{key: "k", client: "ann", body: "10"}
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("the panic became %v", err)
			}
		}()
		q.to(h)
	}()
	for range 2 {
		if w := q.to(h); w.Code != 409 || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "not known") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if c.n.Load() != 1 {
		t.Errorf("%d charges", c.n.Load())
	}
	fail = false
	if err := effect.Settle(t.Context(), s, "payments", idempotency.Key("ann", "k"), false, "jo"); err != nil {
		t.Fatal(err)
	}
	if w := q.to(h); w.Code != 201 || c.n.Load() != 2 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestTwoHops (A4): a shop calls a payment service through two hops that both
// lose answers and try again. The customer is charged once.
func TestTwoHops(t *testing.T) {
	bank, db := &charges{}, memstore.New()
	payments := httptest.NewServer(wrap(t, db, idempotency.Config{Required: true}, bank.ServeHTTP))
	defer payments.Close()
	lost := errors.New("the answer is lost")
	post := func(url, key, body string) (string, error) {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 201 {
			err = fmt.Errorf("%d %s", resp.StatusCode, b)
		}
		return string(b), err
	}
	hop := 0
	shop := httptest.NewServer(wrap(t, memstore.New(), idempotency.Config{Required: true, InDoubt: effect.Retry}, func(w http.ResponseWriter, r *http.Request) {
		c, ok := idempotency.CallOf(r.Context())
		b, _ := io.ReadAll(r.Body)
		receipt, err := post(payments.URL, "charge-"+c.Key, string(b))
		if hop++; err != nil || !ok || hop%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // it does not know, and is tried again
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	}))
	defer shop.Close()
	var got []string
	for i := range 6 {
		receipt, err := post(shop.URL, "order-1", "10")
		if i%3 == 1 {
			err = errors.Join(err, lost)
		}
		if err == nil {
			got = append(got, receipt)
		}
	}
	if bank.n.Load() != 1 || len(got) == 0 || got[0] != "charge 1 of 10" {
		t.Errorf("charged %d times, receipts %q", bank.n.Load(), got)
	}
	if _, err := post(shop.URL, "order-1", "1000"); err == nil || !strings.HasPrefix(err.Error(), "422") {
		t.Errorf("the same key for another amount: %v", err)
	}
}

// TestClientGoes: the client gives up, the handler does not; the answer is there
// when it comes back.
func TestClientGoes(t *testing.T) {
	c := &charges{}
	ctx, cancel := context.WithCancel(t.Context())
	h := wrap(t, memstore.New(), idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		if r.Context().Err() != nil {
			t.Error("the handler was cancelled with its client")
		}
		c.ServeHTTP(w, r)
	})
	r := httptest.NewRequestWithContext(ctx, "POST", "/charge", strings.NewReader("10"))
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if w := (request{key: "k", body: "10"}).to(h); w.Body.String() != "charge 1 of 10" || c.n.Load() != 1 {
		t.Errorf("%s", w.Body)
	}
}

// TestDown: without the store nothing is handled.
func TestDown(t *testing.T) {
	s, c := memstore.New(), &charges{}
	h := wrap(t, s, idempotency.Config{}, c.ServeHTTP)
	s.Break()
	if w := (request{key: "k", body: "10"}).to(h); w.Code != 503 || w.Header().Get("Retry-After") == "" || c.n.Load() != 0 {
		t.Errorf("%d %s, %d charges", w.Code, w.Body, c.n.Load())
	}
	s.Heal()
	if w := (request{key: "k", body: "10"}).to(h); w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestCrash: a process that died in the handler leaves a doubt, one that died
// after the response was stored leaves the response.
func TestCrash(t *testing.T) {
	for _, p := range fault.Effects() {
		s, c := memstore.New(), &charges{}
		h := wrap(t, s, idempotency.Config{}, c.ServeHTTP)
		func() {
			defer fault.Arm(func(at fault.Point) {
				if at == p {
					panic(fault.Crash{Point: at})
				}
			})()
			defer func() {
				if recover() == nil {
					t.Errorf("it did not die at %s", p)
				}
			}()
			request{key: "k", body: "10"}.to(h)
		}()
		want := 409
		if p == fault.ResultKnown {
			want = 201
		}
		if w := (request{key: "k", body: "10"}).to(wrap(t, s.Connect(), idempotency.Config{}, c.ServeHTTP)); w.Code != want || c.n.Load() > 1 {
			t.Errorf("%s: %d %s", p, w.Code, w.Body)
		}
	}
}

// TestUnread: a request that says that it is too large is refused before any
// of it is read, and one that does not say so after as much as is taken.
func TestUnread(t *testing.T) {
	c := &charges{}
	h := wrap(t, memstore.New(), idempotency.Config{MaxRequest: 100}, c.ServeHTTP)
	for length, most := range map[int64]int{1 << 30: 0, -1: 101} {
		body := &endless{}
		r := httptest.NewRequest("POST", "/charge", body)
		r.ContentLength = length
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 413 || body.read > most || c.n.Load() != 0 {
			t.Errorf("length %d: %d, %d bytes read, %d charges", length, w.Code, body.read, c.n.Load())
		}
	}
}

// endless is a body without an end. It gives one byte at a time.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	e.read++
	b[0] = 'x'
	return 1, nil
}

// TestServer: what a handler writes to a real server, and what a real client
// gets, at first and again.
func TestServer(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		status  int
		body    string
		header  http.Header // wanted; no values: it must not be there
		first   http.Header // at first only
	}{
		"hop by hop, and a length that is wrong": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				for _, name := range []string{"Connection", "Keep-Alive", "Upgrade", "Proxy-Authenticate", "Te"} {
					w.Header().Set(name, "close")
				}
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, "short")
			},
			status: 200, body: "short", header: http.Header{"Keep-Alive": nil, "Upgrade": nil, "Proxy-Authenticate": nil, "Te": nil, "Content-Length": {"5"}},
		},
		"trailers": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Sum", "1")
				w.Header().Set(http.TrailerPrefix+"X-More", "2")
			},
			status: 200, body: "body", header: http.Header{"X-Sum": nil, "X-More": nil, "Trailer": nil},
		},
		"lines in a header": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Note", "a\r\nX-Evil: b")
				w.WriteHeader(202)
			},
			status: 202, header: http.Header{"X-Evil": nil, "X-Note": {"a  X-Evil: b"}},
		},
		"bytes in a header": {
			handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Name", "Andr\xe9") },
			status:  200, header: http.Header{"X-Name": {"Andr\xe9"}},
		},
		"cookies": {
			handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "session=secret") },
			status:  200, first: http.Header{"Set-Cookie": {"session=secret"}},
		},
		"no content": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(204)
				if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
					t.Errorf("a body of 204: %v", err)
				}
			},
			status: 204,
		},
		"not modified": {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, status: 304},
		"copied": {
			handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
			status:  200, body: "10",
		},
		"streams": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				c := http.NewResponseController(w)
				_, _, hijack := c.Hijack()
				for _, err := range []error{c.Flush(), hijack, c.EnableFullDuplex(), c.SetReadDeadline(time.Now()), c.SetWriteDeadline(time.Now())} {
					if !errors.Is(err, http.ErrNotSupported) {
						t.Errorf("what cannot be stored is %v", err)
					}
				}
				_, _ = io.WriteString(w, "whole")
			},
			status: 200, body: "whole",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New()
			server := httptest.NewServer(wrap(t, s, idempotency.Config{}, tc.handler))
			defer server.Close()
			for i := range 2 {
				r, err := http.NewRequest("POST", server.URL, io.MultiReader(strings.NewReader("10"))) // chunked
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", "k")
				resp, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != tc.status || string(b) != tc.body || len(resp.Trailer) > 0 {
					t.Errorf("time %d: %d %q %v, %v", i, resp.StatusCode, b, resp.Trailer, err)
				}
				for name, want := range tc.header {
					if got := resp.Header[name]; !slices.Equal(got, want) {
						t.Errorf("time %d: %s is %q, want %q", i, name, got, want)
					}
				}
				for name, want := range tc.first {
					if got := resp.Header[name]; slices.Equal(got, want) != (i == 0) {
						t.Errorf("time %d: %s is %q", i, name, got)
					}
				}
			}
			rows, err := s.Effects(t.Context(), "payments", store.EffectQuery{Key: idempotency.Key("", "k")})
			if err != nil || len(rows) != 1 || bytes.Contains(rows[0].Result, []byte("Cookie")) {
				t.Errorf("%v: stored %v", err, rows)
			}
		})
	}
}

// TestHappened: who says that a request was handled does not know its response,
// or does.
func TestHappened(t *testing.T) {
	known, err := idempotency.Response(201, http.Header{"Location": {"/charges/1"}}, []byte("charge 1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		policy effect.Policy
		result []byte
		status int
		body   string
	}{
		"a person":         {effect.Park, nil, 500, "not known"},
		"the query":        {effect.Ask, nil, 500, "not known"},
		"the whole answer": {effect.Ask, known, 201, "charge 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := memstore.New(), 0
			config := idempotency.Config{InDoubt: tc.policy}
			if tc.policy == effect.Ask {
				config.Query = func(context.Context, effect.Call) ([]byte, error) { return tc.result, nil }
			}
			h := wrap(t, s, config, func(http.ResponseWriter, *http.Request) {
				n++
				panic(http.ErrAbortHandler)
			})
			q := request{key: "k", client: "ann"}
			func() {
				defer func() { _ = recover() }()
				q.to(h)
			}()
			if tc.policy == effect.Park {
				if err := effect.Settle(t.Context(), s, "payments", idempotency.Key("ann", "k"), true, "jo"); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if w := q.to(h); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || n != 1 {
					t.Errorf("%d %s, handled %d times", w.Code, w.Body, n)
				}
			}
		})
	}
}

func TestNew(t *testing.T) {
	for name, c := range map[string]idempotency.Config{
		"no client": {Name: "n"},
		"no name":   {Client: client},
		"negative":  {Name: "n", Client: client, MaxRequest: -1},
	} {
		if _, err := idempotency.New(memstore.New(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if idempotency.Key("a", "bc") == idempotency.Key("ab", "c") {
		t.Error("client and key run into each other")
	}
}

func ExampleMiddleware_Wrap() {
	m, err := idempotency.New(memstore.New(), idempotency.Config{
		Name:   "payments",
		Client: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "charged")
	})))
	for range 2 {
		r := httptest.NewRequest("POST", "/charges", strings.NewReader(`{"cents": 1000}`))
		r.Header.Set("Idempotency-Key", "7c1f")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Body, "stored:", w.Header().Get("Idempotency-Replayed") == "true")
	}
	// Output:
	// charged stored: false
	// charged stored: true
}
