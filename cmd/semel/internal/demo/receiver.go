package demo

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// keyHeader makes two requests with one value the same notice.
	keyHeader = "Idempotency-Key"
	// maxNotice bounds what the receiver reads.
	maxNotice = 64 << 10
)

// receiver delivers notices to customers; it writes each down that it
// delivers. Its documentation would say: requests with the same
// Idempotency-Key are one notice, and the repetition is answered like the
// first one. The same key with another body is refused. Without a key every
// request is a notice.
//
// It answers some notices too late: it has delivered, and the sender does not
// learn it.
type receiver struct {
	url    string
	server *http.Server
	ended  chan struct{}
	slow   map[string]bool

	mu    sync.Mutex
	notes *os.File
	known map[string][sha256.Size]byte // by key
	told  map[string]bool              // slow answers that were given
}

// receive starts one that writes to the file notes.
func receive(notes string, slow map[string]bool) (*receiver, error) {
	f, err := os.OpenFile(notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/notices", ended: make(chan struct{}), slow: slow,
		notes: f, known: map[string][sha256.Size]byte{}, told: map[string]bool{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(r.ended)
		_ = r.server.Serve(l) // it always ends with an error: that of close
	}()
	return r, nil
}

func (r *receiver) close() error {
	err := r.server.Close()
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.notes.Close())
}

// ServeHTTP takes one notice.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxNotice))
	var n notice
	if err == nil {
		err = json.Unmarshal(body, &n)
	}
	if err != nil || n.ID == "" || req.Method != http.MethodPost {
		http.Error(w, "POST a notice with an id", http.StatusBadRequest)
		return
	}
	status, late, err := r.take(&n, req.Header.Get(keyHeader), body)
	if err != nil {
		http.Error(w, "the notice could not be written down", http.StatusInternalServerError)
		return
	}
	if late {
		<-req.Context().Done() // the sender has given up
	}
	w.WriteHeader(status)
}

// take delivers a notice unless its key is known. late says that this answer
// is one of those that come too late.
func (r *receiver) take(n *notice, key string, body []byte) (status int, late bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	print := sha256.Sum256(body)
	if before, known := r.known[key]; known && key != "" {
		if before != print {
			return http.StatusUnprocessableEntity, false, nil
		}
		return http.StatusAccepted, false, nil
	}
	line, err := json.Marshal(struct {
		ID       string `json:"id"`
		Customer string `json:"customer"`
		Key      string `json:"key,omitempty"`
	}{n.ID, n.Customer, key})
	if err == nil {
		_, err = r.notes.Write(append(line, '\n'))
	}
	if err != nil {
		return 0, false, err
	}
	if key != "" {
		r.known[key] = print
	}
	late = r.slow[n.ID] && !r.told[n.ID]
	r.told[n.ID] = true
	return http.StatusAccepted, late, nil
}

// noted counts what a receiver wrote down, by notice.
func noted(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var n notice
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		counts[n.ID]++
	}
	got := map[string]string{}
	for id, n := range counts {
		got[id] = strconv.Itoa(n)
	}
	return got, lines.Err()
}
