package propose

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// Bounds of what is looked at within messages.
const (
	maxFields    = 300
	maxPathBytes = 200
	maxVersions  = 12 // fields that are compared with every possible key
)

// kinds of values that a field has, as a set.
const (
	kindText uint8 = 1 << iota
	kindInteger
	kindNumber
	kindBool
)

const none = -1

// field is a place in the messages, and all values that stand there.
type field struct {
	path []string
	expr string
	// at has for each document the index into values of what it has there;
	// none: nothing, or null.
	at     []int32
	values []string
	kinds  uint8
	index  map[string]int32
	// present counts documents with a value.
	present int
	shape   shape
	unfit   int // values that are no id: empty, or above 255 bytes
	// as is how the values compare as versions: "integer" or "time"; "": not.
	as string
}

// Study is what was found in a sample.
type Study struct {
	Sample *Sample
	docs   []*Document
	// content numbers the documents' bodies; copies have one number.
	content  []int32
	contents int
	fields   []*field
	// TooMany: there are more fields than were looked at.
	TooMany bool

	// versionLike are the fields whose names are those of versions.
	versionLike []*field

	known  map[string]*field
	places map[string]uint8
}

// NewStudy looks at the documents that can be read.
func NewStudy(s *Sample) *Study {
	st := &Study{Sample: s, known: map[string]*field{}, places: map[string]uint8{}}
	bodies := map[[32]byte]int32{}
	for i := range s.Documents {
		d := &s.Documents[i]
		if d.Problem != nil {
			continue
		}
		sum := sha256.Sum256(d.Body)
		n, ok := bodies[sum]
		if !ok {
			n = int32(len(bodies))
			bodies[sum] = n
		}
		st.docs, st.content = append(st.docs, d), append(st.content, n)
	}
	st.contents = len(bodies)
	for i, d := range st.docs {
		w := walker{study: st, doc: i, dec: json.NewDecoder(bytes.NewReader(message.Trim(d.Body)))}
		w.dec.UseNumber()
		w.value(nil, "")
	}
	st.fields = slices.DeleteFunc(st.fields, st.broken)
	for _, f := range st.fields {
		f.finish()
		if f.versionName() >= acceptVersion {
			st.versionLike = append(st.versionLike, f)
		}
	}
	slices.SortStableFunc(st.versionLike, func(a, b *field) int { return cmp.Compare(b.versionName(), a.versionName()) })
	st.versionLike = st.versionLike[:min(len(st.versionLike), maxVersions)]
	return st
}

// Messages is how many messages were understood.
func (st *Study) Messages() int { return len(st.docs) }

// field returns that of a path, nil if it is one too many.
func (st *Study) field(path []string, id string) *field {
	if f, ok := st.known[id]; ok {
		return f
	}
	if len(st.fields) >= maxFields || len(id) > maxPathBytes {
		st.TooMany = true
		return nil
	}
	f := newField(slices.Clone(path), Path(path), len(st.docs))
	st.known[id] = f
	st.fields = append(st.fields, f)
	return f
}

func newField(path []string, expr string, docs int) *field {
	f := &field{path: path, expr: expr, index: map[string]int32{}, at: make([]int32, docs)}
	for i := range f.at {
		f.at[i] = none
	}
	return f
}

// set notes a value.
func (f *field) set(doc int, text string, kind uint8) {
	i, ok := f.index[text]
	if !ok {
		i = int32(len(f.values))
		f.index[text] = i
		f.values = append(f.values, text)
	}
	if f.at[doc] == none {
		f.present++
	}
	f.at[doc] = i
	f.kinds |= kind
}

func (f *field) finish() {
	f.index = nil
	for _, v := range f.values {
		if len(v) == 0 || len(v) > 255 {
			f.unfit++
		}
	}
	f.as = asOf(f)
	f.shape = shapeOf(f)
}

// kinds of places: what stands there in some document.
const (
	placeScalar uint8 = 1 << iota
	placeArray
	placeObject
)

// maxPlaces bounds what is remembered of hostile objects with ever new keys.
const maxPlaces = 4 * maxFields

// walker visits the scalars of one document. The document was checked, so the
// depth is bounded and the decoder has nothing to complain about.
type walker struct {
	study *Study
	doc   int
	dec   *json.Decoder
}

// value reads one value. Arrays are passed over: what is in one belongs to no
// path.
func (w *walker) value(path []string, id string) {
	t, err := w.dec.Token()
	if err != nil {
		return
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '[' {
			w.study.mark(id, placeArray)
			w.skip()
			return
		}
		w.study.mark(id, placeObject)
		w.object(path, id)
	case string:
		w.scalar(path, id, v, kindText)
	case json.Number:
		w.number(path, id, v.String())
	case bool:
		w.scalar(path, id, strconv.FormatBool(v), kindBool)
	}
}

func (w *walker) number(path []string, id, s string) {
	switch {
	case strings.ContainsAny(s, ".eE"):
		w.scalar(path, id, s, kindNumber)
	case s == "-0":
		w.scalar(path, id, "0", kindInteger)
	default:
		w.scalar(path, id, s, kindInteger)
	}
}

func (w *walker) object(path []string, id string) {
	for w.dec.More() {
		key, err := w.dec.Token()
		if err != nil {
			return
		}
		name, _ := key.(string)
		w.value(append(path, name), below(id, name))
	}
	_, _ = w.dec.Token()
}

func (w *walker) skip() {
	for depth := 1; depth > 0; {
		t, err := w.dec.Token()
		if err != nil {
			return
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
}

func (w *walker) scalar(path []string, id, text string, kind uint8) {
	w.study.mark(id, placeScalar)
	if f := w.study.field(path, id); f != nil {
		f.set(w.doc, text, kind)
	}
}

// below names a place for the maps; no key can imitate another path, since
// lengths are part of it.
func below(id, name string) string { return id + strconv.Itoa(len(name)) + ":" + name }

func (st *Study) mark(id string, what uint8) {
	if _, ok := st.places[id]; ok || len(st.places) < maxPlaces {
		st.places[id] |= what
	}
}

// broken reports a field to which no expression leads in every document: it,
// or something on the way to it, is something else in another document.
func (st *Study) broken(f *field) bool {
	id := ""
	for _, name := range f.path {
		if st.places[id]&^placeObject != 0 {
			return true
		}
		id = below(id, name)
	}
	return st.places[id]&^placeScalar != 0
}
