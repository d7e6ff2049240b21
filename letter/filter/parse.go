package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a filter.
const (
	MaxBytes = 16 << 10
	maxTerms = 100
)

// Parse reads a filter. The error is an *Error.
func Parse(text string) (*Filter, error) {
	p := &parser{text: text, fields: fields()}
	if len(text) > MaxBytes {
		return nil, &Error{Text: "", Msg: fmt.Sprintf("it has %d bytes", len(text)), Remedy: fmt.Sprintf("at most %d are allowed", MaxBytes)}
	}
	f := &Filter{text: text}
	for p.blanks(); p.at < len(text); p.blanks() {
		if p.and(len(f.terms)) {
			continue
		}
		if len(f.terms) == maxTerms {
			return nil, p.fail(p.at, "there are too many terms", fmt.Sprintf("at most %d are allowed", maxTerms))
		}
		t, err := p.term()
		if err != nil {
			return nil, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

type parser struct {
	text   string
	at     int
	fields []*field
}

func (p *parser) fail(at int, msg, remedy string) *Error {
	return &Error{Text: p.text, At: at, Msg: msg, Remedy: remedy}
}

func (p *parser) rest() string { return p.text[p.at:] }

func (p *parser) blanks() {
	p.at = len(p.text) - len(strings.TrimLeftFunc(p.rest(), unicode.IsSpace))
}

// and takes the word between two terms.
func (p *parser) and(terms int) bool {
	word := p.word()
	if terms == 0 || !strings.EqualFold(word, "and") {
		return false
	}
	p.at += len(word)
	return true
}

// word is the text up to the next blank.
func (p *parser) word() string {
	end := strings.IndexFunc(p.rest(), unicode.IsSpace)
	if end < 0 {
		return p.rest()
	}
	return p.rest()[:end]
}

func (p *parser) term() (t term, err error) {
	t.at = p.at
	var ops []string
	if strings.HasPrefix(p.rest(), ".") {
		ops = all
		t.path, err = p.path()
	} else {
		t.field, err = p.field()
		if err == nil {
			ops = t.field.ops
		}
	}
	if err != nil {
		return t, err
	}
	if t.op, err = p.operator(t.at, ops); err != nil {
		return t, err
	}
	t.items, err = p.values(&t)
	t.end = p.at
	return t, err
}

func (p *parser) field() (*field, error) {
	end := strings.IndexFunc(p.rest(), func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		end = len(p.rest())
	}
	name := p.rest()[:end]
	if i := slices.IndexFunc(p.fields, func(f *field) bool { return f.name == name }); i >= 0 {
		p.at += end
		return p.fields[i], nil
	}
	names := strings.Join(Fields(), ", ") + ", and .NAME for a field of the body"
	switch near := nearest(strings.ToLower(name), Fields()); {
	case name == "":
		return nil, p.fail(p.at, "a field is expected", "fields are "+names)
	case strings.EqualFold(name, "or"):
		return nil, p.fail(p.at, "there is no or", "alternatives are separated by commas, such as state=dead,edited")
	case near != "":
		return nil, p.fail(p.at, strconv.Quote(name)+" is not a field", "did you mean "+near+"?")
	}
	return nil, p.fail(p.at, strconv.Quote(name)+" is not a field", "fields are "+names)
}

// path reads .a.b and ."odd name".
func (p *parser) path() (path []string, err error) {
	for strings.HasPrefix(p.rest(), ".") {
		at := p.at
		p.at++
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, p.fail(at, "a name is missing behind the dot", `write .order.total, or ."odd name" for names with other characters`)
		}
		path = append(path, name)
	}
	return path, nil
}

func (p *parser) name() (string, error) {
	if strings.HasPrefix(p.rest(), `"`) {
		return p.quoted()
	}
	end := strings.IndexFunc(p.rest(), func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		end = len(p.rest())
	}
	name := p.rest()[:end]
	p.at += end
	return name, nil
}

func (p *parser) operator(from int, allowed []string) (string, error) {
	name := p.text[from:p.at]
	for _, op := range []string{"!=", "!~", "<=", ">=", "=", "~", "<", ">"} {
		if !strings.HasPrefix(p.rest(), op) {
			continue
		}
		if !slices.Contains(allowed, op) {
			return "", p.fail(p.at, fmt.Sprintf("%s does not go with %s", op, name), fmt.Sprintf("it has %s", strings.Join(allowed, " ")))
		}
		p.at += len(op)
		return op, nil
	}
	example := name + allowed[0] + "VALUE"
	return "", p.fail(p.at, "an operator is expected behind "+name, fmt.Sprintf("write %s, without blanks; %s has %s", example, name, strings.Join(allowed, " ")))
}

// values reads one value, or several that are separated by commas.
func (p *parser) values(t *term) (items []item, err error) {
	list := t.op == "=" || t.op == "!="
	for {
		from := p.at
		i, err := p.value(list)
		if err != nil {
			return nil, err
		}
		if i.text == "" && !i.quoted {
			return nil, p.fail(from, "a value is missing behind "+p.text[t.at:from], `write it without blanks; "" is the empty text`)
		}
		if t.field != nil && t.field.parse != nil {
			if i.value, err = t.field.parse(i.text); err != nil {
				return nil, p.fail(from, strconv.Quote(i.text)+" does not go with "+t.field.name, err.Error())
			}
		}
		items = append(items, i)
		if !list || !strings.HasPrefix(p.rest(), ",") {
			return items, p.ended()
		}
		p.at++
	}
}

func (p *parser) value(list bool) (i item, err error) {
	if strings.HasPrefix(p.rest(), `"`) {
		i.quoted = true
		i.text, err = p.quoted()
		return i, err
	}
	end := strings.IndexFunc(p.rest(), func(r rune) bool { return unicode.IsSpace(r) || list && r == ',' })
	if end < 0 {
		end = len(p.rest())
	}
	i.text = p.rest()[:end]
	p.at += end
	return i, nil
}

// ended wants a blank behind a value.
func (p *parser) ended() error {
	r, _ := utf8.DecodeRuneInString(p.rest())
	if p.at < len(p.text) && !unicode.IsSpace(r) {
		return p.fail(p.at, "something follows the closing quote", "separate terms by blanks and alternatives by commas")
	}
	return nil
}

// quoted reads a text in double quotes.
func (p *parser) quoted() (string, error) {
	from := p.at
	var b strings.Builder
	for i := from + 1; i < len(p.text); i++ {
		switch c := p.text[i]; c {
		case '"':
			p.at = i + 1
			return b.String(), nil
		case '\\':
			n, size, ok := escaped(p.text[i:])
			if !ok {
				return "", p.fail(i, "this is not an escape", `\" \\ \n \t and \u0041 are`)
			}
			b.WriteString(n)
			i += size - 1
		default:
			b.WriteByte(c)
		}
	}
	return "", p.fail(from, "the text that begins here has no end", `close it with "; inside of it a quote is \"`)
}

// escaped reads an escape of JSON.
func escaped(s string) (text string, size int, ok bool) {
	if len(s) < 2 {
		return "", 0, false
	}
	if at := strings.IndexByte(`"\/bfnrt`, s[1]); at >= 0 {
		return "\"\\/\b\f\n\r\t"[at : at+1], 2, true
	}
	if s[1] != 'u' || len(s) < 6 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 32)
	if err != nil || n >= 0xD800 && n < 0xE000 {
		return "", 0, false
	}
	return string(rune(n)), 6, true
}
