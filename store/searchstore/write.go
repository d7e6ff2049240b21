package searchstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
)

// maxID is how long an id may be at the server, in bytes.
const maxID = 512

// Document is one version of a document.
type Document struct {
	// ID is valid UTF-8, 1 to 512 bytes.
	ID string
	// Version is 0 or more; required unless the index has NoVersions.
	Version semel.Version
	// Source is a JSON object. It is not looked at if Deleted.
	Source []byte
	// Deleted replaces the document by one that only says so. It is never
	// removed: the server remembers versions of removed documents for a minute
	// (index.gc_deletes), after which an older message would bring it back.
	Deleted bool
}

// line is a document as it is sent.
type line struct {
	i    int // of the documents
	id   string
	text []byte
}

// writing is one call of Write.
type writing struct {
	x      *Index
	errs   []error
	failed map[string]bool // ids whose later documents must not pass, without versions
	bytes  int             // the bound, halved by answers 413
	until  time.Time
	pause  time.Duration
}

// Write writes documents, in order where they have the same id, and returns
// when the server has acknowledged or refused each of them. Its error names
// them by semel.At: semel.ErrSuperseded if the index has a newer version,
// permanent if the server can never take it. One that names none is about the
// server: fault (a person has to act), infrastructure (it is away or overloaded),
// or unmarked, if it answers and yet did not do this bulk. After those, and after
// the context's end, some may be written: with versions it is harmless to repeat.
func (x *Index) Write(ctx context.Context, docs []Document) error {
	w := &writing{x: x, errs: make([]error, len(docs)), failed: map[string]bool{}, bytes: x.cfg.MaxBytes, until: time.Now().Add(x.cfg.Timeout)}
	var lines []line
	for i := range docs {
		text, err := x.encode(&docs[i])
		if w.errs[i] = err; err == nil {
			lines = append(lines, line{i, docs[i].ID, text})
		}
	}
	release, err := x.claim(ctx, lines)
	if err != nil {
		return err
	}
	defer release()
	for len(lines) > 0 {
		if lines, err = w.step(ctx, lines); err != nil {
			return fmt.Errorf("%s: %w", x, err)
		}
	}
	var all []error
	for i, err := range w.errs {
		if err != nil {
			all = append(all, semel.At(i, err))
		}
	}
	return errors.Join(all...)
}

// encode makes the two lines of a document, which must be lines: a body with a
// line break in it could say anything to the server.
func (x *Index) encode(d *Document) ([]byte, error) {
	switch {
	case d.ID == "" || len(d.ID) > maxID:
		return nil, semel.Permanent(fmt.Errorf("the id of the document has %d bytes: the server takes 1 to %d", len(d.ID), maxID))
	case !utf8.ValidString(d.ID):
		return nil, semel.Permanent(errors.New("the id of the document is not UTF-8, as the server demands: encode it, in hexadecimal for instance"))
	case x.cfg.Versions != NoVersions && !d.Version.Set:
		return nil, semel.Permanent(errors.New("the document has no version, so nobody could tell an old one from a new one"))
	case x.cfg.Versions != NoVersions && d.Version.N < 0:
		return nil, semel.Permanent(fmt.Errorf("the version of the document is %d: the server takes no negative ones", d.Version.N))
	}
	action := map[string]any{"_id": d.ID}
	if x.cfg.Versions != NoVersions {
		action["version"], action["version_type"] = d.Version.N, map[Versions]string{ExternalGTE: "external_gte", External: "external"}[x.cfg.Versions]
	}
	head, err := json.Marshal(map[string]any{"index": action})
	if err != nil {
		return nil, semel.Permanent(errors.New("the id of the document cannot be written as JSON"))
	}
	b := bytes.NewBuffer(append(head, '\n'))
	if d.Deleted {
		source, err := json.Marshal(map[string]bool{x.cfg.DeletedField: true})
		b.Write(append(source, '\n'))
		return b.Bytes(), err
	}
	start := b.Len()
	if json.Compact(b, d.Source) != nil || b.Bytes()[start] != '{' || !utf8.Valid(d.Source) {
		return nil, semel.Permanent(errors.New("the document is not a JSON object"))
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// claim waits until no other call writes one of the documents.
func (x *Index) claim(ctx context.Context, lines []line) (release func(), err error) {
	for {
		x.mu.Lock()
		wait, taken := x.free, false
		for _, l := range lines {
			taken = taken || x.busy[l.id]
		}
		if !taken {
			for _, l := range lines {
				x.busy[l.id] = true
			}
			x.mu.Unlock()
			return func() { x.release(lines) }, nil
		}
		x.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, semel.Infrastructure(fmt.Errorf("%s: a bulk with one of the documents was on its way all the time: %w", x, ctx.Err()))
		}
	}
}

func (x *Index) release(lines []line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range lines {
		delete(x.busy, l.id)
	}
	close(x.free)
	x.free = make(chan struct{})
}

// step sends one bulk of what is left and returns what is left then.
func (w *writing) step(ctx context.Context, lines []line) ([]line, error) {
	now, later := w.choose(lines)
	if len(now) == 0 {
		return later, nil
	}
	var body bytes.Buffer
	for _, l := range now {
		body.Write(l.text)
	}
	a, err := w.x.bulk(ctx, body.Bytes())
	if err != nil {
		return nil, w.x.unknown(ctx, err)
	}
	switch {
	case a.status == http.StatusOK:
	case a.status == http.StatusRequestEntityTooLarge && len(now) > 1:
		w.bytes = body.Len() / 2
		return lines, nil
	case a.status == http.StatusRequestEntityTooLarge:
		w.errs[now[0].i] = semel.Permanent(fmt.Errorf("the document has %d bytes: the server, or what stands before it, takes no request of that size", body.Len()))
		return later, nil
	case a.status == http.StatusTooManyRequests:
		return lines, w.backOff(ctx, a)
	case a.status == http.StatusBadGateway || a.status == http.StatusServiceUnavailable || a.status == http.StatusGatewayTimeout:
		return nil, semel.Infrastructure(a.err())
	default:
		if err := a.refused(); err != nil {
			return nil, err
		}
		return nil, a.err()
	}
	again, err := w.sort(now, a)
	if err != nil {
		return nil, err
	}
	fault.Hit(Indexed)
	if len(again) > 0 {
		err = w.backOff(ctx, a)
	} else {
		w.pause = 0
	}
	return append(again, later...), err
}

// choose takes what one bulk may hold. With versions the server decides about
// two documents of one id, wherever they are; without, each waits for the one
// before it, and does not overtake one that failed.
func (w *writing) choose(lines []line) (now, later []line) {
	seen, size := map[string]bool{}, 0
	for n, l := range lines {
		if len(now) == w.x.cfg.MaxDocs || len(now) > 0 && size+len(l.text) > w.bytes {
			return now, append(later, lines[n:]...)
		}
		if w.x.cfg.Versions == NoVersions {
			if w.failed[l.id] {
				w.errs[l.i] = errors.New("a document before it, with the same id, was not written")
				continue
			}
			if seen[l.id] {
				later = append(later, l)
				continue
			}
			seen[l.id] = true
		}
		now, size = append(now, l), size+len(l.text)
	}
	return now, later
}

// bulk sends lines. The server stops waiting for shards before we do.
func (x *Index) bulk(ctx context.Context, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	patience := max(1, int64(x.cfg.Timeout/time.Second)/2)
	return x.send(ctx, http.MethodPost, fmt.Sprintf("/%s/_bulk?timeout=%ds&filter_path=items.*.status,items.*.error.type,items.*.error.reason",
		url.PathEscape(x.cfg.Index), patience), body)
}

// item is what the server says of one document.
type item struct {
	Status int
	Error  cause
}

// sort books what became of each document and returns those to send again.
func (w *writing) sort(sent []line, a answer) (again []line, err error) {
	var all struct{ Items []map[string]item }
	if err := json.Unmarshal(a.body, &all); err != nil || len(all.Items) != len(sent) {
		return nil, fmt.Errorf("the server answered for %d of %d documents", len(all.Items), len(sent))
	}
	for n, l := range sent {
		it := all.Items[n]["index"]
		told := fmt.Errorf("the server answered %d for the document%s", it.Status, it.Error.suffix())
		switch s := it.Status; {
		case s == http.StatusOK || s == http.StatusCreated:
			continue
		case s == http.StatusConflict && w.x.cfg.Versions != NoVersions:
			w.errs[l.i] = semel.ErrSuperseded
			continue
		case s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable:
			again = append(again, l)
			continue
		case it.Error.Type == "cluster_block_exception":
			return nil, semel.Infrastructure(fmt.Errorf("%w: writes are blocked, as they are while a disk is full", told))
		case s == http.StatusUnauthorized || s == http.StatusForbidden || it.Error.Type == "index_not_found_exception" || it.Error.Type == "index_closed_exception":
			return nil, semel.Fault(fmt.Errorf("%w: see to the index and to what this user may do", told))
		case s >= 400 && s < 500 && s != http.StatusConflict && s != http.StatusRequestTimeout:
			w.errs[l.i] = semel.Permanent(told)
		default:
			w.errs[l.i] = told
		}
		w.failed[l.id] = true
	}
	return again, nil
}

// backOff waits before what an overloaded server refused is sent again.
func (w *writing) backOff(ctx context.Context, a answer) error {
	w.pause = min(max(50*time.Millisecond, 2*w.pause), 2*time.Second)
	d := max(w.pause/2+rand.N(w.pause), a.after) //nolint:gosec // no secret
	if time.Now().Add(d).After(w.until) {
		return semel.Infrastructure(errors.New("the server is overloaded: it has refused documents for longer than the timeout"))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return semel.Infrastructure(fmt.Errorf("the server is overloaded: %w", ctx.Err()))
	}
}

// probeTime bounds the question whether the server is there.
const probeTime = 5 * time.Second

// unknown is the error of a bulk that nobody answered. If the server answers
// something else meanwhile, it is not the one that is out of order.
func (x *Index) unknown(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return semel.Infrastructure(cause)
	}
	ctx, cancel := context.WithTimeout(ctx, min(probeTime, x.cfg.Timeout))
	defer cancel()
	if a, err := x.send(ctx, http.MethodGet, "/", nil); err != nil || a.status >= 500 {
		return semel.Infrastructure(cause)
	}
	return cause
}
