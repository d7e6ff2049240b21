package search_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/searchstore"
	"github.com/semel-dev/semel/test/servers/servertest"
)

// place is an index of the test's own.
type place struct {
	t           testing.TB
	url, server string
	index       string
}

func newPlace(t testing.TB, address, settings string) place {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := place{t, address + "-index", "http://" + u.Host, strings.TrimPrefix(u.Path, "/") + "-index"}
	if u.Path == "" { // a server of the test's own
		p.url, p.index = address+"/index", "index"
	}
	p.do("PUT", "", settings, nil)
	return p
}

// do sends a request to the index, which must succeed, and decodes the answer.
func (p place) do(method, path, body string, out any) {
	p.t.Helper()
	if status, text := p.try(method, path, body); status >= 300 {
		p.t.Fatalf("%s %s: %d %s", method, path, status, text)
	} else if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p place) try(method, path, body string) (int, []byte) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, text
}

// doc is the source of a document; "" if there is none.
func (p place) doc(id string) string {
	p.t.Helper()
	status, text := p.try("GET", "/_doc/"+url.PathEscape(id), "")
	var d struct {
		Source json.RawMessage `json:"_source"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		p.t.Fatal(err)
	}
	if status == http.StatusNotFound {
		return ""
	}
	return string(d.Source)
}

func (p place) open(c searchstore.Config) *searchstore.Index {
	p.t.Helper()
	if c.URL == "" {
		c.URL = p.server
	}
	c.Index = p.index
	x, err := searchstore.Open(p.t.Context(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(x.Close)
	return x
}

func document(id string, version int64, source string) searchstore.Document {
	return searchstore.Document{ID: id, Version: semel.Version{N: version, Set: true}, Source: []byte(source)}
}

// outcomes are what became of n documents, in words; whole is the error about
// nobody.
func outcomes(n int, err error) (all []string, whole error) {
	all = make([]string, n)
	for i := range all {
		all[i] = "ok"
	}
	if !semel.EachAt(err, func(i int, err error) {
		switch class, marked := semel.ClassOf(err); {
		case errors.Is(err, semel.ErrSuperseded):
			all[i] = "superseded"
		case marked:
			all[i] = class.String()
		default:
			all[i] = "failed"
		}
	}) {
		return all, err
	}
	return all, nil
}

func write(t *testing.T, x *searchstore.Index, want string, docs ...searchstore.Document) error {
	t.Helper()
	err := x.Write(t.Context(), docs)
	got, whole := outcomes(len(docs), err)
	if whole != nil || strings.Join(got, " ") != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	return err
}

// The version decides, within a bulk and between bulks; 409 is no failure.
func TestVersions(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), "")
	x := p.open(searchstore.Config{})
	write(t, x, "ok ok superseded ok", document("a", 5, `{"n":5}`), document("b", 1, `{"n":1}`), document("b", 0, `{"n":0}`), document("b", 2, `{"n":2}`))
	write(t, x, "superseded ok", document("a", 4, `{"n":4}`), document("a", 5, `{"n":55}`))
	if a, b := p.doc("a"), p.doc("b"); a != `{"n":55}` || b != `{"n":2}` {
		t.Errorf("a %s, b %s", a, b)
	}
	first := p.open(searchstore.Config{Versions: searchstore.External})
	write(t, first, "superseded ok", document("a", 5, `{"n":555}`), document("a", 6, `{"n":6}`))
	if a := p.doc("a"); a != `{"n":6}` {
		t.Errorf("a %s", a)
	}
	write(t, x, "permanent permanent", searchstore.Document{ID: "a", Source: []byte(`{}`)}, document("a", -1, `{}`))
}

// Without versions whoever comes last wins, in the order of the call.
func TestNoVersions(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), `{"mappings":{"properties":{"n":{"type":"long"}}}}`)
	x := p.open(searchstore.Config{Versions: searchstore.NoVersions})
	write(t, x, "ok ok ok permanent failed", document("a", 3, `{"n":3}`), document("b", 1, `{"n":1}`), document("a", 2, `{"n":2}`),
		document("c", 1, `{"n":"x"}`), document("c", 2, `{"n":2}`))
	if a, c := p.doc("a"), p.doc("c"); a != `{"n":2}` || c != "" {
		t.Errorf("a %s, c %s", a, c)
	}
}

// The server forgets the version of a document that was really deleted; then an
// older message brings it back. One that is marked as deleted stays deleted.
func TestDeletesAreForgotten(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), `{"settings":{"index.gc_deletes":"1ms"}}`)
	x := p.open(searchstore.Config{})
	write(t, x, "ok ok", document("real", 1, `{"n":1}`), document("soft", 1, `{"n":1}`))
	p.do("DELETE", "/_doc/real?version=3&version_type=external_gte", "", nil)
	gone := document("soft", 3, "")
	gone.Deleted = true
	write(t, x, "ok", gone)
	// The server prunes when it refreshes, and its clock is coarse.
	for began := time.Now(); p.doc("real") == ""; time.Sleep(50 * time.Millisecond) {
		p.do("POST", "/_refresh", "", nil)
		if err := x.Write(t.Context(), []searchstore.Document{document("real", 2, `{"n":2}`)}); err != nil && !errors.Is(err, semel.ErrSuperseded) {
			if got, _ := outcomes(1, err); got[0] != "superseded" {
				t.Fatal(err)
			}
		}
		if time.Since(began) > time.Minute {
			t.Fatal("a deleted document was not brought back by an older version: is there no trap any more?")
		}
	}
	write(t, x, "superseded", document("soft", 2, `{"n":2}`))
	if s := p.doc("soft"); s != `{"deleted":true}` {
		t.Errorf("soft: %s", s)
	}
	write(t, x, "ok", document("soft", 4, `{"n":4}`))
	if s := p.doc("soft"); s != `{"n":4}` {
		t.Errorf("soft, made anew: %s", s)
	}
}

// What the server refuses of one document is that document's matter, and no
// error shows a value of it.
func TestItems(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), `{"mappings":{"dynamic":"strict","properties":{"n":{"type":"long"}}}}`)
	x := p.open(searchstore.Config{})
	hostile := "{\"n\":\n1}\n{\"index\":{\"_id\":\"smuggled\"}}\n{\"n\":1}"
	err := write(t, x, "ok permanent permanent permanent permanent permanent ok ok permanent",
		document("a", 1, "{\n \"n\" : 1\n}"), document("b", 1, `{"n":"hunter2"}`), document("c", 1, `{"m":"hunter2"}`),
		document("d", 1, hostile), document("e\xff", 1, `{"n":1}`), document("f", 1, `[1]`),
		document(strings.Repeat("é", 256), 1, `{"n":1}`), document("\"}}\n\u2028/../_x", 1, `{"n":7}`), document(strings.Repeat("x", 513), 1, `{"n":1}`))
	for _, want := range []string{"failed to parse field [n] of type [long]", "dynamic introduction of [m]", "not UTF-8", "513 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value is in %v", err)
	}
	if s := p.doc("smuggled"); s != "" {
		t.Errorf("a document came in the body of another: %s", s)
	}
	if s := p.doc("\"}}\n\u2028/../_x"); s != `{"n":7}` {
		t.Errorf("the odd id: %s", s)
	}
}

// What is not one index, or not a search server, is refused at start.
func TestRefused(t *testing.T) {
	p := newPlace(t, servertest.OpenSearch.Database(t), `{"settings":{"index.translog.durability":"async","index.number_of_replicas":0}}`)
	p.do("PUT", "/_alias/"+p.index+"-alias", "", nil)
	template := place{t, p.server + "/_index_template/" + p.index + "-stream", p.server, ""}
	template.do("PUT", "", `{"index_patterns":["`+p.index+`-stream*"],"data_stream":{},"priority":500}`, nil)
	stream := place{t, p.server + "/_data_stream/" + p.index + "-stream", p.server, ""}
	stream.do("PUT", "", "", nil)
	t.Cleanup(func() { stream.try("DELETE", "", ""); template.try("DELETE", "", "") })
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":{"number":"1.2"}}`) }))
	defer other.Close()
	for _, c := range []struct{ url, index, want string }{
		{p.server, p.index + "-alias", "alias"},
		{p.server, p.index + "-stream", "data stream"},
		{p.server, p.index + "-none", "create it"},
		{other.URL, p.index, "neither OpenSearch nor Elasticsearch"},
		{p.server, "Upper", "lower case"},
		{p.server, "a,b", "one index, not a pattern"},
		{strings.Replace(p.server, "//", "//u:hunter2@", 1), p.index, "credentials"},
	} {
		_, err := searchstore.Open(t.Context(), searchstore.Config{URL: c.url, Index: c.index})
		class, _ := semel.ClassOf(err)
		if err == nil || class != semel.ClassFault || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v (%s), want %q", c.index, err, class, c.want)
		}
	}
	x := p.open(searchstore.Config{})
	notes := strings.Join(x.Notes(), "\n")
	if !strings.Contains(notes, "async") || !strings.Contains(notes, "replicas") || !strings.HasPrefix(x.Server(), "OpenSearch 2.") {
		t.Errorf("%s; notes: %s", x.Server(), notes)
	}
}

// tap is a proxy that counts the answers of bulks, and may refuse to pass what
// tells the server's bounds.
type tap struct {
	*httptest.Server
	bulks, tooMany, tooLarge atomic.Int64
	before                   func(w http.ResponseWriter, r *http.Request) (done bool)
}

func newTap(t *testing.T, server string) *tap {
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ModifyResponse = func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/_bulk") {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.bulks.Add(1)
		p.tooMany.Add(int64(bytes.Count(body, []byte(`"status":429`))))
		if r.StatusCode == http.StatusRequestEntityTooLarge {
			p.tooLarge.Add(1)
		}
		return err
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding") // so that answers can be read
		if p.before == nil || !p.before(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// A worker is stopped with its bulk on the way; another one writes what is newer;
// then the bulk arrives. Without versions the old document comes back, which the
// test has to see.
func TestZombie(t *testing.T) {
	for versions, want := range map[searchstore.Versions]string{searchstore.ExternalGTE: `{"n":2}`, searchstore.NoVersions: `{"n":1}`} {
		p := newPlace(t, servertest.OpenSearch.Database(t), "")
		via := newTap(t, p.server)
		arrived, release := make(chan struct{}), make(chan struct{})
		via.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/_bulk") {
				close(arrived)
				<-release
			}
			return false
		}
		zombie, other := p.open(searchstore.Config{URL: via.URL, Versions: versions}), p.open(searchstore.Config{Versions: versions})
		done := make(chan error)
		go func() { done <- zombie.Write(t.Context(), []searchstore.Document{document("a", 1, `{"n":1}`)}) }()
		<-arrived
		write(t, other, "ok", document("a", 2, `{"n":2}`))
		close(release)
		err := <-done
		got, whole := outcomes(1, err)
		if superseded := got[0] == "superseded"; whole != nil || superseded != (versions == searchstore.ExternalGTE) {
			t.Errorf("versions %d: the late bulk: %v", versions, err)
		}
		if a := p.doc("a"); a != want {
			t.Errorf("versions %d: the document is %s, want %s", versions, a, want)
		}
	}
}

// The bounds are those of the server; where it does not tell them, its 413 does.
func TestTooLarge(t *testing.T) {
	s := servertest.OpenSearch.Start(t, servertest.Options{Args: []string{"--http.max_content_length=64kb"}})
	p := newPlace(t, s.URL(), "")
	var docs []searchstore.Document
	for i := range 40 {
		docs = append(docs, document(fmt.Sprint("d", i), 1, `{"text":"`+strings.Repeat("x", 8<<10)+`"}`))
	}
	docs[20].Source = []byte(`{"text":"` + strings.Repeat("x", 100<<10) + `"}`)
	for _, told := range []bool{true, false} {
		via := newTap(t, p.server)
		via.before = func(w http.ResponseWriter, r *http.Request) bool {
			if hidden := !told && r.URL.Path == "/_nodes/http"; hidden {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		}
		x := p.open(searchstore.Config{URL: via.URL})
		got, whole := outcomes(len(docs), x.Write(t.Context(), docs))
		for i, o := range got {
			if want := map[bool]string{true: "permanent"}[i == 20]; whole != nil || o != "ok" && o != want || i == 20 && o != want {
				t.Errorf("told %v: document %d: %s, %v", told, i, o, whole)
			}
		}
		if n := via.tooLarge.Load(); told && n != 1 || !told && n < 3 {
			t.Errorf("told %v: %d answers 413", told, n)
		}
	}
}

// A queue of one makes the server refuse items; only those are sent again.
func TestOverload(t *testing.T) {
	s := servertest.OpenSearch.Start(t, servertest.Options{Args: []string{"--thread_pool.write.queue_size=1", "--thread_pool.write.size=1"}})
	p := newPlace(t, s.URL(), `{"settings":{"index.number_of_shards":4}}`)
	via := newTap(t, p.server)
	x := p.open(searchstore.Config{URL: via.URL, MaxDocs: 20, Timeout: 2 * time.Minute})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			var docs []searchstore.Document
			for i := range 60 {
				docs = append(docs, document(fmt.Sprintf("w%dd%d", worker, i), 1, `{"n":1}`))
			}
			if err := x.Write(t.Context(), docs); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.do("POST", "/_refresh", "", nil)
	var n struct{ Count int }
	p.do("GET", "/_count", "", &n)
	if n.Count != 480 || via.tooMany.Load() == 0 {
		t.Errorf("%d documents, %d items refused: nothing was overloaded if none", n.Count, via.tooMany.Load())
	}
	t.Logf("%d bulks, %d items answered 429", via.bulks.Load(), via.tooMany.Load())
}

// A server that stays overloaded, or away, is nobody's fault.
func TestOutage(t *testing.T) {
	s := servertest.OpenSearch.Start(t, servertest.Options{})
	p := newPlace(t, s.URL(), "")
	via := newTap(t, p.server)
	x := p.open(searchstore.Config{URL: via.URL, Timeout: 2 * time.Second})
	infrastructure := func(what string) {
		t.Helper()
		err := x.Write(t.Context(), []searchstore.Document{document("a", 1, `{}`)})
		if class, _ := semel.ClassOf(err); class != semel.ClassInfrastructure {
			t.Errorf("%s: %v", what, err)
		}
	}
	for status, after := range map[int]string{http.StatusTooManyRequests: "1", http.StatusServiceUnavailable: ""} {
		via.before = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(status)
			return true
		}
		infrastructure(fmt.Sprint(status))
	}
	via.before = nil
	x = p.open(searchstore.Config{Timeout: 2 * time.Second})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	infrastructure("paused")
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	infrastructure("killed")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.do("GET", "/_count", "", nil)
	write(t, x, "ok", document("a", 1, `{}`))
	p.do("PUT", "/_settings", `{"index.blocks.read_only_allow_delete":true}`, nil)
	infrastructure("blocked")
	p.do("PUT", "/_settings", `{"index.blocks.read_only_allow_delete":null}`, nil)
	for status, want := range map[int]semel.Class{401: semel.ClassFault, 403: semel.ClassFault, 404: semel.ClassFault, 302: semel.ClassFault} {
		via.before = func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"type":"t","reason":"hunter2"}}`)
			return true
		}
		_, err := searchstore.Open(t.Context(), searchstore.Config{URL: via.URL, Index: p.index, APIKey: "hunter2"})
		if class, _ := semel.ClassOf(err); class != want || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%d: %v (%v)", status, err, class)
		}
	}
}
