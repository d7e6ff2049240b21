// Package sqlstep is the handler of pipeline files that is written in SQL: a
// list of statements with named parameters, run in the batch's transaction.
//
// A statement that ended the transaction would turn every later record of the
// batch into a lost message, and one that changes the tables would commit it
// on some databases; both are refused when the file is read.
package sqlstep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// None says what it means that a statement changed no row.
type None string

const (
	// Ignore: nothing; the next step follows. The default.
	Ignore None = "ignore"
	// Duplicate and Superseded end the handler with that verdict. What the
	// steps before did stays.
	Duplicate  None = "duplicate"
	Superseded None = "superseded"
	// Stale: the row changed since it was read; run the handler again.
	Stale None = "stale"
	// Fail: the message is wrong; straight to the dead letters.
	Fail None = "fail"
)

// Nones lists the words that a pipeline file may say.
func Nones() []string {
	return []string{string(Duplicate), string(Superseded), string(Stale), string(Fail), string(Ignore)}
}

// Step is one compiled statement.
type Step struct {
	text string
	none None
	args []int // index of the value of each parameter, in order
	// typed: values are sent as text, which the server reads as what it is for.
	typed bool
}

// Compile checks one statement and binds its parameters to names. The error
// is an *Error. used[i] is set for every name that occurs.
func Compile(text string, none None, names []string, used []bool, d Dialect) (*Step, error) {
	tokens, err := tokenize(text, d)
	if err != nil {
		return nil, err
	}
	if err := checkStep(tokens, none); err != nil {
		return nil, err
	}
	s := &Step{none: none, typed: d.Typed}
	var b strings.Builder
	from := 0
	for _, t := range tokens {
		if t.kind != param {
			continue
		}
		i := slices.Index(names, t.text)
		if i < 0 {
			return nil, &Error{t.at, unknownName(t.text, names)}
		}
		used[i] = true
		s.args = append(s.args, i)
		b.WriteString(text[from:t.at])
		b.WriteString(placeholder(d, len(s.args)))
		from = t.end
	}
	b.WriteString(text[from:])
	s.text = strings.TrimRight(b.String(), "; \t\r\n")
	return s, nil
}

func placeholder(d Dialect, n int) string {
	if d.Numbered {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

func unknownName(name string, known []string) string {
	if len(known) == 0 {
		return fmt.Sprintf("the parameter :%s is not defined: add it under handle.with", name)
	}
	sorted := slices.Sorted(slices.Values(known))
	return fmt.Sprintf("the parameter :%s is not defined: handle.with has %s", name, strings.Join(sorted, ", "))
}

// What the first word of a statement means.
var (
	changes  = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"}
	reads    = []string{"SELECT", "VALUES"}
	controls = []string{"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "SET", "PREPARE", "XA", "LOCK", "UNLOCK", "HANDLER"}
	settings = []string{"PRAGMA", "ATTACH", "DETACH", "VACUUM", "USE", "RESET", "DISCARD"}
	shapes   = []string{"CREATE", "ALTER", "DROP", "TRUNCATE", "REINDEX", "ANALYZE", "RENAME", "GRANT", "REVOKE", "COMMENT", "CLUSTER", "REFRESH", "OPTIMIZE"}
)

func checkStep(tokens []token, none None) error {
	if err := single(tokens); err != nil {
		return err
	}
	first := tokens[0]
	switch verb := mainVerb(tokens); {
	case slices.Contains(changes, verb):
		return nil
	case slices.Contains(reads, verb):
		if none != Ignore {
			return &Error{first.at, "a statement that only reads changes no row: none has no meaning for it; make the change itself conditional (… WHERE)"}
		}
		return nil
	case first.kind != word:
		return &Error{first.at, "a step is INSERT, UPDATE, DELETE, REPLACE, MERGE or SELECT, WITH in front or not"}
	case slices.Contains(controls, first.text):
		return &Error{first.at, first.text + " is refused: the transaction belongs to the pipeline, which commits the effect together with the record that it happened; remove it"}
	case slices.Contains(settings, first.text):
		return &Error{first.at, first.text + " is refused: it reaches beyond the transaction; do it outside of the pipeline"}
	case slices.Contains(shapes, first.text):
		return &Error{first.at, first.text + " is refused: tables are made once and not per message; move it to setup:"}
	}
	return &Error{first.at, first.text + " is refused: a step is INSERT, UPDATE, DELETE, REPLACE, MERGE or SELECT, WITH in front or not"}
}

// single wants exactly one statement, a semicolon at its end or not.
func single(tokens []token) error {
	for i, t := range tokens {
		if t.kind != symbol || t.text != ";" {
			continue
		}
		for _, later := range tokens[i+1:] {
			if later.text != ";" {
				return &Error{later.at, "a second statement: write the steps as a list, so that each has its own meaning of no row"}
			}
		}
		tokens = tokens[:i]
		break
	}
	if len(tokens) == 0 {
		return &Error{0, "the statement is empty"}
	}
	return nil
}

// mainVerb is the first word, or behind WITH the first one that says what the
// statement does.
func mainVerb(tokens []token) string {
	if tokens[0].kind != word {
		return ""
	}
	if tokens[0].text != "WITH" {
		return tokens[0].text
	}
	for _, t := range tokens[1:] {
		if t.kind == word && t.inParens == 0 && (slices.Contains(changes, t.text) || slices.Contains(reads, t.text)) {
			return t.text
		}
	}
	return "WITH"
}

// CheckSetup checks a statement, or several separated by semicolons, that make
// the pipeline's tables. They run in one transaction, at every start. The
// error is an *Error.
func CheckSetup(text string, d Dialect) error {
	tokens, err := tokenize(text, d)
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		return &Error{0, "the statement is empty"}
	}
	for _, t := range tokens {
		if t.kind == param {
			return &Error{t.at, fmt.Sprintf("setup has no message, hence no parameter :%s", t.text)}
		}
	}
	for _, s := range statements(tokens) {
		if err := checkSetupStatement(s); err != nil {
			return err
		}
	}
	return nil
}

// Calls are the texts that are sent for a setup text that CheckSetup accepted.
func Calls(text string, d Dialect) []string {
	tokens, err := tokenize(text, d)
	if err != nil || !d.Single {
		return []string{text}
	}
	var calls []string
	for _, s := range statements(tokens) {
		calls = append(calls, text[s[0].at:s[len(s)-1].end])
	}
	return calls
}

// statements splits at semicolons, but not within the body of a trigger.
func statements(tokens []token) [][]token {
	var all [][]token
	from, depth := 0, 0
	for i, t := range tokens {
		switch {
		case t.kind == word && (t.text == "BEGIN" || t.text == "CASE") && i > from:
			depth++
		case t.kind == word && t.text == "END" && depth > 0:
			depth--
		case t.kind == symbol && t.text == ";" && depth == 0:
			if i > from {
				all = append(all, tokens[from:i])
			}
			from = i + 1
		}
	}
	if from < len(tokens) {
		all = append(all, tokens[from:])
	}
	return all
}

func checkSetupStatement(s []token) error {
	first := s[0]
	switch {
	case slices.Contains(controls, first.text) && first.kind == word:
		return &Error{first.at, first.text + " is refused: setup runs in one transaction of its own; remove it"}
	case slices.Contains(settings, first.text) && first.kind == word:
		return &Error{first.at, first.text + " is refused: it reaches beyond the transaction; do it outside of the pipeline"}
	case first.text == "CREATE" && !mayRepeat(s):
		return &Error{first.at, "setup runs at every start: write CREATE … IF NOT EXISTS"}
	case first.text == "DROP" || first.text == "TRUNCATE":
		return &Error{first.at, first.text + " is refused: setup runs at every start and would remove what the pipeline did"}
	}
	return nil
}

// mayRepeat reports IF NOT EXISTS or OR REPLACE.
func mayRepeat(s []token) bool {
	for i := range len(s) - 1 {
		if s[i].text == "IF" && s[i+1].text == "NOT" || s[i].text == "OR" && s[i+1].text == "REPLACE" {
			return true
		}
	}
	return false
}
