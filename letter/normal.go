package letter

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// What stands in a normalised text for what was taken out of it.
const (
	aNumber = "<n>"
	anID    = "<id>"
	aTime   = "<time>"
	aPath   = "<path>"
	aQuote  = `"…"`
)

// Normal takes out of an error's text what differs from message to message, so
// that errors with one cause read the same. It is one line. Replaced are
//
//   - text in double quotes, back quotes or single quotes;
//   - times and dates (RFC 3339 and its beginnings);
//   - UUIDs, hexadecimal numbers and words that mix letters and digits;
//   - numbers, also behind a name ("evt-17" is "evt-<n>"), with a unit ("30s")
//     and in addresses ("10.0.0.7:443");
//   - paths of files. A place within a message, which follows the word "at"
//     ("at /items/3/price"), keeps its names.
//
// Only the first MaxErrorBytes are looked at.
func Normal(s string) string {
	n := normaliser{in: strings.Join(strings.Fields(strings.ToValidUTF8(Clip(s), "�")), " ")}
	for n.at < len(n.in) {
		n.step()
	}
	return n.out.String()
}

type normaliser struct {
	in   string
	at   int
	out  strings.Builder
	word string // the last one, for what depends on it
}

// step takes one token.
func (n *normaliser) step() {
	rest := n.in[n.at:]
	c := rest[0]
	switch {
	case (c == '"' || c == '`' || c == '\'') && !n.inWord():
		if end := closing(rest); end > 0 {
			n.put(aQuote, end)
			return
		}
	case isPath(rest) && !n.inWord():
		n.path(rest)
		return
	case alnum(c) || c >= utf8.RuneSelf:
		n.token(rest)
		return
	}
	n.put(rest[:1], 1)
}

func (n *normaliser) put(s string, taken int) {
	n.out.WriteString(s)
	n.at += taken
}

// inWord reports whether the byte before belongs to a word: "don't" has no
// quotes in it.
func (n *normaliser) inWord() bool {
	return n.at > 0 && (alnum(n.in[n.at-1]) || n.in[n.at-1] >= utf8.RuneSelf)
}

// closing returns the length of a quoted text, 0 if it has no end. A quote
// that is escaped does not end it, nor does a single one within a word.
func closing(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && s[0] != '`':
			i++
		case s[i] == s[0] && (s[0] != '\'' || i+1 == len(s) || !alnum(s[i+1])):
			return i + 1
		}
	}
	return 0
}

// isPath reports whether a path of a file system begins here.
func isPath(s string) bool {
	for _, start := range []string{"/", "./", "../", "~/"} {
		if after, ok := strings.CutPrefix(s, start); ok {
			return after != "" && (alnum(after[0]) || after[0] == '.' || after[0] == '_')
		}
	}
	return len(s) > 3 && s[1] == ':' && s[2] == '\\' && unicode.IsLetter(rune(s[0]))
}

func (n *normaliser) path(s string) {
	end := strings.IndexByte(s, ' ')
	if end < 0 {
		end = len(s)
	}
	path := strings.TrimRight(s[:end], ".,:;)]}'\"")
	if n.word != "at" {
		n.put(aPath, len(path))
		return
	}
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = replaced(name)
	}
	n.put(strings.Join(names, "/"), len(path))
}

// token takes a word, a number, a time, or a path that begins with a name.
func (n *normaliser) token(s string) {
	if end := moment(s); end > 0 {
		n.put(aTime, end)
		return
	}
	end := wordEnd(s)
	if end < len(s) && s[end] == '/' && strings.Count(upTo(s), "/") > 1 && !strings.Contains(upTo(s), "://") {
		n.put(aPath, len(strings.TrimRight(upTo(s), ".,:;)]}'\"")))
		return
	}
	n.word = s[:end]
	to := replaced(n.word)
	if to == aNumber {
		end = address(s, end)
	}
	n.put(to, end)
}

// upTo is s up to the next blank.
func upTo(s string) string {
	s, _, _ = strings.Cut(s, " ")
	return s
}

func wordEnd(s string) int {
	for i := range len(s) {
		c := s[i]
		inner := (c == '-' || c == '_') && i > 0 && i+1 < len(s) && (alnum(s[i+1]) || s[i+1] == c)
		if !alnum(c) && c < utf8.RuneSelf && !inner {
			return i
		}
	}
	return len(s)
}

// address goes on behind a number while numbers follow: decimals, IP addresses
// with ports, times of day.
func address(s string, end int) int {
	for end+1 < len(s) && (s[end] == '.' || s[end] == ':') && digit(s[end+1]) {
		end += 1 + wordEnd(s[end+1:])
	}
	return end
}

// replaced is a word without what differs.
func replaced(w string) string {
	first := strings.IndexFunc(w, func(r rune) bool { return r < utf8.RuneSelf && digit(byte(r)) })
	switch {
	case first < 0:
		if len(w) >= 16 && isHex(w) {
			return anID
		}
		return w
	case measured(w):
		return aNumber
	case strings.HasPrefix(w, "0x"), len(w) >= 8 && isHex(w):
		return anID
	}
	// A name with a number behind it keeps the name.
	name := strings.TrimRight(w[:first], "-_")
	if name != "" && measured(w[first:]) && !strings.ContainsAny(name, "-_") {
		return w[:first] + aNumber
	}
	return anID
}

// measured reports whether w is digits, with a unit of up to three letters
// perhaps.
func measured(w string) bool {
	rest := strings.TrimLeft(w, "0123456789")
	if rest == w || len(rest) > 3 {
		return false
	}
	return strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
}

func isHex(w string) bool {
	return strings.Trim(w, "0123456789abcdefABCDEF-") == ""
}

// moment returns the length of a date, with a time of day perhaps.
func moment(s string) int {
	const day = "0000-00-00"
	if !like(s, day) {
		return 0
	}
	end := len(day)
	if rest := s[end:]; len(rest) > 1 && (rest[0] == 'T' || rest[0] == ' ') && like(rest[1:], "00:00") {
		end += 1 + len(rest[1:]) - len(strings.TrimLeft(rest[1:], "0123456789:.,Z+-"))
		end -= len(s[:end]) - len(strings.TrimRight(s[:end], ".,:+-"))
	}
	return end
}

// like reports whether s begins as the pattern says, in which 0 stands for any
// digit.
func like(s, pattern string) bool {
	if len(s) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		if ok := s[i] == pattern[i] || pattern[i] == '0' && digit(s[i]); !ok {
			return false
		}
	}
	return true
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func alnum(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
