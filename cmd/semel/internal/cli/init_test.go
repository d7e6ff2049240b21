package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // to count rows

	"github.com/semel-dev/semel/cmd/semel/internal/draft"
)

// newDraft is a directory without a pipeline file.
func newDraft(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, "")
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	return b
}

// orders delivers 30 events of 10 orders, three of them twice.
func (b *bench) orders(dir string) {
	b.t.Helper()
	for i := range 33 {
		n := i % 30
		b.write(fmt.Sprintf("%s/%02d.json", dir, i), fmt.Sprintf("{\n \"event_id\":\"e-%d-x\",\"order\":{\"id\":\"o%d\",\"revision\":%d},\"user\":\"u%d\",\"total\":%d.5}\n", n*37, n%10, n/10, n%3, n))
	}
}

func (b *bench) rows(db, table string) (n int) {
	b.t.Helper()
	d, err := sql.Open("sqlite", filepath.Join(b.dir, db))
	if err != nil {
		b.t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

const initFlags = " --source DIR/q --store DIR/orders.db --name orders"

func (b *bench) init(code int, line string, parts ...string) string {
	b.t.Helper()
	return b.want(code, strings.ReplaceAll("init FILE "+line, "DIR", b.dir), parts...)
}

func TestInitWritesWhatRuns(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	b.init(exitDone, "--yes"+initFlags, "looked at 33 messages in 33 files of DIR/q",
		"id       .event_id", "key      .order.id", "version  .order.revision",
		"repeats 3 times, each time with the same\n     content", "not .order.id: it repeats 20 times with other content",
		"of 33 messages in the sample would be: 30 applied, 3 recognised as repeats",
		"semel run DIR/p.yaml --check\n  semel run DIR/p.yaml --once\n")
	b.want(exitDone, "run FILE --check", "source    usable", "store     usable", "handler   usable")
	b.want(exitDone, "run FILE --once", "received              33", "applied               30", "duplicates             3")
	if n := b.rows("orders.db", "orders"); n != 10 {
		t.Errorf("%d rows, want one for each of the 10 orders", n)
	}
	text, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"id: .event_id\n", "  # Present in all 33 messages", "total", "REAL", "keep: 30d", "inbox: table"} {
		if !strings.Contains(string(text), s) {
			t.Errorf("%q is missing in\n%s", s, text)
		}
	}
}

func TestInitByFlags(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	b.init(exitDone, "--id .event_id --key - --table seen"+initFlags, "30 applied")
	b.want(exitDone, "run FILE --once", "applied               30")
	if n := b.rows("orders.db", "seen"); n != 30 {
		t.Errorf("%d rows, want one for each of the 30 events", n)
	}
	b.init(exitDone, "--force --id .event_id --key .user --version .order.revision"+initFlags, "ties: 21 messages", "the larger id wins")
	b.want(exitDone, "run FILE --once --name ties --store sqlite:"+b.dir+"/ties.db", "received")
}

func TestInitRefuses(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	b.write("there.yaml", "mine")
	b.write("notes.txt", strings.Repeat("not a database", 100))
	b.write("empty.json", "")
	for line, say := range map[string]string{
		"init DIR/there.yaml --source DIR/q --yes":                               "there.yaml is there already and stays as it is: name another file, or --force replaces it",
		"init DIR/q --source DIR/q --yes":                                        "q is a directory: name a file",
		"init DIR/no/p.yaml --source DIR/q --yes":                                "the directory does not exist",
		"init FILE --yes":                                                        "--source is missing",
		"init FILE --source DIR/q":                                               "--id is missing",
		"init FILE --source DIR/q ":                                              "Proposed is .event_id: state it, or --yes",
		"init FILE --source DIR/elsewhere --yes":                                 "Name messages to look at with --sample",
		"init FILE --source DIR/q --id .a|":                                      "--id: the jq expression ends early",
		"init FILE --source DIR/q --id -":                                        "--id '$meta.file'",
		"init FILE --source DIR/q --id 1":                                        "message.id is the same for all messages",
		"init FILE --source DIR/q --id .event_id --version .order.revision":      "--key is missing",
		"init FILE --source DIR/q --id .x --as float":                            "--as float: integer or time",
		"init FILE --source DIR/q --id .x --table semel_inbox":                   "belong to semel",
		"init FILE --source DIR/q --id .x --table a-b":                           "letters, digits and _",
		"init FILE --source kafka:x --id .x":                                     "this build has no \"kafka\"",
		"init FILE --source DIR/q --id .x --store postgres:x":                    "SQL for SQLite",
		"init FILE --source DIR/q --yes --store DIR/no/x.db":                     "the directory DIR/no does not exist (create it",
		"init FILE --source DIR/q --yes --store DIR/notes.txt":                   "it is not a SQLite database",
		"init FILE --source DIR/q/inbox --yes --store DIR/a.db":                  "parent",
		"init FILE --source DIR/notes.txt --id .x --store DIR/a.db":              "it is not a directory",
		"init FILE --source DIR/q --sample DIR/nowhere --yes":                    "no such file",
		"init FILE --source DIR/q --sample DIR/empty.json --yes":                 "the body is empty",
		"init FILE --source DIR/q --sample DIR/notes.txt --yes --store DIR/a.db": "none of 1 message is JSON",
	} {
		b.want(exitUsage, strings.ReplaceAll(line, "DIR", b.dir), say)
		if _, err := os.Stat(b.file); err == nil {
			t.Fatalf("%s: something was written", line)
		}
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "there.yaml")); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there: %q, %v", text, err)
	}
}

// TestInitLosesTheRace: a file that appears while questions are answered stays
// as it is.
func TestInitLosesTheRace(t *testing.T) {
	b := newDraft(t)
	b.write("p.yaml", "mine")
	w := wizard{app: &app{}, file: b.file, result: initResult{text: "ours"}}
	if err := w.publish(); err == nil || !strings.Contains(err.Error(), "has appeared meanwhile") || w.result.Written {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(b.file); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestInitForce replaces what is in a file: its permissions stay, a link still
// leads there, and what is no file of data is left alone.
func TestInitForce(t *testing.T) {
	b := newDraft(t)
	b.write("there.yaml", "mine")
	b.orders("q/inbox")
	there, link := filepath.Join(b.dir, "there.yaml"), filepath.Join(b.dir, "link.yaml")
	if err := errors.Join(os.Chmod(there, 0o600), os.Symlink(there, link), os.Symlink(filepath.Join(b.dir, "nowhere"), filepath.Join(b.dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	b.want(exitDone, strings.ReplaceAll("init DIR/link.yaml --source DIR/q --store DIR/x.db --yes --force", "DIR", b.dir))
	if to, err := os.Readlink(link); err != nil || to != there {
		t.Errorf("the link: %q, %v", to, err)
	}
	fi, err := os.Stat(there)
	if err != nil || fi.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", fi, err)
	}
	if text, err := os.ReadFile(there); err != nil || !strings.HasPrefix(string(text), "# Written by semel init") {
		t.Errorf("%q, %v", text, err)
	}
	socket := filepath.Join(b.dir, "s") // never one of the machine's devices: a test may run as root
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{socket, filepath.Join(b.dir, "dangling")} {
		b.want(exitUsage, "init "+name+strings.ReplaceAll(" --source DIR/q --store DIR/x.db --yes --force", "DIR", b.dir), "is no regular file")
	}
}

func TestInitDryRunChangesNothing(t *testing.T) {
	b := newDraft(t)
	b.write("there.yaml", "mine")
	b.orders(".")
	out := b.want(exitDone, strings.ReplaceAll("init DIR/there.yaml --dry-run --yes --sample DIR/01.json --source DIR/new --store DIR/x.db", "DIR", b.dir))
	if !strings.HasPrefix(out, "# Written by semel init") || strings.Contains(out, "proposals") {
		t.Errorf("standard output is not the file:\n%s", out)
	}
	for _, name := range []string{"new", "x.db"} {
		if _, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "there.yaml")); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there: %q, %v", text, err)
	}
	var r initResult
	if err := json.Unmarshal([]byte(b.want(exitDone, strings.ReplaceAll("init FILE --dry-run --json --yes --sample DIR/01.json --source DIR/new --store DIR/x.db", "DIR", b.dir))), &r); err != nil {
		t.Fatal(err)
	}
	if r.Written || r.ID.Expr != ".event_id" || r.ID.By != "proposal" || len(r.ID.Candidates) == 0 || !strings.Contains(r.Text, "id: .event_id") || r.Tried["applied"] != 1 {
		t.Errorf("%+v", r)
	}
}

// TestInitAndTheSource: what is said and made where there is no inbox/ yet.
func TestInitAndTheSource(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	sample := " --sample " + filepath.Join(b.dir, "q", "inbox", "01.json") + " --store " + filepath.Join(b.dir, "a.db")
	b.want(exitDone, "init "+b.dir+"/1.yaml --source "+b.dir+"/new --id .event_id"+sample, "mkdir -p DIR/new/inbox\n")
	if _, err := os.Stat(filepath.Join(b.dir, "new")); err == nil {
		t.Error("a directory was made that nobody asked for")
	}
	b.want(exitDone, "init "+b.dir+"/2.yaml --source "+b.dir+"/new --yes"+sample, "new/inbox/ was created")
	b.want(exitDone, "run "+b.dir+"/2.yaml --once", "received               0")
	if err := os.Mkdir(filepath.Join(b.dir, "plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.orders("plain")
	b.write("plain/README.md", "other things lie about")
	b.want(exitDone, "init "+b.dir+"/3.yaml --id .event_id --source "+b.dir+"/plain --store "+b.dir+"/b.db",
		"30 applied", "the files lie in DIR/plain itself, and only those in inbox/ are taken", "mkdir -p DIR/plain/inbox\n  mv DIR/plain/*.json DIR/plain/inbox/\n")
}

// TestInitSeesChecksums: they are no messages, and say that files are complete.
func TestInitSeesChecksums(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	for i := range 33 {
		name := fmt.Sprintf("%02d.json", i)
		body, err := os.ReadFile(filepath.Join(b.dir, "q", "inbox", name))
		if err != nil {
			t.Fatal(err)
		}
		b.write("q/inbox/"+name+".sha256", fmt.Sprintf("%x  %s\n", sha256.Sum256(body), name))
	}
	b.write("q/inbox/07.json.sha256", strings.Repeat("0", 64))
	b.init(exitDone, "--dry-run --yes"+initFlags, "looked at 33 messages in 33 files of DIR/q", "\ncomplete: checksum")
	b.init(exitDone, "--yes"+initFlags, "looked at 33 messages")
	b.want(exitDone, "run FILE --dry-run", "33 messages would be read", "dead         inbox/07.json  the sha256 of the file is")
	b.write("q/inbox/late.json", `{"event_id":"late"}`)
	b.init(exitDone, "--dry-run --force --yes"+initFlags, "looked at 34 messages", "33 of 34 files in inbox/ have a checksum beside them")
}

// TestInitSaysWhatWouldFail and ends with 3: somebody has to look.
func TestInitSaysWhatWouldFail(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	b.write("q/inbox/00-broken.json", "{")
	b.init(exitDead, "--id .order.id"+initFlags, "20 set aside as conflicts", "3 recognised as repeats", "1 dead letter\n", "00-broken.json: not valid JSON at byte 1",
		"10.json: its id was there with other content", "wrote DIR/p.yaml")
	b.want(exitDead, "run FILE --once", "conflicts             20", "duplicates             3", "dead                   1")
}

// TestInitOnTablesThatAreThere: what does not fit the table is told before
// anything is written.
func TestInitOnTablesThatAreThere(t *testing.T) {
	b := newDraft(t)
	b.orders("q/inbox")
	b.exec("CREATE TABLE orders (event_id TEXT PRIMARY KEY)")
	b.init(exitUsage, "--yes"+initFlags, "orders has no column named")
	b.exec("CREATE TABLE small (order_id TEXT PRIMARY KEY, order_revision INTEGER, event_id TEXT, user TEXT, total REAL CHECK (total < 20))")
	b.init(exitDead, "--yes --table small"+initFlags, "10 dead letters", "CHECK constraint failed")
}

// TestWhateverIsWrittenRuns: of any messages, init writes a file that run takes
// and that does to all messages what init said.
func TestWhateverIsWrittenRuns(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			b, r := newDraft(t), rand.New(rand.NewPCG(seed, 1))
			deliverRandom(b, r)
			var init initResult
			if err := json.Unmarshal([]byte(b.init(exitDone, "--yes --json"+initFlags)), &init); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(b.file)
			if err != nil {
				t.Fatal(err)
			}
			code, out, stderr := b.semel("run", "FILE", "--once", "--json")
			var sum struct{ Applied, Superseded, Duplicates int }
			if err := json.Unmarshal([]byte(out), &sum); err != nil || code != exitDone {
				t.Fatalf("exit code %d, %v\n%s%s\n%s", code, err, out, stderr, text)
			}
			tried := init.Tried
			if sum.Applied+sum.Superseded != tried["applied"]+tried["superseded"] || sum.Duplicates != tried["duplicate"] {
				t.Errorf("said %v, was %+v\n%s", tried, sum, text)
			}
			if n := b.rows("orders.db", init.Table); n == 0 || n > sum.Applied {
				t.Errorf("%d rows of %d messages\n%s", n, sum.Applied, text)
			}
		})
	}
}

var strange = []string{"id", "event_id", "order", "select", "key", "version", "updated_at", "seq", "a b", "a.b", `q"uote`, `b\ack`, "", "name\x00nul", "new\nline", "名前",
	"🎈", "\u202etfel", "if", "nan", "inf", "null", "true", "y", "on", "0", "1e3", "#x", ": ", "- x", "'", "x'; DROP TABLE orders; --", ":p", "camelCase", "CAMELCase", "ROWID", "rowid", "_", "body", strings.Repeat("long", 60)}

// deliverRandom puts some messages of one random form into the inbox.
func deliverRandom(b *bench, r *rand.Rand) {
	names := slices.Clone(strange)
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	n := 1 + r.IntN(25)
	form := r.IntN(1 << 30)
	var all []string
	for i := range n {
		body, err := json.Marshal(object(rand.New(rand.NewPCG(uint64(form), 2)), r, names[:1+form%10], i, 0))
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, string(body))
	}
	if r.IntN(2) == 0 {
		all = append(all, all[r.IntN(n)])
	}
	switch r.IntN(5) {
	case 0:
		for i, m := range all {
			b.deliver(fmt.Sprintf("%03d.json", i), m)
		}
	case 1:
		b.deliver("all.ndjson", strings.Join(all, "\n"))
	case 2:
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		fmt.Fprintln(w, strings.Join(all, "\n"))
		if err := w.Close(); err != nil {
			b.t.Fatal(err)
		}
		b.deliver("all.ndjson.gz", z.String())
	case 3:
		b.deliver("all.json", "["+strings.Join(all, ",\n")+"]")
	case 4:
		b.deliver("all.csv", records(b.t, r, names, n))
	}
}

// records makes CSV with some of the names.
func records(t *testing.T, r *rand.Rand, names []string, n int) string {
	var text strings.Builder
	w := csv.NewWriter(&text)
	w.Comma = rune(",;\t|"[r.IntN(4)])
	names = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" || strings.ContainsAny(s, "\n;") })[:1+r.IntN(6)]
	if err := w.Write(names); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		record := make([]string, len(names))
		for j := range record {
			record[j] = []string{strconv.Itoa(i), "o" + strconv.Itoa(i/3), "2024-01-01T00:00:00Z", "some \"text\"", ""}[(j+len(names))%5]
		}
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	return text.String()
}

// object has fields whose kinds form decides and whose values r and i do.
func object(form, r *rand.Rand, names []string, i, depth int) map[string]any {
	o := map[string]any{}
	for _, name := range names {
		switch k := form.IntN(12); {
		case k == 0 && depth < 3:
			o[name] = object(form, r, names, i, depth+1)
		case k == 1:
			o[name] = i
		case k == 2:
			o[name] = fmt.Sprintf("o%d", i%7)
		case k == 3:
			o[name] = i / 7
		case k == 4:
			o[name] = float64(r.IntN(100)) / 8
		case k == 5:
			o[name] = r.IntN(2) == 0
		case k == 6:
			o[name] = fmt.Sprintf("2024-01-01T00:00:%02dZ", i)
		case k == 7:
			o[name] = []any{1, "x", nil}
		case k == 8:
			o[name] = json.RawMessage("18446744073709551616" + fmt.Sprint(r.IntN(10)))
		case k == 9 && r.IntN(3) > 0:
			o[name] = []any{nil, "x", 1.5, 7, false, map[string]any{"x": 1}}[r.IntN(6)]
		case k == 10:
			o[name] = fmt.Sprintf("%08x-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i*31)
		case k == 11:
			o[name] = "\x1b[31m\u202e'\"\\\x00" + fmt.Sprint(r.IntN(5))
		}
	}
	return o
}

// TestAsking: wrong answers are told why, a number picks a proposal, an empty
// line takes the first one, and the end of the input writes nothing.
func TestAsking(t *testing.T) {
	var out bytes.Buffer
	q := asker{bufio.NewReader(strings.NewReader("bad\n\n  good \n")), &out}
	check := func(s string) error {
		if s == "bad" {
			return errors.New("not \x1bthis")
		}
		return nil
	}
	for _, want := range []string{"default", "good"} {
		if got, err := q.text("what", "default", check); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if !strings.Contains(out.String(), "what [default]: ") || !strings.Contains(out.String(), `not \x1bthis`) {
		t.Errorf("%q", out.String())
	}
	if _, err := q.text("what", "default", check); err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("end of input: %v", err)
	}
	q.in = bufio.NewReader(strings.NewReader(strings.Repeat("bad\n", 100)))
	if _, err := q.text("what", "", check); err == nil {
		t.Error("asks for ever")
	}
	q.in = bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 100_000)), 100)
	if _, err := q.text("what", "", check); err == nil {
		t.Error("takes an endless line")
	}
}

func TestNamesOfTables(t *testing.T) {
	for name, want := range map[string]string{"orders": "orders", "Order Items": "order_items", "semel_x": "t_semel_x", "名": "messages", "2024": "c_2024", "orderItems": "order_items", "sqlite_x": "t_sqlite_x"} {
		if got := tableName(name); got != want || draft.CheckTable(got) != nil {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
