package propose

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Path is the jq expression for a path of fields, whatever their names are.
func Path(names []string) string {
	if len(names) == 0 {
		return "."
	}
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('.')
		if identifier(name) {
			b.WriteString(name)
		} else {
			b.WriteString(Quote(name))
		}
	}
	return b.String()
}

func identifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// Quote is a text as jq reads it. What does not print is escaped, so that it
// can stand in a file and on a terminal.
func Quote(s string) string {
	plain, err := json.Marshal(s)
	if err != nil {
		return `""` // cannot be: a text
	}
	var b strings.Builder
	for _, r := range string(plain) {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// separators stand between the parts of an id; the first that no part contains
// is taken, so that ("a/b", "c") and ("a", "b/c") stay two ids.
var separators = [...]string{"/", "|", "~", "::"}

// join is the expression of an id of several parts.
func join(parts []*field) string {
	sep := separators[len(separators)-1]
	for _, s := range separators {
		if !anyContains(parts, s) {
			sep = s
			break
		}
	}
	texts := make([]string, len(parts))
	for i, f := range parts {
		texts[i] = f.text()
	}
	return strings.Join(texts, " + "+Quote(sep)+" + ")
}

func anyContains(parts []*field, s string) bool {
	for _, f := range parts {
		for _, v := range f.values {
			if strings.Contains(v, s) {
				return true
			}
		}
	}
	return false
}

// text is the field's expression as a text.
func (f *field) text() string {
	if f.kinds == kindText {
		if strings.Contains(f.expr, " | ") {
			return "(" + f.expr + ")"
		}
		return f.expr
	}
	return "(" + f.expr + " | tostring)"
}
