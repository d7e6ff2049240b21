package draft

import (
	"fmt"
	"regexp"
	"strings"
)

// writer writes YAML.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

// comment writes lines of comments, wrapped.
func (w *writer) comment(indent string, lines ...string) {
	for _, text := range lines {
		at := 0
		for i, word := range strings.Fields(text) {
			switch {
			case i == 0:
				w.WriteString(indent + "#")
				at = len(indent) + 1
			case at+len(word) > 98:
				w.WriteString("\n" + indent + "#")
				at = len(indent) + 1
			}
			w.WriteString(" " + word)
			at += 1 + len(word)
		}
		w.WriteByte('\n')
	}
}

// block writes a text as a literal block.
func (w *writer) block(indent, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		w.line("%s%s", indent, line)
	}
}

// plain are values that YAML takes for text without quotes. A path whose only
// name is inf or nan would be a number.
var (
	plain   = regexp.MustCompile(`^[.$]?[A-Za-z_][A-Za-z0-9_.]*$|^(directory|sqlite|env|file):[A-Za-z0-9_./-]+$`)
	special = regexp.MustCompile(`(?i)^(\.inf|\.nan|true|false|null|yes|no|on|off|y|n)$`)
)

// scalar is a text as a YAML value.
func scalar(s string) string {
	if plain.MatchString(s) && !special.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// Text is the pipeline file.
func (d *Draft) Text() string {
	w := &writer{}
	columns := d.columns()
	w.comment("", "Written by semel init. Change what you like; whatever is wrong is told at once.",
		"semel run "+d.File+" --check      tries it and changes nothing")
	w.line("")
	d.where(w)
	d.table(w, columns)
	d.message(w)
	d.once(w)
	d.handle(w, columns)
	w.comment("", "How long ids are remembered, and how late the source may deliver a message again. After keep "+
		"a repeat is a new message; so keep has to be the longer one.")
	w.line("keep: 30d\nhorizon: 7d\n")
	w.comment("", "What fails is tried again at once and after these pauses, and is then a dead letter, which waits for "+
		"a person: semel letters list "+d.File)
	w.line("retry: {immediate: 1, delays: [1s, 10s, 1m]}")
	return w.String()
}

func (d *Draft) where(w *writer) {
	w.comment("", "Everything is remembered under this name: renamed, the pipeline has forgotten all.")
	w.line("name: %s\n", scalar(d.Name))
	w.comment("", "Files are put into inbox/ below this directory (written elsewhere, then renamed into it) and go "+
		"through processing/ to done/ or error/. Nothing else in the directory is touched.")
	w.line("source: %s", scalar(d.Source))
	w.line("files: %-20s # %s", d.Format.Files, map[string]string{
		"whole": "each file is a message; lines, array, csv: there are several in each",
		"lines": "each line is a message, compressed or not; whole: each file is one",
		"array": "each element of the array in a file is a message, compressed or not",
		"csv":   "each record is a message: an object of texts, named by the header",
	}[d.Format.Files])
	if d.Format.Files == "csv" {
		w.line("delimiter: %s", map[byte]string{',': `','`, ';': `';'`, '\t': `"\t"`, '|': `'|'`}[d.Format.Delimiter])
	}
	if d.Summed {
		w.line("complete: %-17s # a file counts when name.sha512, .sha256 or .md5 is there and fits", "checksum")
	}
	w.line("")
	w.comment("", "The database of your tables. What was handled is recorded beside them, in the same transaction.")
	w.line("store: %s\n", scalar(d.Store))
}

func (d *Draft) table(w *writer, columns []column) {
	w.comment("", "Runs at every start.")
	if d.Seen > 0 {
		w.comment("", fmt.Sprintf("The types are those of the sample, %s; STRICT refuses others, and such a message is a dead letter. ANY takes everything.", counted(d.Seen, "message")))
	}
	w.line("setup: |")
	w.block("  ", d.setup(columns))
	w.line("")
}

func counted(n int, one string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func (d *Draft) message(w *writer) {
	w.comment("", "jq over the body.")
	w.line("message:")
	w.comment("  ", "What makes an event the same at every delivery.")
	w.comment("  ", d.AboutID...)
	w.line("  id: %s", scalar(d.ID))
	if d.Key != "" {
		w.comment("  ", "The entity that the event is about.")
		w.comment("  ", d.AboutKey...)
		w.line("  key: %s", scalar(d.Key))
	} else {
		w.comment("  ", "The entity that the event is about, if versions are to be compared.")
		w.line("  # key: .order.id")
	}
	w.comment("  ", "What is not wanted:")
	w.line("  # filter: .test | not\n")
}

func (d *Draft) once(w *writer) {
	w.comment("", "A table of ids: a repeat has no effect; the same id with other content is set aside for a person.")
	w.line("inbox: table\n")
	if d.latest() {
		w.comment("", "Of one key the highest version wins, in whatever order they arrive.")
		w.comment("", d.AboutVersion...)
		w.line("arbitrate:\n  version: %s\n  as: %s", scalar(d.Version), d.As)
		if d.Tie != "" {
			w.comment("  ", "Of equal versions with other content the larger of this wins. Is that what you mean? Without it they are dead letters.")
			w.line("  tie: %s", scalar(d.Tie))
		}
	} else {
		w.comment("", "Of one key let the highest version win, in whatever order they arrive. It needs message.key, and "+
			"makes sense with one row a key: ON CONFLICT (…) DO UPDATE SET … = excluded.…")
		w.comment("", d.AboutVersion...)
		w.line("# arbitrate: {version: .revision, as: integer}")
	}
	w.line("")
}

func (d *Draft) handle(w *writer, columns []column) {
	if d.latest() {
		w.comment("", "One row a key, as its newest message says. This and the record that it happened are one transaction.")
	} else {
		w.comment("", "One row a message. This and the record that it happened are one transaction.")
	}
	w.line("handle:\n  sql:\n    - exec: |")
	w.block("        ", d.statement(columns))
	if !d.latest() {
		w.line("      none: duplicate           # the row is there already: nothing to do")
	}
	w.line("  with:                         # jq; absent fields are NULL")
	for _, c := range columns {
		w.line("    %s: %s", yamlKey(c.name), scalar(c.expr))
	}
	w.line("")
}

// yamlKey is the name of a parameter as a key that is no other kind of value.
func yamlKey(name string) string {
	if special.MatchString(name) {
		return "'" + name + "'"
	}
	return name
}
