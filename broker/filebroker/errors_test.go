package filebroker

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/semel-dev/semel/broker"
)

// TestMissingStage: a stage that is gone is the operator's business; the
// settlement waits for it.
func TestMissingStage(t *testing.T) {
	d := newDir(t)
	d.put("a", "1")
	d.put("b", "2")
	rep := newReports()
	q := d.open(Config{Report: rep.add})
	ds := d.receiveN(q, 2)
	for _, stage := range []string{"done", "error"} {
		if err := os.Remove(d.at(stage)); err != nil {
			t.Fatal(err)
		}
	}
	got := d.settle(q, broker.Settlement{Lease: ds[0].Lease}, broker.Settlement{Lease: ds[1].Lease, Verb: broker.Reject, Letter: "L"})
	if got[0] != broker.Unknown || got[1] != broker.Unknown {
		t.Errorf("answers %v, want unknown", got)
	}
	if !errors.Is(rep.of("a"), fs.ErrNotExist) {
		t.Errorf("reported %v", rep.of("a"))
	}
	for _, stage := range []string{"done", "error"} {
		if err := os.Mkdir(d.at(stage), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	d.idle(q)
	d.want("done", "a")
	d.want("error", "b", "b.semel.json")
	d.want("processing")
}

// TestSettleAgainWhileStuck: the pipeline may repeat a settlement, or change
// its mind and release.
func TestSettleAgainWhileStuck(t *testing.T) {
	d := newDir(t)
	d.put("a", "1")
	d.put("b", "2")
	q := d.open(Config{Poll: 1e9})
	ds := d.receiveN(q, 2)
	if err := os.Remove(d.at("done")); err != nil {
		t.Fatal(err)
	}
	for _, got := range d.settle(q, acks(ds)...) {
		if got != broker.Unknown {
			t.Errorf("answer %v, want unknown", got)
		}
	}
	if got := d.settle(q, broker.Settlement{Lease: ds[1].Lease, Verb: broker.Release}); got[0] != broker.Done {
		t.Errorf("release: %v", got)
	}
	if err := os.Mkdir(d.at("done"), 0o777); err != nil {
		t.Fatal(err)
	}
	d.ack(q, ds[0])
	again := d.receiveN(q, 1)
	if string(again[0].Body) != "2" {
		t.Errorf("released: %q", again[0].Body)
	}
	d.ack(q, again...)
	d.want("done", "a", "b")
}

// TestSidecarMovedAlong: a person moves file and sidecar to inbox/ together.
func TestSidecarMovedAlong(t *testing.T) {
	d := newDir(t)
	d.put("a.json", "bad")
	q := d.open(Config{})
	d.settleReject(q)
	for _, name := range []string{"a.json.semel.json", "a.json"} {
		if err := os.Rename(d.at("error", name), d.at("inbox", name)); err != nil {
			t.Fatal(err)
		}
	}
	ds := d.receiveN(q, 1)
	if ds[0].Returns != "L1" {
		t.Errorf("returns %q, want L1", ds[0].Returns)
	}
	d.ack(q, ds...)
	d.want("inbox")
	d.want("error")
	d.want("done", "a.json")
}

func (d *dir) settleReject(q Queue) {
	d.Helper()
	ds := d.receiveN(q, 1)
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L1", Why: "bad"})
}

// TestReturnedAndRejectedAgain: the sidecar names the newer letter then.
func TestReturnedAndRejectedAgain(t *testing.T) {
	d := newDir(t)
	d.put("a", "bad")
	q := d.open(Config{})
	d.settleReject(q)
	if err := os.Rename(d.at("error", "a"), d.at("inbox", "a")); err != nil {
		t.Fatal(err)
	}
	ds := d.receiveN(q, 1)
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L2", Why: "still bad"})
	d.want("error", "a", "a.semel.json")
	if s, err := readSidecar(d.at("error", "a.semel.json")); err != nil || s.Letter != "L2" {
		t.Errorf("sidecar %+v, %v", s, err)
	}
	d.want("processing")
}

// TestNewFileBesideADeadOne: the same name arrives while error/ holds one: it
// is not that one coming back.
func TestNewFileBesideADeadOne(t *testing.T) {
	d := newDir(t)
	d.put("a", "bad")
	q := d.open(Config{})
	d.settleReject(q)
	d.put("a", "new")
	ds := d.receiveN(q, 1)
	if ds[0].Returns != "" {
		t.Errorf("returns %q, want nothing", ds[0].Returns)
	}
	d.settle(q, broker.Settlement{Lease: ds[0].Lease, Verb: broker.Reject, Letter: "L2", Why: "bad too"})
	d.want("error", "a", "a.semel.json", "a.1", "a.1.semel.json")
}

// TestForeignSidecar: what is not ours to read means nothing and breaks
// nothing.
func TestForeignSidecar(t *testing.T) {
	d := newDir(t)
	if err := os.MkdirAll(d.at("error"), 0o777); err != nil {
		t.Fatal(err)
	}
	d.write(d.at("error", "a.semel.json"), "{not json")
	d.put("a", "x")
	rep := newReports()
	q := d.open(Config{Report: rep.add})
	ds := d.receiveN(q, 1)
	if ds[0].Returns != "" || rep.of("a") == nil {
		t.Errorf("returns %q, reported %v", ds[0].Returns, rep.of("a"))
	}
	d.ack(q, ds...)
	d.want("done", "a")
	d.want("processing")
}

func TestDeleteWhenDone(t *testing.T) {
	d := newDir(t)
	d.put("a", "1\n")
	q := d.open(Config{Done: Delete})
	d.ack(q, d.receiveN(q, 1)...)
	d.put("b", "2\n")
	q.Close(t.Context())
	q = d.openLines(Config{Done: Delete}, newPositions())
	d.ack(q, d.receiveN(q, 1)...)
	d.idle(q)
	for _, stage := range []string{"inbox", "processing", "done", "error"} {
		d.want(stage)
	}
}
