package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain é 😀":      "plain é 😀",
		"two\nlines":     "two\nlines",
		"\x1b[31m":       `\x1b[31m`,
		"a\rb\tc\x00":    `a\rb\tc\x00`,
		"\xff\xfe":       `\xff\xfe`,
		"\u202e":         `\u202e`,
		"back\\slash'\"": "back\\slash'\"",
	} {
		if got := printable(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := line("a\nb\x1b"+strings.Repeat("é", 20), 10); got != `a | b\x1b…` {
		t.Errorf("line: %q", got)
	}
}

func TestNumbersAndTimes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for d, want := range map[time.Duration]string{
		340 * time.Millisecond: "340 ms", 2300 * time.Millisecond: "2.3 s", 42 * time.Second: "42 s", 250 * time.Second: "4 m 10 s",
		185 * time.Minute: "3 h 5 m", 292 * time.Hour: "12 d 4 h", -time.Minute: "-1 m 0 s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
	if counted(1, "file") != "1 file" || counted(1000, "file") != "1,000 files" {
		t.Error("counted")
	}
}

func TestCauseLeavesOutWhatIsToldAnyway(t *testing.T) {
	for s, want := range map[string]string{
		"handle: a-1: no such row\nno such row": "no such row",
		"decode: f.json@1:0: not JSON":          "not JSON",
		"something else":                        "something else",
	} {
		if got := cause(s, "a-1", "f.json@1:0"); got != want {
			t.Errorf("%q: %q", s, got)
		}
	}
}

func TestProgress(t *testing.T) {
	var w bytes.Buffer
	p := &progress{name: "orders", w: &w, width: 30}
	began := time.Now()
	p.at = began
	var a semel.Account
	a.Received = 12000
	a.Count(semel.Applied, 10000)
	a.Count(semel.Duplicate, 2000)
	p.depth, p.sized = broker.Depth{Waiting: 12_003}, true // before anything was done
	p.pace(a, began.Add(2*time.Second))
	if got, want := p.text(a, 2*time.Second), "12,000 done  6,000/s  applied 10,000  duplicate 2,000  3 in the source  2.0 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.update(a, began.Add(3*time.Second), 3*time.Second)
	if got, want := w.String(), "\r\x1b[Korders  12,000 done  3,000/s "; got != want {
		t.Errorf("live line %q, want %q", got, want)
	}
	w.Reset()
	p.say("hello")
	p.say("again")
	if got := w.String(); got != "\r\x1b[Korders: hello\norders: again\n" {
		t.Errorf("%q: a line has to replace the live one", got)
	}
}

func TestProgressTellsWhatPeopleHaveToKnow(t *testing.T) {
	var w bytes.Buffer
	p := &progress{name: "orders", w: &w}
	o := p.observer()
	o.Failed(semel.Failure{ID: "a", Err: errors.New("x"), Verdict: semel.Parked})
	o.Paused(errors.New("disk full"))
	o.Paused(errors.New("disk full"))
	o.Paused(nil)
	p.say("not yet")
	o.Paused(nil)
	o.Scope(semel.Scope{Name: "f"}, "assigned", nil)
	o.Scope(semel.Scope{Name: "f"}, "lost", errors.New("taken over"))
	o.Unsettled(2, errors.New("gone"))
	for range toldDeaths + 3 {
		o.Failed(semel.Failure{ID: "d\x1b", Err: errors.New("bad"), Verdict: semel.Dead})
	}
	want := "orders: paused, nothing is taken until the store works again: disk full\n" +
		"orders: not yet\n" +
		"orders: it works again\n" +
		"orders: f lost: taken over\n" +
		"orders: 2 messages not settled: gone; they come again and are found\n" +
		strings.Repeat(`orders: dead letter: d\x1b: bad`+"\n", toldDeaths-1) +
		`orders: dead letter: d\x1b: bad; more are counted only` + "\n"
	if w.String() != want {
		t.Errorf("%s\nwant\n%s", w.String(), want)
	}
}

// TestRecords: where no person looks on, everything is a record, and with --log
// nothing else is.
func TestRecords(t *testing.T) {
	for _, tell := range []telling{{level: "info"}, {log: "text", level: "info"}, {log: "json", level: "warn"}} {
		var w bytes.Buffer
		p := newProgress("orders", &w, tell)
		began := time.Now()
		p.at = began
		p.depth, p.sized = broker.Depth{Waiting: 11}, true
		var a semel.Account
		a.Received = 9
		a.Count(semel.Applied, 8)
		p.update(a, began.Add(2*time.Second), 2*time.Second)
		p.observer().Failed(semel.Failure{ID: "d\x1b", Err: errors.New("bad"), Verdict: semel.Dead, Reason: "permanent"})
		said := p.broke(errors.New("disk full"))
		want := []string{`level=INFO msg=progress pipeline=orders done=8 per_second=4 applied=8 in_source=3`,
			`level=WARN msg="dead letter" pipeline=orders message_id=d\x1b origin="" class=transient reason=permanent attempt=0 error=bad`}
		switch tell.log {
		case "text":
			want = append(want, `level=ERROR msg="the run ended by a fault" pipeline=orders error="disk full"`)
		case "json":
			want = []string{`"level":"WARN","msg":"dead letter","pipeline":"orders","message_id":"d\\x1b","origin":"","class":"transient","reason":"permanent","attempt":0,"error":"bad"}`,
				`"level":"ERROR","msg":"the run ended by a fault","pipeline":"orders","error":"disk full"}`}
		}
		lines := strings.Split(strings.TrimSpace(w.String()), "\n")
		for i, line := range lines {
			if len(lines) != len(want) || !strings.HasSuffix(line, want[i]) {
				t.Errorf("%+v: %s\nwant\n%s", tell, w.String(), strings.Join(want, "\n"))
				break
			}
		}
		if said != (tell.log != "") {
			t.Errorf("%+v: the fault was said: %t", tell, said)
		}
	}
}

func TestTellingFlags(t *testing.T) {
	for _, tc := range []struct {
		tell telling
		want string
	}{
		{telling{level: "info"}, ""},
		{telling{level: "DEBUG", log: "json", http: "127.0.0.1:9465"}, ""},
		{telling{level: "info", http: ":0"}, ""},
		{telling{level: "info", http: "[::1]:9465"}, ""},
		{telling{level: "loud"}, "--log-level loud"},
		{telling{level: "info", log: "xml"}, "--log xml"},
		{telling{level: "info", http: "9465"}, "--http 9465"},
		{telling{level: "info", http: "localhost:"}, "--http localhost:"},
	} {
		err := tc.tell.check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.tell, err, tc.want)
		}
	}
}

// TestMonitoredAddress: without a host it is this machine alone; others are
// named with what that means.
func TestMonitoredAddress(t *testing.T) {
	for http, want := range map[string]string{
		":0":        "orders: metrics and health: http://127.0.0.1:",
		"0.0.0.0:0": "orders: metrics and health, without a password for everybody who can reach this address: http://",
	} {
		var w bytes.Buffer
		m, err := (&telling{http: http}).monitored("orders", &progress{name: "orders", w: &w})
		if err != nil {
			t.Fatal(err)
		}
		m.close()
		if !strings.HasPrefix(w.String(), want) {
			t.Errorf("%s: %q, want %q", http, w.String(), want)
		}
	}
	var none *monitor
	none.close()
}

func TestCodeOfARun(t *testing.T) {
	whole := func(v semel.Verdict) (a semel.Account) {
		a.Received = 1
		a.Count(v, 1)
		return a
	}
	letters := func(s store.State) store.Status { return store.Status{Letters: map[store.State]int64{s: 1}} }
	off := store.Status{Imbalances: []store.Imbalance{{Account: "applied"}}}
	for name, tc := range map[string]struct {
		r    result
		want int
	}{
		"drained":                {result{drained: true, looked: true, account: whole(semel.Applied)}, exitDone},
		"dead":                   {result{drained: true, looked: true, status: letters(store.StateDead)}, exitDead},
		"edited":                 {result{drained: true, looked: true, status: letters(store.StateEdited)}, exitDead},
		"retry":                  {result{drained: true, looked: true, status: letters(store.StateRetry)}, exitWaiting},
		"held":                   {result{drained: true, looked: true, status: letters(store.StateHeld)}, exitWaiting},
		"applied letter":         {result{drained: true, looked: true, status: letters(store.StateApplied)}, exitDone},
		"interrupted":            {result{drained: true, looked: true, interrupted: true, left: 1}, exitWaiting},
		"interrupted at the end": {result{drained: true, looked: true, interrupted: true}, exitDone},
		"service stopped":        {result{looked: true, interrupted: true, left: 5, status: letters(store.StateDead)}, exitDone},
		"process off":            {result{looked: true, account: semel.Account{Received: 1}}, exitImbalanced},
		"tables off":             {result{drained: true, looked: true, status: off}, exitImbalanced},
		"not looked":             {result{drained: true}, exitImbalanced},
		"fault":                  {result{fault: errors.New("x"), status: off}, exitFault},
	} {
		if got := tc.r.code(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
