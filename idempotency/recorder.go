package idempotency

import (
	"fmt"
	"net/http"
	"strings"
)

// recorder is a response writer that keeps everything. What is not stored yet
// must not be sent, so that it cannot flush, be hijacked or have deadlines:
// http.ResponseController says http.ErrNotSupported.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   []byte
	most   int
	large  bool
}

// Header returns the header that will be sent.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the first final status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write keeps b, or refuses it if the response is too large.
func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if len(b) > 0 && (r.status == http.StatusNoContent || r.status == http.StatusNotModified) {
		return 0, http.ErrBodyNotAllowed
	}
	if len(b) > r.most-len(r.body) {
		r.large = true
		return 0, fmt.Errorf("idempotency: a response of more than %d bytes cannot be stored", r.most)
	}
	r.body = append(r.body, b...)
	return len(b), nil
}

// hop are the names of headers that belong to one connection, not to a
// response. The length is that of the body that was kept, and the server knows
// it; trailers are not kept.
var hop = []string{"Connection", "Content-Length", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// response is what was written.
func (r *recorder) response() *response {
	r.WriteHeader(http.StatusOK)
	for _, name := range hop {
		r.sent.Del(name)
	}
	for name := range r.sent {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(r.sent, name)
		}
	}
	size := 0
	for name, values := range r.sent {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if !r.large && size <= maxHeader {
		if r.sent.Get("Content-Type") == "" && len(r.body) > 0 {
			r.sent.Set("Content-Type", http.DetectContentType(r.body))
		}
		return &response{r.status, r.sent, r.body}
	}
	return &response{
		Status: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body: []byte(`{"title":"the request was handled, but its response is too large to be stored","status":500}`),
	}
}
