package propose

import (
	"fmt"
	"slices"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/message"
)

// acceptKey is the score from which on a key is proposed, and acceptVersion
// the same for versions.
const (
	acceptKey     = 20
	acceptVersion = 15
)

// Keys are candidates for message.key, the best first. id is the expression
// that was chosen for message.id: what is different in every message is a key
// only as a part of it.
func (st *Study) Keys(id string) []Candidate {
	var keys []Candidate
	var envelope []*field // of CloudEvents: its id is no entity
	for _, c := range st.cloudEvents() {
		envelope = c.fields
	}
	for _, f := range st.fields {
		if f.expr == id || slices.Contains(envelope, f) || !f.mayBeKey() || f.present != len(st.docs) {
			continue
		}
		if c := st.key(f); c.score >= acceptKey {
			keys = append(keys, c)
		}
	}
	rank(keys)
	return keys[:min(len(keys), shown)]
}

func (f *field) mayBeKey() bool {
	switch f.shape {
	case shapeUUID, shapeULID, shapeHash, shapeToken, shapeInteger, shapeCounter, shapeWords:
		return f.unfit == 0
	}
	return false
}

// key rates a field as key.
func (st *Study) key(f *field) Candidate {
	c := Candidate{Expr: f.expr, score: f.keyName() - 2*max(0, len(f.path)-2), fields: []*field{f}}
	distinct := len(f.values)
	if c.score > 0 {
		c.Why = append(c.Why, "its name says that it identifies something")
	}
	switch {
	case st.few(f):
		c.score -= 25
	case distinct < st.contents:
		c.score += 15
		c.Why = append(c.Why, fmt.Sprintf("%s in %s, so that several messages are about one of them", counted(distinct, "different value"), counted(len(st.docs), "message")))
	default:
		c.Why = append(c.Why, "different in every message that was looked at")
	}
	if f.shape == shapeWords {
		c.score -= 20
	}
	versions, _ := st.versionsOf(f)
	if len(versions) > 0 && versions[0].Ties == 0 {
		c.score += 10
		if sameParent(versions[0].fields[0], f) {
			c.score += 10
		}
		c.Why = append(c.Why, versions[0].Expr+" orders the messages of each")
	}
	return c
}

// Versions are candidates for arbitrate.version with the expression key as key,
// the best first, and fields that look like one and are none.
func (st *Study) Versions(key string) ([]Candidate, []Rejected) {
	f := st.find(key)
	if f == nil {
		return nil, nil
	}
	return st.versionsOf(f)
}

// find returns the field of an expression, whatever the expression is; nil if
// it does not have a value in every message.
func (st *Study) find(expr string) *field {
	if i := slices.IndexFunc(st.fields, func(f *field) bool { return f.expr == expr }); i >= 0 {
		if f := st.fields[i]; f.present == len(st.docs) {
			return f
		}
		return nil
	}
	e, err := message.Compile("expression", expr)
	if err != nil {
		return nil
	}
	decoder := message.NewDecoder(message.Rules{ID: e})
	f := newField(nil, expr, len(st.docs))
	for i, d := range st.docs {
		m := d.Delivery()
		if decoder.Decode(m) != nil {
			return nil
		}
		f.set(i, m.ID, kindText)
	}
	f.finish()
	return f
}

func (st *Study) versionsOf(key *field) (found []Candidate, not []Rejected) {
	for _, f := range st.versionLike {
		score := f.versionName()
		if f == key {
			continue
		}
		if why := st.notVersion(f); why != "" {
			not = append(not, Rejected{f.expr, why})
			continue
		}
		ties, late := st.ties(key, f)
		if ties*10 > len(st.docs) {
			not = append(not, Rejected{f.expr, fmt.Sprintf("it does not order the messages of a key: %s of %s share it with another one that has other content", thousands(ties), thousands(len(st.docs)))})
			continue
		}
		found = append(found, st.version(key, f, score, ties, late))
	}
	rank(found)
	return found[:min(len(found), shown)], not[:min(len(not), shown)]
}

func (st *Study) version(key, f *field, score, ties, late int) Candidate {
	c := Candidate{Expr: f.expr, As: "integer", Ties: ties, score: score - ties, fields: []*field{f}}
	if sameParent(key, f) {
		c.score += 10
	}
	c.Why = append(c.Why, "present in all "+counted(len(st.docs), "message"), "its name says that it grows")
	if f.as == "time" {
		c.As = "time"
		c.Why = append(c.Why, "a time with a zone")
	}
	if late > 0 {
		c.Why = append(c.Why, fmt.Sprintf("of the sample, %s after a newer one of their key, which would be overwritten", arrive(late)))
	}
	if ties > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("ties, which need a rule: %s with the version of another one of their key and other content", counted(ties, "message")))
	}
	return c
}

// As says how the values of an expression compare as versions, "integer" or
// "time"; "" if some message has none that does.
func (st *Study) As(expr string) string {
	e, err := message.Compile("expression", expr)
	if err != nil {
		return ""
	}
	for _, as := range [...]string{"integer", "time"} {
		decoder := message.NewDecoder(message.Rules{Version: e, VersionTime: as == "time"})
		if !slices.ContainsFunc(st.docs, func(d *Document) bool {
			m := d.Delivery()
			return decoder.Decode(m) != nil || !m.Version.Set
		}) {
			return as
		}
	}
	return ""
}

// Ties counts the messages that have the version of another one of their key
// with other content.
func (st *Study) Ties(key, version, as string) int {
	k, err := message.Compile("key", key)
	if err != nil {
		return 0
	}
	v, err := message.Compile("version", version)
	if err != nil {
		return 0
	}
	type pair struct {
		key string
		n   int64
	}
	decoder := message.NewDecoder(message.Rules{Key: k, Version: v, VersionTime: as == "time"})
	first, ties := map[pair]int32{}, 0
	for i, d := range st.docs {
		m := d.Delivery()
		if decoder.Decode(m) != nil || !m.Version.Set {
			continue
		}
		content, known := first[pair{m.Key, m.Version.N}]
		if !known {
			first[pair{m.Key, m.Version.N}] = st.content[i]
		} else if content != st.content[i] {
			ties++
		}
	}
	return ties
}

// versions reports that every message has a version there.
func (st *Study) versions(f *field) bool { return st.notVersion(f) == "" }

func (st *Study) notVersion(f *field) string {
	switch {
	case f.shape == shapeLocalTime:
		return "it is a time without a zone, which orders wrongly when clocks change"
	case f.as == "":
		return "it is neither an integer nor a time with a zone everywhere"
	case f.present < len(st.docs):
		return fmt.Sprintf("it is absent in %s of %s messages", thousands(len(st.docs)-f.present), thousands(len(st.docs)))
	case len(f.values) == 1 && st.contents >= fewMessages:
		return "it is the same in all messages"
	}
	return ""
}

// asOf says how the values compare as versions; "" if they do not.
func asOf(f *field) string {
	switch {
	case f.kinds&^(kindText|kindInteger) != 0 || f.kinds == 0:
		return ""
	case f.all(func(s string) bool { return parses(s, false) }):
		return "integer"
	case f.all(func(s string) bool { return parses(s, true) }):
		return "time"
	}
	return ""
}

// ties counts the messages with the version of another one of their key and
// other content, and those that come after a newer one.
func (st *Study) ties(key, version *field) (ties, late int) {
	parsed := make([]int64, len(version.values))
	for i, v := range version.values {
		parsed[i] = parse(v, version.as == "time").N
	}
	type pair struct {
		key int32
		n   int64
	}
	first := map[pair]int32{}
	newest := map[int32]int64{}
	for doc := range st.docs {
		p := pair{key.at[doc], parsed[version.at[doc]]}
		content, known := first[p]
		switch n, seen := newest[p.key]; {
		case known && content != st.content[doc]:
			ties++
		case seen && !known && p.n < n:
			late++
		}
		if !known {
			first[p] = st.content[doc]
		}
		if n, seen := newest[p.key]; !seen || p.n > n {
			newest[p.key] = p.n
		}
	}
	return ties, late
}

func parses(s string, asTime bool) bool { return parse(s, asTime).Set }

// parse reads a version as the pipeline would; the zero one if it cannot.
func parse(s string, asTime bool) semel.Version {
	v, err := parserOf(asTime)(s)
	if err != nil {
		return semel.Version{}
	}
	return v
}

func arrive(n int) string {
	if n == 1 {
		return "1 message comes"
	}
	return thousands(n) + " messages come"
}
