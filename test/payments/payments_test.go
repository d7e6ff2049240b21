// Package payments_test runs a payment service as a process of its own, on each
// database, and kills it.
package payments_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/test/e2e/rig"
	"github.com/semel-dev/semel/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

var stores = map[string]func(t testing.TB) string{
	"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "payments.db") },
	"postgres": func(t testing.TB) string { return servertest.Postgres.Database(t) },
}

// bank charges for every request, whatever its key, and counts.
type bank struct {
	*httptest.Server
	mu    sync.Mutex
	calls int
	keys  map[string]bool
}

func newBank(t *testing.T) *bank {
	b := &bank{keys: map[string]bool{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		amount, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls++
		b.keys[r.Header.Get("Idempotency-Key")] = true
		fmt.Fprintf(w, "charge %d of %s", b.calls, amount)
	}))
	t.Cleanup(b.Close)
	return b
}

// charges are how often it was called, and with how many keys.
func (b *bank) charges() (calls, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls, len(b.keys)
}

// start starts the service and returns its address.
func start(t *testing.T, at string, b *bank, env ...string) (*rig.Process, string) {
	t.Helper()
	p := rig.Start(t, rig.Command{Path: rig.Program(t, "test/payments/server"), Args: []string{"-store", at, "-bank", b.URL}, Env: env})
	rig.Until(t, "the service listens", func() bool { return !p.Alive() || strings.HasSuffix(p.Stderr(), "\n") })
	return p, strings.TrimSpace(p.Stderr())
}

// post sends a request; 0 is no answer.
func post(t *testing.T, url, client, key, body string) (status int, text string, h http.Header) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Client", client)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, "", nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", nil
	}
	return resp.StatusCode, string(b), resp.Header
}

// TestDoubleClick (A4): the button is pressed many times at once, and later
// again. The bank is called once, and who asks later has the first answer.
func TestDoubleClick(t *testing.T) {
	for name, at := range stores {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			_, url := start(t, at(t), b)
			if status, _, _ := post(t, url, "ann", "", "10"); status != 400 {
				t.Errorf("without a key: %d", status)
			}
			var clicks sync.WaitGroup
			for range 8 {
				clicks.Go(func() {
					switch status, text, h := post(t, url, "ann", "order-1", "10"); {
					case status == 201 && text == "charge 1 of 10":
					case status == 409 && h.Get("Retry-After") != "":
					default:
						t.Errorf("%d %s", status, text)
					}
				})
			}
			clicks.Wait()
			if status, text, h := post(t, url, "ann", "order-1", "10"); status != 201 || text != "charge 1 of 10" || h.Get("Idempotency-Replayed") != "true" {
				t.Errorf("later: %d %s", status, text)
			}
			if status, _, _ := post(t, url, "ann", "order-1", "1000"); status != 422 {
				t.Errorf("another amount: %d", status)
			}
			if calls, _ := b.charges(); calls != 1 {
				t.Errorf("the bank was called %d times", calls)
			}
			if status, text, _ := post(t, url, "bob", "order-1", "10"); status != 201 || text != "charge 2 of 10" {
				t.Errorf("another client: %d %s", status, text)
			}
		})
	}
}

// TestKilled: the service is killed at each point. Before the response is
// stored, the request is refused until it is no longer under way; after that it
// has the response. The bank, which ignores keys, is never called twice.
func TestKilled(t *testing.T) {
	for name, at := range stores {
		for _, p := range fault.Effects() {
			t.Run(name+"/"+string(p), func(t *testing.T) {
				b, db := newBank(t), at(t)
				first, url := start(t, db, b, "SEMEL_FAULT="+string(p))
				if status, text, _ := post(t, url, "ann", "order-1", "10"); status != 0 {
					t.Errorf("%d %s of a service that is dead", status, text)
				}
				if e := first.Wait(); !e.Killed() {
					t.Fatalf("it was not killed: %v", e)
				}
				before, _ := b.charges()
				_, url = start(t, db, b)
				status, text, _ := post(t, url, "ann", "order-1", "10")
				if p == fault.ResultKnown {
					if status != 201 || text != "charge 1 of 10" {
						t.Errorf("%d %s", status, text)
					}
				} else if status != 409 {
					t.Errorf("%d %s", status, text)
				}
				if after, _ := b.charges(); after != before || (p == fault.Intended) != (after == 0) {
					t.Errorf("the bank was called %d times, then %d", before, after)
				}
			})
		}
	}
}
