// Package frameworks_test shows package idempotency in the routers that people
// use, and that the contract holds there.
package frameworks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/semel-dev/semel/idempotency"
	"github.com/semel-dev/semel/store/memstore"
)

// charges counts charges that were made.
type charges struct{ n int }

func (c *charges) charge(w io.Writer) error {
	c.n++
	_, err := io.WriteString(w, "charged")
	return err
}

func middleware(t *testing.T) *idempotency.Middleware {
	t.Helper()
	m, err := idempotency.New(memstore.New(), idempotency.Config{
		Name: "payments", Required: true,
		Client: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func withServeMux(m *idempotency.Middleware, c *charges) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /charges/{account}", m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Account", r.PathValue("account"))
		_ = c.charge(w)
	})))
	return mux
}

func withChi(m *idempotency.Middleware, c *charges) http.Handler {
	r := chi.NewRouter()
	r.With(m.Wrap).Post("/charges/{account}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Account", chi.URLParam(r, "account"))
		_ = c.charge(w)
	})
	return r
}

func withEcho(m *idempotency.Middleware, c *charges) http.Handler {
	e := echo.New()
	e.POST("/charges/:account", func(x echo.Context) error {
		x.Response().Header().Set("Account", x.Param("account"))
		return c.charge(x.Response())
	}, echo.WrapMiddleware(m.Wrap))
	return e
}

// withGin wraps the whole engine: gin's own middleware cannot replace the
// writer of a response by one of net/http.
func withGin(m *idempotency.Middleware, c *charges) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.POST("/charges/:account", func(x *gin.Context) {
		x.Header("Account", x.Param("account"))
		_ = c.charge(x.Writer)
	})
	return m.Wrap(g)
}

func TestFrameworks(t *testing.T) {
	for name, with := range map[string]func(*idempotency.Middleware, *charges) http.Handler{
		"net/http": withServeMux, "chi": withChi, "echo": withEcho, "gin": withGin,
	} {
		t.Run(name, func(t *testing.T) {
			c := &charges{}
			s := httptest.NewServer(with(middleware(t), c))
			defer s.Close()
			for _, step := range []struct {
				key, body string
				status    int
				replayed  bool
				charged   int
			}{
				{"", `{"cents": 1000}`, http.StatusBadRequest, false, 0},
				{"k1", `{"cents": 1000}`, http.StatusOK, false, 1},
				{"k1", `{"cents": 1000}`, http.StatusOK, true, 1},
				{"k1", `{"cents": 9999}`, http.StatusUnprocessableEntity, false, 1},
				{"k2", `{"cents": 9999}`, http.StatusOK, false, 2},
			} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/charges/ann", strings.NewReader(step.body))
				if err != nil {
					t.Fatal(err)
				}
				if step.key != "" {
					r.Header.Set("Idempotency-Key", step.key)
				}
				w, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(w.Body)
				w.Body.Close()
				replayed := w.Header.Get("Idempotency-Replayed") == "true"
				if err != nil || w.StatusCode != step.status || replayed != step.replayed || c.n != step.charged {
					t.Errorf("%+v: status %d, replayed %v, %d charges, %v", step, w.StatusCode, replayed, c.n, err)
				}
				if w.StatusCode == http.StatusOK && (string(body) != "charged" || w.Header.Get("Account") != "ann") {
					t.Errorf("%+v: %q, header %v", step, body, w.Header)
				}
			}
		})
	}
}
