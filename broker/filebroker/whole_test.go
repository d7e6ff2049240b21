package filebroker

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
)

var budget = broker.Budget{Messages: 100, Bytes: 1 << 20}

// bench is a queue in a directory of its own.
type dir struct {
	*testing.T
	root string
}

func newDir(t *testing.T) *dir {
	t.Helper()
	d := &dir{t, filepath.Join(t.TempDir(), "q")}
	if err := os.MkdirAll(d.at("inbox"), 0o777); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *dir) at(parts ...string) string { return filepath.Join(append([]string{d.root}, parts...)...) }

func (d *dir) put(name, body string) {
	d.Helper()
	d.write(d.at("inbox", name), body)
}

func (d *dir) write(path, body string) {
	d.Helper()
	if err := os.WriteFile(path, []byte(body), 0o666); err != nil {
		d.Fatal(err)
	}
}

// open opens the queue with quick timing; it is closed with the test.
func (d *dir) open(cfg Config) Queue {
	d.Helper()
	cfg.Root = d.root
	if cfg.Poll == 0 {
		cfg.Poll = time.Millisecond
	}
	q, err := Open(d.Context(), cfg)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { q.Close(context.Background()) })
	return q
}

func (d *dir) receive(q Queue) []semel.Delivery {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 10*time.Second)
	defer cancel()
	ds, err := q.Receive(ctx, budget)
	if err != nil {
		d.Fatalf("receive: %v", err)
	}
	return ds
}

// receiveN receives until there are n deliveries.
func (d *dir) receiveN(q Queue, n int) (all []semel.Delivery) {
	d.Helper()
	for len(all) < n {
		all = append(all, d.receive(q)...)
	}
	if len(all) != n {
		d.Fatalf("received %d deliveries, want %d: %q", len(all), n, bodies(all))
	}
	return all
}

func (d *dir) settle(q Queue, s ...broker.Settlement) []broker.Settled {
	d.Helper()
	out := make([]broker.Settled, len(s))
	if err := q.Settle(d.Context(), s, out); err != nil {
		d.Fatal(err)
	}
	return out
}

func (d *dir) ack(q Queue, ds ...semel.Delivery) {
	d.Helper()
	for i, got := range d.settle(q, acks(ds)...) {
		if got != broker.Done {
			d.Fatalf("ack of %v: %v, want Done", ds[i].Position, got)
		}
	}
}

// idle receives until nothing comes for some looks at the inbox.
func (d *dir) idle(q Queue) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 30*time.Millisecond)
	defer cancel()
	if ds, err := q.Receive(ctx, budget); err == nil {
		d.Fatalf("received %q, want nothing", bodies(ds))
	}
}

// tree lists the files below a stage, without the names of workers and claims.
func (d *dir) tree(stage string) []string {
	d.Helper()
	names := []string{}
	filepath.Walk(d.at(stage), func(path string, fi os.FileInfo, err error) error {
		if err == nil && !fi.IsDir() && fi.Name() != lockName {
			names = append(names, fi.Name())
		}
		return nil
	})
	slices.Sort(names)
	return names
}

func (d *dir) want(stage string, names ...string) {
	d.Helper()
	slices.Sort(names)
	if got := d.tree(stage); !slices.Equal(got, names) {
		d.Errorf("%s holds %q, want %q", stage, got, names)
	}
}

func acks(ds []semel.Delivery) []broker.Settlement {
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i].Lease = ds[i].Lease
	}
	return s
}

func bodies(ds []semel.Delivery) []string {
	b := make([]string, len(ds))
	for i := range ds {
		b[i] = string(ds[i].Body)
	}
	return b
}

// crash ends a queue as kill -9 would: the lock is free, nothing else happens.
func crash(q Queue) {
	c := coreOf(q)
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	close(c.quit)
	c.recv.Lock()
	defer c.recv.Unlock()
	c.me.halt()
	c.me.lock.Close()
}

func coreOf(q Queue) *core {
	if l, ok := q.(*lines); ok {
		return l.core
	}
	return q.(*whole).core
}

func TestWholeFilesGoToDone(t *testing.T) {
	d := newDir(t)
	for i := range 5 {
		d.put(fmt.Sprintf("m%d.json", i), fmt.Sprintf("body %d", i))
	}
	q := d.open(Config{})
	ds := d.receiveN(q, 5)
	for i, x := range ds {
		if got, want := string(x.Body), fmt.Sprintf("body %d", i); got != want {
			t.Errorf("delivery %d: body %q, want %q", i, got, want)
		}
		if x.Position.Scope.Name != fmt.Sprintf("m%d.json", i) || x.Position.Scope.Incarnation == "" {
			t.Errorf("delivery %d: position %v", i, x.Position)
		}
	}
	d.ack(q, ds...)
	d.want("done", "m0.json", "m1.json", "m2.json", "m3.json", "m4.json")
	d.want("inbox")
	d.want("processing")
	if depth, err := q.(broker.Measurer).Depth(t.Context()); err != nil || !depth.Empty() {
		t.Errorf("depth %+v, %v; want empty", depth, err)
	}
	if got := d.settle(q, acks(ds)...); slices.ContainsFunc(got, func(s broker.Settled) bool { return s != broker.Stale }) {
		t.Errorf("second settlement: %v, want all stale", got)
	}
}

func TestWholeRejectWritesSidecar(t *testing.T) {
	d := newDir(t)
	d.put("bad.json", "{")
	q := d.open(Config{Consumer: "orders"})
	ds := d.receiveN(q, 1)
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L1", Why: "no id"})
	d.want("error", "bad.json", "bad.json.semel.json")
	s, err := readSidecar(d.at("error", "bad.json.semel.json"))
	if err != nil || s.Letter != "L1" || s.Why != "no id" || s.Consumer != "orders" || s.File != "bad.json" {
		t.Errorf("sidecar %+v, %v", s, err)
	}

	// A person moves it back: it returns as that letter, until it is settled.
	if err := os.Rename(d.at("error", "bad.json"), d.at("inbox", "bad.json")); err != nil {
		t.Fatal(err)
	}
	ds = d.receiveN(q, 1)
	if ds[0].Returns != "L1" {
		t.Errorf("returns %q, want L1", ds[0].Returns)
	}
	crash(q)
	q = d.open(Config{})
	ds = d.receiveN(q, 1)
	if ds[0].Returns != "L1" || ds[0].Takeover != semel.Crashed {
		t.Errorf("after a crash: returns %q takeover %v, want L1 and crashed", ds[0].Returns, ds[0].Takeover)
	}
	d.ack(q, ds...)
	d.want("error")
	d.want("processing")
	d.put("bad.json", "other")
	if ds = d.receiveN(q, 1); ds[0].Returns != "" {
		t.Errorf("a new file of that name returns %q, want nothing", ds[0].Returns)
	}
}

func TestWholeSameNameNeverReplaces(t *testing.T) {
	d := newDir(t)
	q := d.open(Config{})
	for i := range 12 {
		d.put("a.json", fmt.Sprint(i))
		d.ack(q, d.receiveN(q, 1)...)
	}
	if got := d.tree("done"); len(got) != 12 || got[0] != "a.1.json" {
		t.Errorf("done holds %q, want a.json and eleven numbered ones", got)
	}
	seen := map[string]bool{}
	for _, name := range d.tree("done") {
		b, _ := os.ReadFile(d.at("done", name))
		seen[string(b)] = true
	}
	if len(seen) != 12 {
		t.Errorf("%d different contents in done, want 12", len(seen))
	}
}

func TestReleaseAndClose(t *testing.T) {
	d := newDir(t)
	d.put("a", "1")
	d.put("b", "2")
	q := d.open(Config{})
	ds := d.receiveN(q, 2)
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Release})
	again := d.receiveN(q, 1)
	if string(again[0].Body) != "1" || again[0].Lease == ds[0].Lease {
		t.Errorf("after release: %q lease %v", again[0].Body, again[0].Lease)
	}
	if got := d.settle(q, broker.Settlement{Lease: ds[0].Lease}); got[0] != broker.Stale {
		t.Errorf("old lease: %v, want stale", got[0])
	}
	if got := d.settle(q, broker.Settlement{Lease: again[0].Lease, Verb: broker.Retry}); got[0] != broker.Unsupported {
		t.Errorf("retry: %v, want unsupported", got[0])
	}
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want("inbox", "a", "b")
	if left, _ := os.ReadDir(d.at("processing")); len(left) != 0 {
		t.Errorf("processing holds %v after Close", left)
	}
	if _, err := q.Receive(t.Context(), budget); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
}

// positions is an owner that remembers like a fence table.
type positions struct {
	mu    sync.Mutex
	next  map[semel.Scope]semel.Offset
	log   []string
	kinds []semel.Takeover
	fail  error
}

func (p *positions) Assigned(_ context.Context, as []broker.Assignment) ([]semel.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return nil, p.fail
	}
	offs := make([]semel.Offset, len(as))
	for i, a := range as {
		offs[i] = p.next[a.Scope]
		p.log = append(p.log, "assigned "+a.Scope.Name)
		p.kinds = append(p.kinds, a.Takeover)
	}
	return offs, nil
}

func (p *positions) Revoked(_ context.Context, ss []semel.Scope) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range ss {
		p.log = append(p.log, "revoked "+s.Name)
	}
	return p.fail
}

func (p *positions) Lost(ss []semel.Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range ss {
		p.log = append(p.log, "lost "+s.Name)
	}
}

func (p *positions) decide(ds ...semel.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range ds {
		p.next[d.Position.Scope] = d.Next
	}
}

func newPositions() *positions { return &positions{next: map[semel.Scope]semel.Offset{}} }

func (d *dir) openLines(cfg Config, p *positions) Queue {
	d.Helper()
	cfg.Files = Lines
	return d.openParts(cfg, p)
}

func (d *dir) openParts(cfg Config, p *positions) Queue {
	d.Helper()
	q := d.open(cfg)
	if p != nil {
		q.(broker.Owned).Bind(p)
	}
	return q
}

func TestLinesHappyPath(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "one\n\n  \ntwo\r\nthree")
	d.put("empty.ndjson", "")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 3)
	var got []string
	for _, x := range ds {
		got = append(got, fmt.Sprintf("%s@%d-%d", x.Body, x.Position.Lo, x.Next.Lo))
	}
	if want := []string{"one@0-4", "two\r@8-13", "three@13-18"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	p.decide(ds...)
	d.ack(q, ds...)
	d.idle(q)
	d.want("done", "a.ndjson", "empty.ndjson")
	d.want("processing")
	if got := strings.Join(p.log, ","); got != "assigned a.ndjson,assigned empty.ndjson,revoked a.ndjson,revoked empty.ndjson" && got != "assigned a.ndjson,assigned empty.ndjson,revoked empty.ndjson,revoked a.ndjson" {
		t.Errorf("owner was told %q", got)
	}
}

func TestLinesTakeoverReadsFromNext(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "one\ntwo\nthree\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 3)
	p.decide(ds[:2]...)
	d.ack(q, ds[:2]...)
	crash(q)

	q = d.openLines(Config{}, p)
	again := d.receiveN(q, 1)
	if string(again[0].Body) != "three" || again[0].Position != ds[2].Position {
		t.Errorf("after takeover %q at %v, want three at %v", again[0].Body, again[0].Position, ds[2].Position)
	}
	if p.kinds[1] != semel.Crashed {
		t.Errorf("takeover %v, want crashed", p.kinds[1])
	}
	p.decide(again...)
	d.ack(q, again...)
	d.idle(q)
	d.want("done", "a.ndjson")
}

func TestLinesRejectCopiesTheLine(t *testing.T) {
	d := newDir(t)
	d.put("a.ndjson", "one\nbad\nthree\n")
	p := newPositions()
	q := d.openLines(Config{}, p)
	ds := d.receiveN(q, 3)
	d.ack(q, ds[0], ds[2])
	d.settle(q, broker.Settlement{Lease: ds[1].Lease, Verb: broker.Reject, Letter: "L7", Why: "bad"})
	d.idle(q)
	d.want("done", "a.ndjson")
	d.want("error", "a.4.ndjson", "a.4.ndjson.semel.json")
	if b, _ := os.ReadFile(d.at("error", "a.4.ndjson")); string(b) != "bad\n" {
		t.Errorf("copied line %q, want %q", b, "bad\n")
	}
}

func zipped(tb testing.TB, body []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// reports collects what Config.Report is told.
type reports struct {
	mu    sync.Mutex
	last  map[string]error
	times map[string]int
}

func newReports() *reports { return &reports{last: map[string]error{}, times: map[string]int{}} }

func (r *reports) add(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[name] = err
	r.times[name]++
}

func (r *reports) of(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[name]
}

func (r *reports) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times[name]
}
