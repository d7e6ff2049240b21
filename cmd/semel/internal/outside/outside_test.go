package outside

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store/memstore"
)

func callOf(id string, body string) Call {
	return Call{effect.Call{Key: id, Token: 7, Attempt: 2}, &semel.Message{ID: id, Key: "k", Type: "t"}, []byte(body)}
}

func newHTTP(url string) *HTTP {
	return NewHTTP(HTTP{URL: url, Method: "POST", Header: http.Header{"Authorization": {"secret"}}, Expect: HTTPCodes(), AskURL: url + "/" + IDPlace, Fresh: true})
}

// outcome is what an error says: done, permanent, transient or unknown.
func outcome(err error) string {
	class, marked := semel.ClassOf(err)
	switch {
	case err == nil:
		return "done"
	case !effect.Known(err):
		return "unknown"
	case marked && class == semel.ClassPermanent:
		return "permanent"
	}
	return "transient"
}

func TestHTTPStatuses(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || string(body) != "b" || r.Header.Get("Idempotency-Key") != "id%201" || r.Header.Get("Authorization") != "secret" || r.ContentLength != 1 {
			t.Errorf("%s %q %v", r.Method, body, r.Header)
		}
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		if status != 204 {
			_, _ = io.WriteString(w, `{"title":"no such\u001b[31m account","detail":"the body: b"}`)
		}
	}))
	defer server.Close()
	h := newHTTP(server.URL)
	for code, want := range map[int]string{
		200: "done", 201: "done", 204: "done", 302: "permanent", 400: "permanent", 404: "permanent", 422: "permanent",
		408: "transient", 425: "transient", 429: "transient", 409: "unknown", 500: "unknown", 502: "unknown", 503: "unknown",
	} {
		status = code
		_, err := h.Do(t.Context(), callOf("id 1", "b"))
		if got := outcome(err); got != want {
			t.Errorf("%d: %s, want %s: %v", code, got, want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "the body") || strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), "no such")) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestHTTPRetryAfter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "90")
		code, _ := strconv.Atoi(r.Header.Get("Idempotency-Key"))
		w.WriteHeader(code)
	}))
	defer server.Close()
	for code, want := range map[string]string{"429": "transient", "503": "unknown", "400": "permanent"} {
		_, err := newHTTP(server.URL).Do(t.Context(), callOf(code, ""))
		d, asked := semel.DelayOf(err)
		if got := outcome(err); got != want || asked != (code != "400") || asked && d != 90*time.Second {
			t.Errorf("%s: %s, %v, %v", code, got, d, err)
		}
	}
}

// TestHTTPConnections: without a connection nothing happened; once there was
// one, nobody knows, and nothing is sent twice.
func TestHTTPConnections(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	if _, err := newHTTP(closed.URL).Do(t.Context(), callOf("a", "b")); outcome(err) != "transient" {
		t.Errorf("refused: %v", err)
	}
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	tls.Config.ErrorLog = nil
	if _, err := newHTTP(tls.URL).Do(t.Context(), callOf("a", "b")); outcome(err) != "transient" {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
	for _, fresh := range []bool{true, false} {
		for _, body := range []string{"b", ""} {
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				if calls.Add(1) == 1 {
					return // the connection stays open
				}
				panic(http.ErrAbortHandler)
			}))
			h := newHTTP(server.URL)
			h.Fresh = fresh
			h = NewHTTP(*h)
			if _, err := h.Do(t.Context(), callOf("a", body)); err != nil {
				t.Error(err)
			}
			if _, err := h.Do(t.Context(), callOf("a", body)); outcome(err) != "unknown" {
				t.Errorf("broken off: %v", err)
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("fresh %v, body %q: the receiver was called %d times for two calls", fresh, body, n)
			}
			server.Close()
		}
	}
}

func TestHTTPSlow(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := newHTTP(server.URL+"/?token=secret").Do(ctx, callOf("a", "b"))
	if outcome(err) != "unknown" || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestHTTPAsk(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || !strings.HasPrefix(r.URL.EscapedPath(), "/a%2Fb%20") {
			t.Errorf("%s %s", r.Method, r.URL.EscapedPath())
		}
		code, _ := strconv.Atoi(r.URL.Path[len("/a/b "):])
		w.WriteHeader(code)
	}))
	h := newHTTP(server.URL)
	for code, want := range map[string]string{"200": "done", "204": "done", "404": "transient", "410": "transient", "401": "unknown", "500": "unknown", "302": "unknown"} {
		if _, err := h.Ask(t.Context(), effect.Call{Key: "a/b " + code}); outcome(err) != want {
			t.Errorf("%s: %v", code, err)
		}
	}
	server.Close()
	if _, err := h.Ask(t.Context(), effect.Call{Key: "a"}); outcome(err) != "unknown" {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"evt-1", "a b", "a%20b", "a\nb", "ä", "\x00", "100%", `"q"`} {
		key := IdempotencyKey(id)
		if other, ok := seen[key]; ok || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q is %q, as is %q", id, key, other)
		}
		seen[key] = id
	}
	if IdempotencyKey("evt-1:x/y") != "evt-1:x/y" {
		t.Error("a plain id is changed")
	}
}

// script is a program for exec.
func script(t *testing.T, text string) *Exec {
	t.Helper()
	path := filepath.Join(t.TempDir(), "do")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Exec{Argv: []string{path, "x y"}, Expect: ExecCodes(), AskArgv: []string{path}}
}

func TestExecCodes(t *testing.T) {
	t.Setenv("OTHER", "secret")
	x := script(t, `[ "$(cat)" = body ] && [ "$1" = "x y" ] && [ "$SEMEL_ID/$SEMEL_KEY/$SEMEL_TYPE/$SEMEL_ATTEMPT/$SEMEL_TOKEN" = "a/k/t/2/7" ] && [ -z "$OTHER" ] || exit 99
echo first >&2; printf 'last\033[31m' >&2; exit $CODE`)
	for code, want := range map[string]string{"0": "done", "1": "unknown", "64": "permanent", "65": "permanent", "75": "transient", "70": "unknown"} {
		x.Env = []string{"CODE=" + code}
		res, err := x.Do(t.Context(), callOf("a", "body"))
		if outcome(err) != want || string(res) != "exit code "+code {
			t.Errorf("%s: %s %q, %v", code, outcome(err), res, err)
		}
		if err != nil && !strings.HasSuffix(err.Error(), `: "last\x1b[31m"`) {
			t.Errorf("%v", err)
		}
	}
	x = script(t, "exit $SEMEL_ID")
	for id, want := range map[string]string{"0": "done", "1": "transient", "2": "unknown"} {
		if _, err := x.Ask(t.Context(), effect.Call{Key: id}); outcome(err) != want {
			t.Errorf("asked, exit code %s: %v", id, err)
		}
	}
	if _, err := script(t, "kill -9 $$").Do(t.Context(), callOf("a", "")); outcome(err) != "unknown" {
		t.Errorf("killed: %v", err)
	}
	x.Argv = []string{filepath.Join(t.TempDir(), "none")}
	_, err := x.Do(t.Context(), callOf("a", ""))
	if class, _ := semel.ClassOf(err); !effect.Known(err) || class != semel.ClassFault || x.Check() == nil {
		t.Errorf("not there: %v", err)
	}
}

// TestExecTime: at the end of its time the program ends with all that it
// started.
func TestExecTime(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	x := script(t, "sleep 600 &\necho > $STARTED\nwait")
	x.Env = []string{"STARTED=" + started}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for {
			if _, err := os.Stat(started); err == nil {
				return
			}
		}
	}()
	began := time.Now()
	_, err := x.Do(ctx, callOf("a", ""))
	if outcome(err) != "unknown" || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if took := time.Since(began); took > killDelay+20*time.Second {
		t.Errorf("what it started held its pipes: %v", took)
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": `: "a"`, "a\nb\n": `: "b"`, "a\n\n": `: "a"`, strings.Repeat("x", 1000) + "\n": `: "` + strings.Repeat("x", maxSaid) + `"`} {
		l := &lastLine{}
		for i := 0; i < len(text); i += 7 {
			_, _ = l.Write([]byte(text[i:min(i+7, len(text))]))
		}
		if l.String() != want {
			t.Errorf("%.20q: %s", text, l)
		}
	}
}

type fixed []any

func (f fixed) Values(_ *semel.Message, out []any) ([]any, error) { return append(out, f...), nil }

// TestGuarded puts it together: the body is rendered, done once, and what is in
// doubt tells where to go.
func TestGuarded(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, string(b))
		if strings.Contains(string(b), "lost") {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	for value, want := range map[any]string{"text": "text", int64(5): "5", true: "true", 1.5: "1.5"} {
		step := &Step{Target: newHTTP(server.URL), Body: fixed{value}}
		g, err := step.Guard(memstore.New(), "c")
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for range 2 {
			if err := g.Do(t.Context(), semel.Message{ID: "a"}); err != nil {
				t.Error(err)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	step := &Step{Target: newHTTP(server.URL)}
	g, _ := step.Guard(memstore.New(), "c")
	got = nil
	for range 2 {
		err := g.Do(t.Context(), semel.Message{ID: "b", Body: []byte("lost")})
		var r interface{ LetterReason() string }
		if !errors.As(err, &r) || !strings.Contains(err.Error(), "semel effects settle") || outcome(err) != "unknown" {
			t.Errorf("%v", err)
		}
	}
	if len(got) != 1 {
		t.Errorf("sent %q", got)
	}
	step.Body = fixed{nil}
	if err := g.Do(t.Context(), semel.Message{ID: "c"}); err == nil {
		t.Error("nothing to send was sent")
	} else if class, _ := semel.ClassOf(err); class != semel.ClassInvalid {
		t.Error(err)
	}
	if _, err := step.Guard(nil, "c"); err == nil {
		t.Error("no store")
	}
}
