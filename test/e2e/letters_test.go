package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	desk "github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/test/e2e/rig"
)

// letters calls a verb of letters; words are not split any further.
func letters(q *rig.Queue, verb string, words ...string) rig.Command {
	c := q.Semel("letters " + verb)
	c.Args = append(c.Args, words...)
	return c
}

// lines reads JSON lines.
func lines[T any](t *testing.T, e rig.Exit) (all []T) {
	t.Helper()
	for l := range strings.Lines(e.Stdout) {
		var v T
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%q: %v\n%v", l, err, e)
		}
		all = append(all, v)
	}
	return all
}

type group struct {
	Group, Class, Reason, Text string
	Open, Total                int64
	States                     map[string]int64
}

// priced takes prices in euro alone, and no more than stock has.
const priced = `
name: priced
source: directory:ROOT
store: sqlite:DB
setup: |
  CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, cents INTEGER NOT NULL CHECK (cents < 1000),
    currency TEXT NOT NULL CHECK (currency = 'EUR'), payload TEXT);
  CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0)
message: {id: .id, key: .customer, type: .kind}
handle:
  sql:
    - exec: UPDATE stock SET n = n - 1 WHERE item = :item
      none: fail
    - INSERT INTO effects (id, cents, currency) VALUES (:id, :cents, :currency)
  with: {id: .id, cents: .cents, currency: .currency, item: .item}
horizon: 7d
files: lines
`

func sale(id, item string, cents int, currency string) string {
	return fmt.Sprintf(`{"id":%q,"kind":"sale","customer":"c%s","item":%q,"cents":%d,"currency":%q,"exact":12345678901234567890.10}`, id, id, item, cents, currency)
}

// sales delivers messages that die of four causes, and some that do not.
func sales(t *testing.T) *rig.Queue {
	t.Helper()
	q := rig.NewQueue(t, priced)
	q.Drain(0)
	q.Exec("INSERT INTO stock (item) VALUES ('tea'), ('gin')")
	var all []string
	for i := range 7 {
		all = append(all, sale(fmt.Sprintf("usd-%d", i), "tea", 100+i, "USD"))
	}
	for i := range 5 {
		all = append(all, sale(fmt.Sprintf("none-%d", i), "rum", 100, "EUR"))
	}
	for i := range 3 {
		all = append(all, sale(fmt.Sprintf("dear-%d", i), "gin", 1000+i, "EUR"))
	}
	all = append(all, "{not JSON 1}", "{not JSON 22}", sale("good", "tea", 1, "EUR"))
	q.Deliver("sales.ndjson", strings.Join(all, "\n")+"\n")
	q.Drain(3)
	return q
}

// TestLetterGroups: failures of one cause meet, and the filter means the same
// letters for every verb.
func TestLetterGroups(t *testing.T) {
	t.Parallel()
	q := sales(t)
	gs := lines[group](t, q.Run("letters groups --json"))
	var sizes []int64
	for _, g := range gs {
		sizes = append(sizes, g.Open)
		if g.Total != g.Open || g.States["dead"] != g.Open || strings.ContainsAny(g.Text, "0123456789\n") {
			t.Errorf("group %+v", g)
		}
	}
	if !slices.Equal(sizes, []int64{7, 5, 3, 2}) {
		t.Fatalf("groups %+v", gs)
	}
	for i, part := range []string{"currency = ", "changed no row", "cents <", "not valid JSON"} {
		if !strings.Contains(gs[i].Text, part) {
			t.Errorf("group %d is %q, want %q in it", i, gs[i].Text, part)
		}
	}
	usd := gs[0].Group
	for filter, want := range map[string]int{
		"":                 17,
		"group=" + usd:     7,
		"group=" + usd[:4]: 7,
		"group!=" + usd:    10,
		"group=" + gs[1].Group + "," + gs[2].Group: 8,
		"class=format":                          2,
		"class!=format":                         15,
		"reason=permanent,exhausted":            15,
		"state=dead":                            17,
		"state=closed":                          0,
		"error~CURRENCY":                        7,
		"type=sale":                             15,
		"key=cusd-3":                            1,
		"id=dear-1":                             1,
		"id~dear":                               3,
		"age<1h":                                17,
		"age>1h":                                0,
		"attempts>=1":                           15,
		".cents>100":                            9,
		".cents>=1001 .cents<1002.00":           1,
		".exact=12345678901234567890.1":         15,
		".exact=12345678901234567890.11":        0,
		`.item="gin"`:                           3,
		".item=null":                            2,
		"class=business .item~rum id!=none-0":   4,
		`error~"constraint failed" .cents<1000`: 7,
	} {
		var count struct{ Total int }
		rig.Run(t, letters(q, "count", filter, "--json")).JSON(t, &count)
		listed := lines[letter](t, rig.Run(t, letters(q, "list", filter, "--json", "--limit", "0")))
		exported := lines[letter](t, rig.Run(t, letters(q, "export", filter)))
		var plan struct{ Count int }
		if filter != "" {
			rig.Run(t, letters(q, "replay", filter, "--json", "--dry-run")).JSON(t, &plan)
		}
		grouped := 0
		for _, g := range lines[group](t, rig.Run(t, letters(q, "groups", filter, "--json"))) {
			grouped += int(g.Total)
		}
		if count.Total != want || len(listed) != want || grouped != want || len(exported) != want || filter != "" && plan.Count != want {
			t.Errorf("%q: count %d, list %d, groups %d, export %d, replay %d; want %d", filter, count.Total, len(listed), grouped, len(exported), plan.Count, want)
		}
	}
	e := rig.Run(t, letters(q, "list", "klass=format"))
	if e.Code != 1 || !strings.Contains(e.Stderr, "did you mean class?") || !strings.Contains(e.Stderr, "\n  ^") {
		t.Errorf("%v", e)
	}
}

// rewrite reads an export, changes it, and writes it as another program would.
func rewrite(t *testing.T, text string, pretty bool, change func(map[string]any)) string {
	t.Helper()
	var out bytes.Buffer
	for l := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(l))
		d.UseNumber()
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		change(m)
		w := json.NewEncoder(&out) // escapes <, > and &, and sorts the keys
		if pretty {
			w.SetIndent("", "  ")
		}
		if err := w.Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// imported calls import with a file.
func imported(t *testing.T, q *rig.Queue, text string, words ...string) rig.Exit {
	t.Helper()
	path := filepath.Join(q.Dir, "edited.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return rig.Run(t, letters(q, "import", append([]string{path}, words...)...))
}

// TestLettersRepaired is the whole loop: find the cause, export its letters,
// edit them outside, import, replay, applied; and what was sent stays.
func TestLettersRepaired(t *testing.T) {
	t.Parallel()
	q := sales(t)
	usd := lines[group](t, q.Run("letters groups --json"))[0].Group
	before := rig.Run(t, letters(q, "export", "group="+usd)).Stdout
	fix := func(m map[string]any) {
		body := m["json"].(map[string]any)
		if body["id"] != "usd-6" { // one is left alone
			body["currency"] = "EUR"
		}
	}
	order := []string{"id", "kind", "customer", "item", "cents", "currency", "exact"}
	edited := rewrite(t, before, true, fix)
	// Go sorts the keys, which is a change of its own: jq and editors do not.
	edited = strings.Join(inOrder(t, edited, order), "\n")

	e := imported(t, q, edited, "--dry-run")
	if e.Code != 0 || !strings.Contains(e.Stdout, "6 would be proposed, 1 unchanged, 0 refused") || !strings.Contains(e.Stdout, ".currency") {
		t.Fatalf("dry run: %v", e)
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_letter WHERE state <> 'dead' OR proposed > 0"); n != 0 {
		t.Fatalf("a dry run changed %d letters", n)
	}
	if e = imported(t, q, edited, "--as", "ann", "--note", "wrong currency"); e.Code != 0 || !strings.Contains(e.Stdout, "6 proposed, 1 unchanged") {
		t.Fatalf("import: %v", e)
	}
	if n := q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'edited' AND actor = 'ann'"); n != 6 {
		t.Fatalf("%d letters are edited", n)
	}
	// Again: nothing is done twice, and what is exported now is the edit.
	if e = imported(t, q, edited); e.Code != 0 || q.Int("SELECT SUM(proposed) FROM semel_letter") != 6 {
		t.Errorf("import again: %v", e)
	}
	now := rig.Run(t, letters(q, "export", "state=edited")).Stdout
	if strings.Count(now, `"currency":"EUR"`) != 6 {
		t.Errorf("exported after the edit:\n%s", now)
	}
	if e = imported(t, q, now); e.Code != 0 || !strings.Contains(e.Stdout, "0 proposed, 6 unchanged") {
		t.Errorf("untouched: %v", e)
	}
	if e = imported(t, q, edited, "--replay"); e.Code != 0 || !strings.Contains(e.Stdout, "6 replayed") {
		t.Fatalf("replay: %v", e)
	}
	q.Drain(3)
	if n := q.Int("SELECT COUNT(*) FROM effects WHERE id LIKE 'usd-%'"); n != 6 {
		t.Errorf("%d effects", n)
	}
	if e = q.Run("explain usd-0"); e.Code != 0 || !strings.Contains(e.Stdout, "Its effect is committed") || !strings.Contains(e.Stdout, "other content than was sent") {
		t.Errorf("explain: %v", e)
	}
	ref := q.Strings("SELECT CAST(ref AS TEXT) FROM semel_letter WHERE CAST(id AS TEXT) = 'usd-0'")[0]
	if e = q.Run("letters show --body --original " + ref); e.Stdout != sale("usd-0", "tea", 100, "USD") {
		t.Errorf("what was sent: %v", e)
	}
	if e = q.Run("letters show --body " + ref); e.Stdout != sale("usd-0", "tea", 100, "EUR") {
		t.Errorf("what was applied: %v", e)
	}
	gs := lines[group](t, q.Run("letters groups --json"))
	i := slices.IndexFunc(gs, func(g group) bool { return g.Group == usd })
	if i < 0 || gs[i].Open != 1 || gs[i].Total != 7 || gs[i].States["applied"] != 6 {
		t.Errorf("the group afterwards: %+v", gs)
	}
	// Whoever comes later with the old export is refused by name.
	if e = imported(t, q, rewrite(t, before, false, func(m map[string]any) { m["json"].(map[string]any)["cents"] = 5 })); e.Code != 3 ||
		!strings.Contains(e.Stderr, "line 1: "+ref+": refused") || !strings.Contains(e.Stderr, "is at ") || !strings.Contains(e.Stdout, "1 proposed, 0 unchanged, 6 refused") {
		t.Errorf("an old export: %v", e)
	}
}

// inOrder gives the bodies of an export the order of keys that they had.
func inOrder(t *testing.T, text string, order []string) (all []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	for d.More() {
		var m, body map[string]json.RawMessage
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m["json"], &body); err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, k := range order {
			parts = append(parts, fmt.Sprintf("%q : %s", k, body[k]))
		}
		m["json"] = []byte("{" + strings.Join(parts, ",\n    ") + "}")
		var line []string
		for k, v := range m {
			line = append(line, fmt.Sprintf("  %q: %s", k, v))
		}
		all = append(all, "{\n"+strings.Join(line, ",\n")+"\n}")
	}
	return all
}

// TestExportIsExact: whatever a body is, untouched it comes back unchanged.
func TestExportIsExact(t *testing.T) {
	t.Parallel()
	q := rig.NewQueue(t, plain)
	for name, body := range map[string]string{
		"plain": `{"x":1}`, "pretty": "{\n  \"x\" : [1, 2.50, 1e3]\n}\n", "large": `{"x":9007199254740993,"y":1.10,"z":-0}`, "escapes": `{"x":"\u00e9\/<&>\u2028"}`,
		"twice": `{"x":1,"x":2}`, "half": `{"x":"\ud800"}`, "text": "no JSON \x1b[31m\x00\r\n", "bytes": "\xff\xfe\x00", "bom": "\ufeff{\"x\":1}",
		"deep": strings.Repeat("[", 500) + strings.Repeat("]", 500), "number": "17", "null": "null", "string": `"a"`, "cut": `{"x":`,
	} {
		q.Deliver(name+".json", body)
	}
	q.Drain(3)
	e := q.Run("letters export")
	if n := strings.Count(e.Stdout, "\n"); e.Code != 0 || n != 14 {
		t.Fatalf("%d lines: %v", n, e)
	}
	for name, text := range map[string]string{
		"as it is":   e.Stdout,
		"by Go":      rewrite(t, e.Stdout, false, func(map[string]any) {}),
		"on lines":   rewrite(t, e.Stdout, true, func(map[string]any) {}),
		"with CR LF": strings.ReplaceAll(e.Stdout, "\n", "\r\n") + "\r\n\r\n",
	} {
		if i := imported(t, q, text); i.Code != 0 || !strings.Contains(i.Stdout, "0 proposed, 14 unchanged, 0 refused") {
			t.Errorf("%s: %v", name, i)
		}
	}
	if jq, err := exec.LookPath("jq"); err == nil {
		cmd := exec.Command(jq, "-c", ".")
		cmd.Stdin = strings.NewReader(e.Stdout)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		// Old versions of jq round large numbers: that one would be a change.
		large := q.Strings("SELECT CAST(ref AS TEXT) FROM semel_letter WHERE CAST(origin AS TEXT) LIKE 'large%'")[0]
		for _, r := range lines[struct{ Ref, Result string }](t, imported(t, q, string(out), "--dry-run", "--json")) {
			if r.Ref != "" && r.Ref != large && r.Result != "unchanged" {
				t.Errorf("through jq: %+v", r)
			}
		}
	}
}

// TestImportRefuses: each line for itself, with its number and the reason.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	q := sales(t)
	all := strings.Split(strings.TrimSpace(rig.Run(t, letters(q, "export", "id~usd")).Stdout), "\n")
	with := func(i int, old, new string) string {
		t.Helper()
		if !strings.Contains(all[i], old) {
			t.Fatalf("%s is not in %s", old, all[i])
		}
		return strings.Replace(all[i], old, new, 1)
	}
	text := strings.Join([]string{
		`{"ref":`,
		with(0, `"id":"usd-0","kind"`, `"id":"other","kind"`),
		with(1, `"USD"`, `"EUR"`),
		with(2, `"pipeline":"priced"`, `"pipeline":"other"`),
		with(3, `"json":{`, `"text":"","json":{`),
		with(4, `"key":"c`, `"key":"x`),
		with(5, `"json":{`, `"base64":"e30=","was":{`),
		`{"ref":"aaaaaaaaaaaaaaaa","version":1}`,
		`{}`, `17`, `{"ref":17}`,
		with(6, `"cents":106`, `"cents":"many"`),
	}, "\n")
	e := imported(t, q, text)
	for n, says := range map[int]string{
		1: "no end", 2: "its id would be another", 4: "exported from the pipeline", 5: "more than one of json, text and base64", 6: "key cannot be edited",
		7: "could not read it", 8: "no such letter", 9: "no ref and version", 10: "not an exported letter", 11: "ref is of another type",
	} {
		at := fmt.Sprintf("line %d: ", n)
		i := strings.Index(e.Stderr, at)
		if i < 0 || !strings.Contains(firstLine(e.Stderr[i:]), says) {
			t.Errorf("line %d: want %q", n, says)
		}
	}
	if e.Code != 3 || !strings.Contains(e.Stdout, "2 proposed, 0 unchanged, 10 refused") || strings.Contains(e.Stderr, "USD") {
		t.Errorf("%v", e)
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

const bulk = 450 // letters: five transactions

// many delivers messages that die.
func many(t *testing.T) *rig.Queue {
	t.Helper()
	q := rig.NewQueue(t, priced)
	var all strings.Builder
	for i := range bulk {
		all.WriteString(sale(fmt.Sprintf("m-%d", i), "none", 1, "EUR") + "\n")
	}
	q.Deliver("many.ndjson", all.String())
	q.Drain(3)
	return q
}

// resumed runs the command that an interrupted one told, in a shell.
func resumed(t *testing.T, q *rig.Queue, text string) rig.Exit {
	t.Helper()
	i := strings.Index(text, "semel letters")
	if i < 0 {
		t.Fatalf("no command to go on with in\n%s", text)
	}
	command := firstLine(text[i:])
	bin := filepath.Dir(rig.Program(t, "cmd/semel"))
	return rig.Run(t, rig.Command{Path: "/bin/sh", Args: []string{"-c", command}, Env: []string{"PATH=" + bin + ":/bin:/usr/bin"}, Dir: q.Dir})
}

// TestBulkInterrupted: Ctrl-C stops between two transactions; the command that
// is told acts on the rest and on none twice, whatever became of the first
// ones meanwhile.
func TestBulkInterrupted(t *testing.T) {
	for verb, words := range map[string][]string{"replay": {"--note", "it's fixed", "age<7d"}, "discard": {"--reason", "it's no use", "class=business"}} {
		for _, how := range []string{"interrupt", "kill"} {
			t.Run(verb+" "+how, func(t *testing.T) {
				t.Parallel()
				q := many(t)
				c := letters(q, verb, append([]string{"state=dead", "--yes", "--as", "ann"}, words...)...)
				at := fmt.Sprintf("SEMEL_FAULT=%s:2", desk.Decided)
				if how == "interrupt" {
					at += "=stop"
				}
				c.Env = append(c.Env, at)
				p := rig.Start(t, c)
				var e rig.Exit
				if how == "kill" {
					if e = p.Wait(); !e.Killed() {
						t.Fatalf("%v", e)
					}
				} else {
					rig.Until(t, "it is stopped", p.Stopped)
					p.Signal(syscall.SIGINT)
					p.Signal(syscall.SIGCONT)
					if e = p.Wait(); e.Code != 5 || !strings.Contains(e.Stdout, "letters left") {
						t.Fatalf("%v", e)
					}
				}
				const acted = "SELECT COUNT(*) FROM semel_letter WHERE state <> 'dead'"
				first := q.Int(acted)
				if first < 2*desk.Chunk || first >= bulk || first%desk.Chunk != 0 {
					t.Fatalf("%d letters were acted on: %v", first, e)
				}
				if verb == "replay" {
					q.Drain(3) // they die again: a filter alone would find them again
				}
				e = resumed(t, q, e.Stdout+e.Stderr)
				if e.Code != 0 || !strings.Contains(e.Stdout, fmt.Sprintf("%d letters", bulk-first)) {
					t.Errorf("going on after %d: %v", first, e)
				}
				if verb == "replay" {
					q.Drain(3)
				}
				// Each was acted on once: all have the same history.
				if n := q.Strings("SELECT DISTINCT version || ' ' || attempts || ' ' || state FROM semel_letter"); len(n) != 1 {
					t.Errorf("versions, attempts and states: %q", n)
				}
				if n := q.Int("SELECT COUNT(*) FROM semel_letter"); n != bulk {
					t.Errorf("%d letters", n)
				}
				if e := q.Run("status --rows"); e.Code == 4 {
					t.Errorf("%v", e)
				}
			})
		}
	}
}

// TestExpect: a selection that has changed is not acted on.
func TestExpect(t *testing.T) {
	t.Parallel()
	q := sales(t)
	var plan struct {
		Count     int
		Selection string
		Groups    []struct{ N int }
	}
	rig.Run(t, letters(q, "discard", "state=dead", "--reason", "x", "--dry-run", "--json")).JSON(t, &plan)
	if plan.Count != 17 || len(plan.Selection) != 8 || len(plan.Groups) != 4 {
		t.Fatalf("%+v", plan)
	}
	discard := func() rig.Exit {
		return rig.Run(t, letters(q, "discard", "state=dead", "--reason", "x", "--yes", "--expect", plan.Selection))
	}
	rig.Run(t, letters(q, "discard", q.Strings("SELECT CAST(ref AS TEXT) FROM semel_letter LIMIT 1")[0], "--reason", "x"))
	if e := discard(); e.Code != 1 || !strings.Contains(e.Stderr, "the selection has changed") || q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'dead'") != 16 {
		t.Errorf("%v", e)
	}
	rig.Run(t, letters(q, "discard", "state=dead", "--reason", "x", "--dry-run", "--json")).JSON(t, &plan)
	if e := discard(); e.Code != 0 || q.Int("SELECT COUNT(*) FROM semel_letter WHERE state = 'dead'") != 0 {
		t.Errorf("%v", e)
	}
}
