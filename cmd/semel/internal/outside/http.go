package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store"
)

// IDPlace stands for the id of the message in URLs.
const IDPlace = "{id}"

// HTTP is a request for each message.
type HTTP struct {
	// URL may hold IDPlace, and secrets: it is never printed but for its host.
	URL    string
	Method string
	Header http.Header
	Expect Codes
	// AskURL answers whether it happened: 2xx if so, 404 or 410 if not. Empty:
	// it cannot be asked.
	AskURL string
	// Fresh takes a connection for each request. One that is kept may be closed
	// by the receiver just when it is used, and then nobody knows.
	Fresh bool

	client *http.Client
}

// HTTPCodes are those of a receiver that is known for nothing in particular.
// Whatever is not listed is unknown: with 409 the same key may be under way,
// and with 5xx the request may have been carried out before something broke.
func HTTPCodes() Codes {
	return Codes{
		Done:      []Range{{200, 299}},
		Permanent: []Range{{300, 407}, {410, 424}, {426, 428}, {430, 499}},
		Transient: []Range{{408, 408}, {425, 425}, {429, 429}},
	}
}

// NewHTTP readies h, which is not changed any more.
func NewHTTP(h HTTP) *HTTP {
	h.client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, DisableKeepAlives: h.Fresh,
		},
		// A redirected POST would become a GET, or reach somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &h
}

// String names method and host.
func (h *HTTP) String() string {
	host := "?"
	if u, err := url.Parse(h.URL); err == nil {
		host = u.Host
	}
	return h.Method + " " + host
}

// Check implements Target. Whether the receiver is there is not asked: it need
// not be, yet.
func (h *HTTP) Check() error { return nil }

// Print implements Target. Header fields are left out: a token may change.
func (h *HTTP) Print(m *semel.Message, body []byte) store.Fingerprint {
	return effect.Print([]byte("http"), []byte(h.Method), []byte(place(h.URL, m.ID)), body)
}

func place(u, id string) string { return strings.ReplaceAll(u, IDPlace, url.PathEscape(id)) }

// Do implements Target.
func (h *HTTP) Do(ctx context.Context, c Call) ([]byte, error) {
	resp, err := h.send(ctx, h.Method, place(h.URL, c.Key), c.Key, c.Body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	err = h.Expect.sort(resp.StatusCode, answered(resp))
	if d := retryAfter(resp); d > 0 && err != nil && !permanent(err) {
		again := semel.RetryAfter(err, d)
		if effect.Known(err) {
			again = effect.NotDone(again)
		}
		return nil, again
	}
	return []byte(resp.Status), err
}

func permanent(err error) bool {
	class, marked := semel.ClassOf(err)
	return marked && class == semel.ClassPermanent
}

// Ask implements Target.
func (h *HTTP) Ask(ctx context.Context, c effect.Call) ([]byte, error) {
	resp, err := h.send(ctx, http.MethodGet, place(h.AskURL, c.Key), c.Key, nil)
	if err != nil {
		return nil, unknown(err)
	}
	defer resp.Body.Close()
	switch n := resp.StatusCode; {
	case n >= 200 && n < 300:
		return []byte("found: " + resp.Status), nil
	case n == http.StatusNotFound || n == http.StatusGone:
		return nil, effect.NotDone(answered(resp))
	}
	return nil, fmt.Errorf("asked whether it happened: %w", answered(resp))
}

// unknown takes the mark of NotDone off: a question that did not arrive says
// nothing of what was asked about.
func unknown(err error) error { return fmt.Errorf("asked whether it happened: %v", err) } //nolint:errorlint // that is the point

// send sends one request, once. An error is known not to have arrived if there
// was not even a connection.
func (h *HTTP) send(ctx context.Context, method, target, key string, body []byte) (*http.Response, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, effect.NotDone(semel.Fault(errors.New("handle.http.url is not a URL once the id is in it")))
	}
	for name, values := range h.Header {
		req.Header[name] = values
	}
	req.Header.Set("Idempotency-Key", IdempotencyKey(key))
	req.Header.Set("User-Agent", "semel")
	if body != nil {
		// Without GetBody the transport repeats nothing by itself, which it
		// would because of the key, whether the receiver honours it or not.
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := h.client.Do(req)
	if err == nil {
		return resp, nil
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // it quotes the URL, which may hold a secret
	}
	if !connected {
		err = effect.NotDone(err)
	}
	return nil, err
}

// answered says what the receiver said. Of the body only the title of a problem
// (RFC 9457) is told: anything else may repeat what was sent.
func answered(resp *http.Response) error {
	title := ""
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		var p struct{ Title string }
		if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p) == nil && p.Title != "" {
			title = fmt.Sprintf(": %q", cut(p.Title, 120))
		}
	}
	return fmt.Errorf("the receiver answered %s%s", cut(strconv.QuoteToASCII(resp.Status), 80), title)
}

func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "\ufffd") }

// maxAfter bounds what a receiver may ask for.
const maxAfter = 24 * time.Hour

func retryAfter(resp *http.Response) time.Duration {
	v := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, maxAfter)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, min(time.Until(at), maxAfter))
	}
	return 0
}

// IdempotencyKey is an id as a header field can hold it: what is not visible
// ASCII is percent-encoded, and so is the percent sign, so that different ids
// stay different.
func IdempotencyKey(id string) string {
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
