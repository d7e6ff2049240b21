package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/propose"
)

// Draft is what a pipeline file is written from. Expressions are jq.
type Draft struct {
	Name, Source, Store string
	Format              propose.Format
	// Summed: checksums say when a file is complete.
	Summed bool
	ID     string
	// Key and Version may be empty. As is "integer" or "time".
	Key, Version, As string
	// Tie decides between equal versions; may be empty.
	Tie string
	// Table is its name; CheckTable takes it.
	Table string
	// Columns are those that are worth one, without id, key and version.
	Columns []propose.Column
	// Comments to stand at the id, the key and the version, a line each.
	AboutID, AboutKey, AboutVersion []string
	// Seen is how many messages the columns' types were seen in; 0: none.
	Seen int
	// File is the name of the pipeline file in commands that comments show.
	File string
}

// column of the table.
type column struct {
	name, sql, expr string
}

// latest: one row a key, the highest version wins. Otherwise one row a message.
func (d *Draft) latest() bool { return d.Key != "" && d.Version != "" }

// columns of the table, the primary key first.
func (d *Draft) columns() []column {
	taken := names{}
	var all []column
	add := func(name, expr, sql string) { all = append(all, column{taken.take(name), sql, expr}) }
	if d.latest() {
		add(named(d.Key, "key"), d.Key, "TEXT NOT NULL PRIMARY KEY")
		version := "INTEGER NOT NULL"
		if d.As == "time" {
			version = "TEXT NOT NULL"
		}
		add(named(d.Version, "version"), d.Version, version)
	} else {
		add(named(d.ID, d.free("id", "message_id")), d.ID, "TEXT NOT NULL PRIMARY KEY")
		if d.Key != "" && d.Key != d.ID {
			add(named(d.Key, "key"), d.Key, "TEXT NOT NULL")
		}
	}
	for _, c := range d.Columns {
		add(Name(strings.Join(c.Path, "_"), "value"), c.Expr, typeOf(c.Type))
	}
	if len(d.Columns) == 0 && !d.latest() {
		add("body", "$body", "BLOB NOT NULL")
	}
	return all
}

// free is the first name that no column has.
func (d *Draft) free(all ...string) string {
	i := slices.IndexFunc(all, func(name string) bool {
		return !slices.ContainsFunc(d.Columns, func(c propose.Column) bool { return Name(strings.Join(c.Path, "_"), "value") == name })
	})
	return all[max(i, 0)]
}

var path = regexp.MustCompile(`^\.[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// named is the name of the column for an expression.
func named(expr, fallback string) string {
	if !path.MatchString(expr) {
		return fallback
	}
	return Name(expr, fallback)
}

func typeOf(t propose.Type) string {
	return [...]string{"TEXT", "INTEGER", "REAL", "ANY"}[t]
}

// setup makes the table.
func (d *Draft) setup(columns []column) string {
	width := 0
	for _, c := range columns {
		width = max(width, len(quote(c.name)))
	}
	lines := make([]string, len(columns))
	for i, c := range columns {
		lines[i] = fmt.Sprintf("  %-*s %s", width, quote(c.name), c.sql)
	}
	return "CREATE TABLE IF NOT EXISTS " + quote(d.Table) + " (\n" + strings.Join(lines, ",\n") + "\n) STRICT"
}

// statement is the effect of a message.
func (d *Draft) statement(columns []column) string {
	quoted, params, sets := make([]string, len(columns)), make([]string, len(columns)), []string{}
	for i, c := range columns {
		quoted[i], params[i] = quote(c.name), ":"+c.name
		if i > 0 {
			sets = append(sets, quote(c.name)+" = excluded."+quote(c.name))
		}
	}
	s := "INSERT INTO " + quote(d.Table) + " (" + wrap(quoted) + ")\nVALUES (" + wrap(params) + ")\nON CONFLICT (" + quoted[0] + ") DO "
	if d.latest() {
		return s + "UPDATE SET " + wrap(sets)
	}
	return s + "NOTHING"
}

// wrap puts a list on as many lines as it needs.
func wrap(items []string) string {
	var b strings.Builder
	at := 0
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
			if at+len(item) > 80 {
				b.WriteString("\n  ")
				at = 0
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteString(item)
		at += len(item) + 2
	}
	return b.String()
}
