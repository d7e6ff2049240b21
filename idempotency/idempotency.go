// Package idempotency makes an HTTP handler safe to be called again: it is the
// contract of the Idempotency-Key header as net/http middleware, on top of
// package effect.
//
//	key missing where required        400
//	first request                     handled, the response is stored
//	again, after the first is over    the stored response
//	again, while the first runs       409 with Retry-After
//	the same key, another request     422
//
// Errors are problems in JSON (RFC 9457).
package idempotency

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
)

// Config says how to answer. The zero value of every field but Name and Client
// is a documented default.
type Config struct {
	// Name is the consumer under which responses are kept; see effect.Config.
	// Purging its rows (store.Janitor) is up to the caller, and says how long a
	// key is remembered.
	Name string
	// Client says who is asking, from what was authenticated: keys of different
	// clients have nothing to do with each other. Required.
	Client func(*http.Request) string
	// Required refuses requests without a key. Default: they are handled
	// without any guard.
	Required bool
	// Methods are those that a key means something for. Default POST, PATCH.
	Methods []string
	// MaxRequest and MaxResponse bound bodies, in bytes. Default 1 MiB each. A
	// response is stored before it is sent, so it is not streamed; one that is
	// larger is answered, now and later, by 500.
	MaxRequest, MaxResponse int
	// Again says of which statuses nothing happened, so that they are not
	// stored and the same key may be tried again. Default: 429 and 503.
	Again func(status int) bool
	// Timeout and InDoubt are those of effect.Config; Timeout is 30 s by
	// default. With Park, which is the default, a request whose handler died
	// or panicked is answered by 409 until somebody settles it; Retry has it
	// handled again, which the handler must be made for; with Ask, Query says
	// whether it happened, and its result is what Response makes, or nothing if
	// nobody knows the response any more.
	Timeout time.Duration
	InDoubt effect.Policy
	Query   effect.Func
}

func (c Config) withDefaults() Config {
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.MaxRequest == 0 {
		c.MaxRequest = 1 << 20
	}
	if c.MaxResponse == 0 {
		c.MaxResponse = 1 << 20
	}
	if c.Again == nil {
		c.Again = func(status int) bool {
			return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
		}
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	return c
}

// Middleware guards handlers. It is safe for concurrent use.
type Middleware struct {
	cfg   Config
	guard *effect.Guard
}

// maxHeader bounds the stored header of a response.
const maxHeader = 64 << 10

// New checks the configuration.
func New(s store.Effects, c Config) (*Middleware, error) {
	if c.Client == nil {
		return nil, errors.New("idempotency: Client is missing: without it one client's key would give away another one's response")
	}
	if c.MaxRequest < 0 || c.MaxResponse < 0 {
		return nil, errors.New("idempotency: MaxRequest and MaxResponse must not be negative")
	}
	c = c.withDefaults()
	g, err := effect.New(s, effect.Config{
		Name: c.Name, Timeout: c.Timeout, InDoubt: c.InDoubt, Query: c.Query, Wait: -1, MaxResult: 2*c.MaxResponse + 8*maxHeader,
	})
	if err != nil {
		return nil, err
	}
	return &Middleware{c, g}, nil
}

// Key is the key under which the request of a client is kept, for looking it up
// and for effect.Settle.
func Key(client, key string) string {
	p := effect.Print([]byte(client), []byte(key))
	return hex.EncodeToString(p[:])
}

type callKey struct{}

// CallOf returns the call that the handler runs under: a handler that calls
// others passes its key, or one made of it, along.
func CallOf(ctx context.Context) (effect.Call, bool) {
	c, ok := ctx.Value(callKey{}).(effect.Call)
	return c, ok
}

// Wrap puts a handler under guard.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(m.cfg.Methods, r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		key, given, err := keyOf(r)
		switch {
		case err != nil:
			problem(w, http.StatusBadRequest, "the Idempotency-Key is not valid", err.Error())
		case given:
			m.serve(w, r, next, key)
		case m.cfg.Required:
			problem(w, http.StatusBadRequest, "an Idempotency-Key is missing", "send a key that is new for each request and the same for its repetitions, such as a UUID")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// maxKey bounds keys, in bytes.
const maxKey = 255

// keyOf reads the key: a structured-field string ("…"), or the bare text that
// many clients send.
func keyOf(r *http.Request) (key string, given bool, err error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", false, nil
	}
	key = strings.Trim(values[0], " \t")
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	bad := strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c >= 0x7f || c == '"' || c == '\\' })
	if len(values) > 1 || bad || len(key) < 1 || len(key) > maxKey {
		return "", true, fmt.Errorf("send it once, with 1 to %d characters of ASCII, without quotes and backslashes inside", maxKey)
	}
	return key, true, nil
}

// serve answers a request that has a key.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, key string) {
	body, err := m.read(w, r)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			problem(w, http.StatusRequestEntityTooLarge, "the request is too large", fmt.Sprintf("at most %d bytes are taken", large.Limit))
			return
		}
		problem(w, http.StatusBadRequest, "the request could not be read", "nothing was done; send it again")
		return
	}
	client := m.cfg.Client(r)
	h := &handling{m: m, next: next, r: r, body: body}
	print := effect.Print([]byte(r.Method), []byte(r.URL.RequestURI()), []byte(r.Header.Get("Content-Type")), body)
	// The client may be gone before the response is there; it comes back for it.
	result, err := m.guard.Do(context.WithoutCancel(r.Context()), Key(client, key), print, h.do)
	switch {
	case h.panicked != nil:
		panic(h.panicked) // as without the middleware
	case h.again != nil:
		h.again.send(w, false)
	case err == nil && !result.Stored && h.first != nil:
		h.first.send(w, false)
	case err == nil && len(result.Body) == 0: // a person or Query said that it happened
		problem(w, http.StatusInternalServerError, "the request was handled, but its response is not known", "do not send it under another key; look up what it did")
	case err == nil:
		stored, err := unpack(result)
		if err != nil {
			problem(w, http.StatusInternalServerError, "the stored response is damaged", "")
			return
		}
		stored.send(w, result.Stored)
	default:
		refuse(w, err)
	}
}

// read reads the body. One that says that it is too large is refused unread.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	most := int64(m.cfg.MaxRequest)
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, most))
}

// refuse answers a request that could not be handled now.
func refuse(w http.ResponseWriter, err error) {
	var busy *effect.BusyError
	switch {
	case errors.As(err, &busy):
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(max(1, busy.Left.Seconds())))))
		problem(w, http.StatusConflict, "a request with this Idempotency-Key is being handled", "wait for its response, then send it again")
	case errors.Is(err, effect.ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "this Idempotency-Key belongs to another request", "use a new key for a new request")
	case errors.Is(err, effect.ErrInDoubt):
		problem(w, http.StatusConflict, "it is not known what became of the request with this Idempotency-Key", "do not send it under another key; ask whoever runs this service")
	default:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "the request could not be recorded", "send it again with the same Idempotency-Key")
	}
}

// handling is one run of the handler.
type handling struct {
	m        *Middleware
	next     http.Handler
	r        *http.Request
	body     []byte
	panicked any
	again    *response // that is not stored
	first    *response // as the handler gave it, which is more than what is stored
}

// errAgain says that nothing happened.
var errAgain = errors.New("the handler says that nothing happened")

// do is the effect: the handler, with its response in memory.
func (h *handling) do(ctx context.Context, c effect.Call) ([]byte, error) {
	r := h.r.WithContext(context.WithValue(ctx, callKey{}, c))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(h.body)), int64(len(h.body))
	rec := &recorder{header: http.Header{}, most: h.m.cfg.MaxResponse}
	defer func() {
		v := recover()
		if _, staged := v.(fault.Crash); v != nil && !staged {
			h.panicked = v
		}
		if v != nil {
			panic(v) // nobody knows what it did
		}
	}()
	h.next.ServeHTTP(rec, r)
	resp := rec.response()
	if h.m.cfg.Again(resp.Status) {
		h.again = resp
		return nil, effect.NotDone(errAgain)
	}
	h.first = resp
	return Response(resp.Status, resp.Header, resp.Body)
}

// response is an answer.
type response struct {
	Status int
	Header http.Header
	Body   []byte
}

// stored is a response in the table. Values of a header are bytes: not all are
// UTF-8.
type stored struct {
	Status int
	Header map[string][][]byte
	Body   []byte
}

// Response is a response as it is stored: for Query, which finds out what the
// handler did. Set-Cookie is left out: a session belongs to the one who got it
// first, and is no business of whoever can read the table.
func Response(status int, header http.Header, body []byte) ([]byte, error) {
	s := stored{status, map[string][][]byte{}, body}
	for name, values := range header {
		if name == "Set-Cookie" {
			continue
		}
		for _, v := range values {
			s.Header[name] = append(s.Header[name], []byte(v))
		}
	}
	return json.Marshal(s)
}

func unpack(r effect.Result) (*response, error) {
	if r.Cut() {
		return nil, errors.New("it was cut")
	}
	var s stored
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return nil, err
	}
	if s.Status < 200 || s.Status > 999 {
		return nil, errors.New("it has no status")
	}
	resp := &response{s.Status, http.Header{}, s.Body}
	for name, values := range s.Header {
		for _, v := range values {
			resp.Header.Add(name, string(v))
		}
	}
	return resp, nil
}

// send answers. A response that was stored earlier says so.
func (p *response) send(w http.ResponseWriter, stored bool) {
	for name, values := range p.Header {
		w.Header()[name] = values
	}
	if stored {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.Body)
}

// problem answers with an error as RFC 9457 has it.
func problem(w http.ResponseWriter, status int, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{title, status, detail})
}
