package sqlstep

import (
	"fmt"
	"strings"
)

// Dialect is what the tokenizer has to know of a database.
type Dialect struct {
	// Name for messages.
	Name string
	// Numbered: parameters are sent as $1, $2, …; otherwise as ?.
	Numbered bool
	// Brackets: [a name] is a quoted name.
	Brackets bool
	// Backslash: a backslash escapes in strings.
	Backslash bool
	// Nested: comments nest.
	Nested bool
	// Escapes: E'…' is a string with backslashes, and ? and @ are operators.
	Escapes bool
	// Typed: the server knows the type of every parameter and reads its value
	// from text; otherwise a value keeps the type that it has.
	Typed bool
	// Single: one call takes one statement.
	Single bool
}

// SQLite is the dialect of sqlitestore.
func SQLite() Dialect { return Dialect{Name: "sqlite", Brackets: true} }

// Postgres is the dialect of pgstore.
func Postgres() Dialect {
	return Dialect{Name: "postgres", Numbered: true, Nested: true, Escapes: true, Typed: true}
}

// MySQL is the dialect of mysqlstore, under the name that the user gave it.
func MySQL(name string) Dialect { return Dialect{Name: name, Backslash: true, Single: true} }

// Error is a problem with a statement; At is the byte in its text.
type Error struct {
	At  int
	Msg string
}

func (e *Error) Error() string { return e.Msg }

type tokenKind uint8

const (
	word   tokenKind = iota // a keyword or a plain name
	param                   // :name
	symbol                  // anything else that is one byte long
	opaque                  // a string, a quoted name, a number
)

// token is a piece of a statement that is not space or comment.
type token struct {
	kind     tokenKind
	at, end  int
	text     string // upper case for words, the name for parameters
	inParens int
}

// lexer splits a statement. It knows where a colon is not a parameter: in
// strings, names and comments, in casts (::) and assignments (:=).
type lexer struct {
	d      Dialect
	s      string
	i      int
	parens int
	tokens []token
}

// tokenize returns the tokens of s. The error is an *Error.
func tokenize(s string, d Dialect) ([]token, error) {
	l := &lexer{d: d, s: s}
	for l.i < len(s) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, l.balanced()
}

// balanced wants every parenthesis closed. What is not is mostly a statement
// that YAML has cut at a comma.
func (l *lexer) balanced() error {
	var open []int
	for _, t := range l.tokens {
		switch {
		case t.kind == symbol && t.text == "(":
			open = append(open, t.at)
		case t.kind == symbol && t.text == ")" && len(open) == 0:
			return &Error{t.at, "this ) closes nothing: within [a, b] of YAML a comma ends an item; put the statement between quotes, or one a line with a dash"}
		case t.kind == symbol && t.text == ")":
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return &Error{open[0], "the ( that starts here has no end: within [a, b] of YAML a comma ends an item; put the statement between quotes, or one a line with a dash"}
	}
	return nil
}

func (l *lexer) next() error {
	c, rest := l.s[l.i], l.s[l.i:]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		l.i++
		return nil
	case strings.HasPrefix(rest, "--"):
		l.line()
		return nil
	case strings.HasPrefix(rest, "/*"):
		return l.comment()
	case c == '\'', c == '"', c == '`':
		return l.quoted(c, c, l.d.Backslash && c != '`')
	case l.d.Escapes && (c == 'e' || c == 'E') && len(rest) > 1 && rest[1] == '\'':
		l.i++
		return l.quoted('\'', '\'', true)
	case c == '[' && l.d.Brackets:
		return l.quoted('[', ']', false)
	case c == '$':
		return l.dollar()
	case strings.HasPrefix(rest, "::"), strings.HasPrefix(rest, ":="):
		l.emit(opaque, l.i+2, rest[:2])
		return nil
	case c == ':' && len(rest) > 1 && isLetter(rest[1]):
		end := l.run(l.i+1, isNameByte)
		l.emit(param, end, l.s[l.i+1:end])
		return nil
	case (c == '@' || c == '?') && !l.d.Escapes:
		return &Error{l.i, fmt.Sprintf("%q: parameters are written :name, with the name under handle.with", string(c))}
	case isLetter(c):
		end := l.run(l.i, isNameByte)
		l.emit(word, end, strings.ToUpper(l.s[l.i:end]))
		return nil
	case c >= '0' && c <= '9':
		l.emit(opaque, l.run(l.i, isNameByte), "")
		return nil
	}
	l.symbol(c)
	return nil
}

func (l *lexer) symbol(c byte) {
	if c == ')' {
		l.parens--
	}
	l.emit(symbol, l.i+1, string(c))
	if c == '(' {
		l.parens++
	}
}

func (l *lexer) emit(k tokenKind, end int, text string) {
	l.tokens = append(l.tokens, token{k, l.i, end, text, l.parens})
	l.i = end
}

// run returns the end of the bytes from i on that are in a class.
func (l *lexer) run(i int, in func(byte) bool) int {
	for i < len(l.s) && in(l.s[i]) {
		i++
	}
	return i
}

func (l *lexer) line() {
	if n := strings.IndexByte(l.s[l.i:], '\n'); n >= 0 {
		l.i += n + 1
		return
	}
	l.i = len(l.s)
}

func (l *lexer) comment() error {
	start, depth := l.i, 0
	for l.i < len(l.s) {
		switch rest := l.s[l.i:]; {
		case strings.HasPrefix(rest, "/*") && (depth == 0 || l.d.Nested):
			depth++
			l.i += 2
		case strings.HasPrefix(rest, "*/"):
			l.i += 2
			if depth--; depth == 0 {
				return nil
			}
		default:
			l.i++
		}
	}
	return &Error{start, "the comment that starts here has no end"}
}

// quoted reads up to the closing quote; a doubled one stands for itself.
func (l *lexer) quoted(open, closing byte, escapes bool) error {
	for i := l.i + 1; i < len(l.s); i++ {
		switch {
		case l.s[i] == '\\' && escapes:
			i++
		case l.s[i] != closing:
		case i+1 < len(l.s) && l.s[i+1] == closing && closing != ']':
			i++
		default:
			l.emit(opaque, i+1, "")
			return nil
		}
	}
	return &Error{l.i, fmt.Sprintf("the %c that starts here has no end", open)}
}

// dollar reads $tag$ … $tag$.
func (l *lexer) dollar() error {
	end := l.run(l.i+1, isNameByte)
	if end == len(l.s) || l.s[end] != '$' {
		return &Error{l.i, `"$": parameters are written :name, with the name under handle.with`}
	}
	tag := l.s[l.i : end+1]
	n := strings.Index(l.s[end+1:], tag)
	if n < 0 {
		return &Error{l.i, "the " + tag + " that starts here has no end"}
	}
	l.emit(opaque, end+1+n+len(tag), "")
	return nil
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func isNameByte(c byte) bool { return isLetter(c) || c >= '0' && c <= '9' }
