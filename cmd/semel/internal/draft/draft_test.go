package draft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/propose"
)

// load reads a draft as run would.
func load(t *testing.T, d Draft) *config.File {
	t.Helper()
	dir := t.TempDir()
	if d.Store == "" {
		d.Store = "sqlite:" + filepath.Join(dir, "x.db")
	}
	path := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(path, []byte(d.Text()), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, adapters.Options())
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Text())
	}
	return f
}

func minimal() Draft {
	return Draft{Name: "n", Source: "directory:q", Format: propose.Format{Files: "whole"}, ID: ".id", Table: "t", File: "p.yaml"}
}

// columns are fields of these names.
func columns(names ...string) (all []propose.Column) {
	for _, n := range names {
		all = append(all, propose.Column{Path: []string{n}, Expr: propose.Path([]string{n}), Type: propose.TypeAny})
	}
	return all
}

// TestWordsOfSQL: any of them may be the name of a field or of the table.
func TestWordsOfSQL(t *testing.T) {
	d := minimal()
	d.Columns = columns(append(strings.Fields(reserved), "rowid", "_rowid_", "oid", "semel", "strict", "text", "integer")...)
	f := load(t, d)
	body := `{"id":"a","SELECT":"s","ORDER":[1]}`
	outcomes, err := adapters.Try(t.Context(), f, []semel.Message{{ID: "a", Body: []byte(body)}})
	if err != nil || outcomes[0] != nil {
		t.Fatalf("%v, %v\n%s", outcomes, err, d.Text())
	}
	for _, w := range strings.Fields(reserved) {
		d := minimal()
		d.Table = strings.ToLower(w)
		if !strings.Contains(d.Text(), `INSERT INTO "`+d.Table+`" `) {
			t.Errorf("the table %s is not quoted", w)
		}
	}
	d = minimal()
	d.Table = "order"
	if _, err := adapters.Try(t.Context(), load(t, d), nil); err != nil {
		t.Error(err)
	}
}

// TestScalars: whatever is written is read as it was.
func TestScalars(t *testing.T) {
	for _, s := range []string{"plain", "true", "null", ".nan", ".inf", "1e3", "0x1f", "it's", "a: b", "a #b", "#", "- a", "*a", "&a", "!a", "%a", "@a", "`a", "{a}", "[a]", "|", ">", "名前", "~", "", " a ", "yes", "2024-01-01", `"a"`, `\`} {
		d := minimal()
		if s != "" {
			d.Name = s
		}
		if f := load(t, d); f.Name != d.Name {
			t.Errorf("%q is read as %q", d.Name, f.Name)
		}
	}
	for _, expr := range []string{".nan", ".inf", ".true", ".", `."a: b"`, `."it's"`, `."#"`, `"\(.a)-\(.b)"`, ".a | split(\".\")[1]"} {
		d := minimal()
		d.ID, d.Key = expr, expr
		if f := load(t, d); f.Rules.ID.Text != expr || f.Rules.Key.Text != expr {
			t.Errorf("%q is read as %q", expr, f.Rules.ID.Text)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, delimiter := range []byte(",;\t|") {
		d := minimal()
		d.Format = propose.Format{Files: "csv", Delimiter: delimiter}
		if f := load(t, d); f.Files != "csv" || f.Delimiter != delimiter {
			t.Errorf("%q is read as %s %q", delimiter, f.Files, f.Delimiter)
		}
	}
	for _, files := range []string{"whole", "lines", "array"} {
		d := minimal()
		d.Format.Files = files
		if f := load(t, d); f.Files != files {
			t.Errorf("%s is read as %s", files, f.Files)
		}
	}
}

// TestOneRowAKey needs a version: without one the last to arrive would win.
func TestOneRowAKey(t *testing.T) {
	d := minimal()
	d.Key = ".k"
	if f := load(t, d); f.Arbitrate.On || strings.Contains(d.Text(), "DO UPDATE SET id") {
		t.Errorf("rows are replaced without a version:\n%s", d.Text())
	}
	d.Version, d.As, d.Tie = ".v", "time", d.ID
	if f := load(t, d); !f.Arbitrate.On || !f.Rules.VersionTime || f.Rules.Tie.Text != ".id" || !strings.Contains(d.Text(), "ON CONFLICT (k) DO UPDATE SET v = excluded.v") {
		t.Errorf("%s", d.Text())
	}
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		"orderId": "order_id", "order id": "order_id", "ORDER": "order", "a__b": "a_b", "": "x", "名": "x", "1st": "c_1st",
		"__": "x", "x'; DROP TABLE y": "x_drop_table_y", strings.Repeat("ab", 60): strings.Repeat("ab", 24), "HTTPServer": "httpserver",
	} {
		if got := Name(text, "x"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
