// Command server is a payment service of a user: POST /charges under the
// idempotency middleware, in front of a bank that charges whatever it is sent.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/idempotency"
	"github.com/semel-dev/semel/internal/trap"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlitestore"
)

func main() {
	at := flag.String("store", "", "a file of SQLite, or an address of PostgreSQL")
	bank := flag.String("bank", "", "the address of the bank")
	flag.Parse()
	_, err := trap.Arm(os.Getenv, fault.Effects())
	if err == nil {
		err = run(context.Background(), *at, *bank)
	}
	fmt.Fprintln(os.Stderr, "server:", err)
	os.Exit(2)
}

type effects interface {
	store.Effects
	Migrate(context.Context) error
}

func open(ctx context.Context, at string) (effects, error) {
	if strings.HasPrefix(at, "postgres") {
		return pgstore.Open(ctx, at, pgstore.Config{})
	}
	return sqlitestore.Open(ctx, at, sqlitestore.Config{})
}

func run(ctx context.Context, at, bank string) error {
	s, err := open(ctx, at)
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	c := idempotency.Config{Name: "payments", Required: true, Client: func(r *http.Request) string { return r.Header.Get("X-Client") }}
	m, err := idempotency.New(s, c)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", m.Wrap(charge(bank)))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "http://%v/charges\n", ln.Addr())
	return http.Serve(ln, mux)
}

// charge asks the bank. A bank that does not answer may have charged: the
// handler panics, because it does not know.
func charge(bank string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call, _ := idempotency.CallOf(r.Context())
		q, err := http.NewRequestWithContext(r.Context(), http.MethodPost, bank, r.Body)
		if err != nil {
			panic(err)
		}
		q.Header.Set("Idempotency-Key", call.Key)
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, resp.Body)
	}
}
