package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/letter/filter"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// sameBody reports whether an imported body means what the letter has: the
// same bytes, or JSON with the same values in the same order. An editor may
// have changed blanks, escapes and the notation of numbers.
func sameBody(have, imported []byte) bool {
	if bytes.Equal(have, imported) {
		return (have == nil) == (imported == nil)
	}
	return message.Strict(have) && message.Strict(imported) && sameTokens(have, imported)
}

func sameTokens(a, b []byte) bool {
	x, y := json.NewDecoder(bytes.NewReader(a)), json.NewDecoder(bytes.NewReader(b))
	x.UseNumber()
	y.UseNumber()
	for {
		s, errX := x.Token()
		t, errY := y.Token()
		switch {
		case errX != nil || errY != nil:
			return errors.Is(errX, io.EOF) && errors.Is(errY, io.EOF)
		case !sameToken(s, t):
			return false
		}
	}
}

func sameToken(s, t json.Token) bool {
	n, isNumber := s.(json.Number)
	m, both := t.(json.Number)
	if !isNumber || !both {
		return s == t
	}
	x, okX := filter.Decimal(n.String())
	y, okY := filter.Decimal(m.String())
	return okX && okY && x.Cmp(y) == 0
}

// maxChanges is how many places of a change are told.
const maxChanges = 5

// changes names the places where two bodies differ, so that a person sees a
// change that was not meant; values stay out of it. It is empty if they are not
// both JSON.
func changes(have, imported []byte) string {
	if !message.Strict(have) || !message.Strict(imported) {
		return ""
	}
	var places []string
	diff(decoded(have), decoded(imported), "", &places)
	slices.Sort(places)
	if len(places) > maxChanges {
		places = append(places[:maxChanges], "…")
	}
	return strings.Join(places, ", ")
}

func decoded(b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	_ = d.Decode(&v) // it was checked
	return v
}

func diff(a, b any, path string, places *[]string) {
	if len(*places) > maxChanges {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			diffFields(x, y, path, places)
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				diff(x[i], y[i], path+"["+strconv.Itoa(i)+"]", places)
			}
			return
		}
	default:
		switch b.(type) {
		case map[string]any, []any:
		default:
			if sameToken(a, b) {
				return
			}
		}
	}
	*places = append(*places, first(path, "."))
}

func diffFields(x, y map[string]any, path string, places *[]string) {
	for name, v := range x {
		if w, ok := y[name]; ok {
			diff(v, w, path+"."+name, places)
		} else {
			*places = append(*places, path+"."+name)
		}
	}
	for name := range y {
		if _, ok := x[name]; !ok {
			*places = append(*places, path+"."+name)
		}
	}
}
