package propose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Candidate is an expression that could serve, and what speaks for it and
// against it.
type Candidate struct {
	Expr string   `json:"expr"`
	Why  []string `json:"why"`
	// Warnings are what a person should think about before taking it.
	Warnings []string `json:"warnings,omitempty"`
	// As and Ties are of versions: how they compare, "integer" or "time", and
	// how many messages have the version of another one of their key with other
	// content.
	As   string `json:"as,omitempty"`
	Ties int    `json:"ties,omitempty"`

	score  int
	fields []*field
}

// Rejected is an expression that will not do.
type Rejected struct {
	Expr string `json:"expr"`
	Why  string `json:"why"`
}

// Scores from which on something is proposed.
const (
	acceptID    = 10
	acceptAlone = 20 // a single field that needs no rival
	fewMessages = 5  // with fewer, that all are different says nothing
	shown       = 5  // candidates and rejections
)

// spread is how the values of some fields, taken together, are distributed.
type spread struct {
	distinct int
	absent   int // documents without a value
	copies   int // documents that repeat a value with the same content
	clashes  int // documents that repeat a value with other content
}

// spread counts values. A value that repeats with the same content is the same
// message again, which an id has to show; with other content it names more
// than one message.
func (st *Study) spread(fields ...*field) spread {
	type value [3]int32
	var s spread
	seen := make(map[value]int32, len(st.docs))
	for doc := range st.docs {
		var v value
		there := true
		for i, f := range fields {
			v[i] = f.at[doc]
			there = there && v[i] != none
		}
		content, known := seen[v]
		switch {
		case !there:
			s.absent++
		case !known:
			seen[v] = st.content[doc]
			s.distinct++
		case content == st.content[doc]:
			s.copies++
		default:
			s.clashes++
		}
	}
	return s
}

// identifies: present in all messages, and never the same for two contents.
func (s spread) identifies() bool { return s.absent == 0 && s.clashes == 0 }

// IDs are candidates for message.id, the best first, and notable fields that
// are none.
func (st *Study) IDs() (ids []Candidate, not []Rejected) {
	for _, f := range st.fields {
		if c, ok := st.single(f); ok {
			ids = append(ids, c)
		}
	}
	ids = append(ids, st.states(ids)...)
	ids = append(ids, st.cloudEvents()...)
	if best(ids) < acceptAlone {
		ids = append(ids, st.composites()...)
		ids = append(ids, st.names()...)
	}
	ids = slices.DeleteFunc(ids, func(c Candidate) bool { return c.score < acceptID })
	if len(ids) == 0 && len(st.docs) > 0 {
		ids = append(ids, st.standing()...)
	}
	rank(ids)
	return ids[:min(len(ids), shown)], st.notIDs(ids)
}

func best(cs []Candidate) int {
	score := 0
	for _, c := range cs {
		score = max(score, c.score)
	}
	return score
}

func rank(cs []Candidate) {
	slices.SortStableFunc(cs, func(a, b Candidate) int { return cmp.Compare(b.score, a.score) })
}

// single rates one field as id.
func (st *Study) single(f *field) (Candidate, bool) {
	s := st.spread(f)
	if !s.identifies() || f.neverID() != "" {
		return Candidate{}, false
	}
	name, why := f.idName()
	c := Candidate{Expr: f.expr, Why: st.unique(s), score: name - 3*max(0, len(f.path)-1), fields: []*field{f}}
	if st.contents < fewMessages && name <= 0 {
		return Candidate{}, false
	}
	if name > 0 {
		c.Why = append(c.Why, why)
	}
	if d := f.describe(); d != "" {
		c.Why = append(c.Why, d)
	}
	switch f.shape {
	case shapeUUID, shapeULID:
		c.score += 20
	case shapeHash, shapeToken:
		c.score += 10
	case shapeInteger:
		c.score += 5
	case shapeCounter:
		c.score -= 10
		c.Warnings = append(c.Warnings, "it counts up like a number that a database or a log gives: if it is given when a message is written, the same event published again gets another one")
	case shapeWords:
		c.score -= 30
	}
	if oneOf(strings.Join(wordsOf(f.name()), ""), messageIDs) {
		c.Warnings = append(c.Warnings, "it names the message: a producer that publishes the same event twice may give it two; an id of the business is better, if there is one")
	}
	return c, true
}

// neverID says why a field is no id whatever its values are; "" if it may be.
func (f *field) neverID() string {
	switch f.shape {
	case shapeTime, shapeLocalTime:
		return "it is a time: two events can have the same one, and the same event published again may have another one"
	case shapeNumber:
		return "it has a fraction or an exponent, which two readers may round differently"
	case shapeBool, shapeMixed:
		return "it is neither a string nor an integer everywhere"
	}
	if f.unfit > 0 {
		return "it is empty or longer than 255 bytes in some messages"
	}
	return ""
}

// unique says in words how well values identify.
func (st *Study) unique(s spread) []string {
	why := []string{"present in all " + counted(len(st.docs), "message")}
	switch {
	case st.contents < fewMessages:
		return append(why, "which are too few to tell whether it differs")
	case s.copies == 0:
		return append(why, "all different")
	}
	return append(why, fmt.Sprintf("repeats %s, each time with the same content", often(s.copies)))
}

func often(n int) string {
	if n == 1 {
		return "once"
	}
	return thousands(n) + " times"
}

// states finds records that come again whenever they change: their id is that
// of the entity, and only together with its version that of the event.
func (st *Study) states(singles []Candidate) []Candidate {
	var found []Candidate
	for _, c := range singles {
		f := c.fields[0]
		if c.score < acceptAlone || f.keyName() < 20 || st.isEvent(f) {
			continue
		}
		for _, v := range st.fields {
			if v == f || !sameParent(v, f) || v.versionName() < 36 || !st.versions(v) || v.shape == shapeCounter && len(v.values) == st.contents && st.contents >= fewMessages {
				continue
			}
			s := st.spread(f, v)
			found = append(found, Candidate{Expr: join([]*field{f, v}), score: c.score + 10, fields: []*field{f, v},
				Why: append(st.unique(s), fmt.Sprintf("%s looks like the id of an entity whose state this is, and %s like the state's version: the next state comes under the same %s", f.expr, v.expr, f.expr))})
			break
		}
	}
	return found
}

// cloudEvents proposes what their specification makes unique.
func (st *Study) cloudEvents() []Candidate {
	found := map[string]*field{}
	for _, f := range st.fields {
		if len(f.path) == 1 && f.kinds == kindText && f.present == len(st.docs) && f.unfit == 0 {
			found[f.path[0]] = f
		}
	}
	version, id, source := found["specversion"], found["id"], found["source"]
	if version == nil || version.values[0] != "1.0" || found["type"] == nil || id == nil || source == nil {
		return nil
	}
	s := st.spread(source, id)
	if !s.identifies() {
		return nil
	}
	return []Candidate{{Expr: join([]*field{source, id}), score: 100, fields: []*field{source, id},
		Why: append(st.unique(s), "these are CloudEvents, of which source and id together are unique, not the id alone; message.format: cloudevents reads them as such")}}
}

// isEvent reports that a field stands beside one that names a kind of event, or
// that the messages are about some other entity.
func (st *Study) isEvent(f *field) bool {
	for _, o := range st.fields {
		if sameParent(o, f) && oneOf(strings.Join(wordsOf(o.name()), ""), "event eventtype eventname action verb") {
			return true
		}
		if o != f && o.keyName() >= 20 && o.mayBeKey() && o.present == len(st.docs) && len(o.values) < st.contents && !st.few(o) {
			return true
		}
	}
	return false
}

func sameParent(a, b *field) bool {
	return len(a.path) == len(b.path) && slices.Equal(a.path[:max(0, len(a.path)-1)], b.path[:max(0, len(b.path)-1)])
}

// few reports a small enumeration: a state, a kind, but no entity.
func (st *Study) few(f *field) bool {
	n := len(f.values)
	return f.present >= 20 && (n <= 2 || n*20 < f.present && n <= 12)
}

// maxParts bounds the fields of which combinations are tried.
const maxParts = 12

// composites finds combinations of fields that identify where none does alone.
func (st *Study) composites() []Candidate {
	parts := st.parts()
	var found []Candidate
	for i, a := range parts {
		for _, b := range parts[i+1:] {
			if c, ok := st.composite(a, b); ok {
				found = append(found, c)
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	for i, a := range parts {
		for j, b := range parts[i+1:] {
			for _, c := range parts[i+j+2:] {
				if c, ok := st.composite(a, b, c); ok {
					found = append(found, c)
				}
			}
		}
	}
	return found
}

// parts are the fields that could be part of an id, entities first.
func (st *Study) parts() []*field {
	var parts []*field
	for _, f := range st.fields {
		if f.present == len(st.docs) && f.unfit == 0 && partScore(f) > 0 && len(f.values) > 1 {
			parts = append(parts, f)
		}
	}
	slices.SortStableFunc(parts, func(a, b *field) int { return cmp.Compare(partScore(b), partScore(a)) })
	return parts[:min(len(parts), maxParts)]
}

// partScore says how well a field serves as part of an id.
func partScore(f *field) int {
	switch f.shape {
	case shapeNumber, shapeBool, shapeMixed, shapeWords:
		return 0
	case shapeTime, shapeLocalTime:
		return 2
	}
	if n, _ := f.idName(); n == -60 {
		return 0
	}
	switch {
	case f.versionName() >= 36:
		return 20
	case f.keyName() >= 20:
		return 12
	case f.shape == shapeInteger || f.shape == shapeCounter:
		return 7
	}
	return 5
}

func (st *Study) composite(fields ...*field) (Candidate, bool) {
	s := st.spread(fields...)
	if !s.identifies() || st.contents < 3 {
		return Candidate{}, false
	}
	// The entity first, what counts within it last.
	slices.SortStableFunc(fields, func(a, b *field) int { return cmp.Compare(a.versionName(), b.versionName()) })
	c := Candidate{Why: st.unique(s), score: 4 - 6*(len(fields)-2), fields: fields}
	alone := make([]string, len(fields))
	for i, f := range fields {
		if len(fields) > 2 && st.spread(slices.Delete(slices.Clone(fields), i, i+1)...).identifies() {
			return Candidate{}, false
		}
		c.score += partScore(f)
		alone[i] = fmt.Sprintf("%s has %s", f.expr, counted(len(f.values), "different value"))
		if f.shape == shapeTime || f.shape == shapeLocalTime {
			c.Warnings = append(c.Warnings, f.expr+" is a time: is it that of the event, the same whenever it is published?")
		}
	}
	c.Expr = join(fields)
	c.Why = append(c.Why, "none of its parts is enough: "+strings.Join(alone, ", "))
	return c, true
}

// notIDs says of the fields that somebody would think of why they are none.
func (st *Study) notIDs(ids []Candidate) []Rejected {
	fields := slices.Clone(st.fields)
	slices.SortStableFunc(fields, func(a, b *field) int { return cmp.Compare(b.present, a.present) })
	var all []Rejected
	for _, f := range fields {
		if why := st.notID(f); why != "" && !slices.ContainsFunc(ids, func(c Candidate) bool { return c.Expr == f.expr }) {
			all = append(all, Rejected{f.expr, why})
		}
	}
	return all[:min(len(all), shown)]
}

func (st *Study) notID(f *field) string {
	s := st.spread(f)
	name, why := f.idName()
	switch never := f.neverID(); {
	case never != "" && (s.identifies() || name > 0):
		return never
	case name == -60:
		return why
	case name <= 0 && !(s.identifies() && st.contents >= fewMessages):
		return ""
	case s.absent > 0:
		return fmt.Sprintf("it is absent in %s of %s messages", thousands(s.absent), thousands(len(st.docs)))
	case s.clashes > 0:
		return fmt.Sprintf("it repeats %s with other content: it names something that several messages are about", often(s.clashes))
	case f.shape == shapeWords:
		return "it is text, which may change"
	case name < 0:
		return why
	}
	return ""
}
