package propose

import (
	"fmt"
	"strings"
)

// names proposes the names of files as ids, or a part of them: a program that
// takes requests often puts the id of one there.
func (st *Study) names() []Candidate {
	if st.Sample.Format.Files != "whole" || len(st.docs) == 0 {
		return nil
	}
	var found []Candidate
	parts := st.nameParts()
	for i, f := range parts {
		s := st.spread(f)
		if f.shape == shapeTime || f.shape == shapeCounter || !s.identifies() || f.unfit > 0 || len(f.values) < 2 {
			continue
		}
		c := Candidate{Expr: f.expr, score: 12, fields: []*field{f}, Warnings: []string{"a file whose name has another form is a dead letter, or not recognised when it comes again"},
			Why: append([]string{fmt.Sprintf("part %d of the files' names, between dots", i+1)}, st.unique(s)...)}
		if s.copies > 0 || f.shape == shapeUUID || f.shape == shapeULID {
			c.score += 10
		}
		found = append(found, c)
	}
	whole := newField(nil, "$meta.file", len(st.docs))
	for i, d := range st.docs {
		whole.set(i, d.File, kindText)
	}
	whole.finish()
	if s := st.spread(whole); s.identifies() && whole.unfit == 0 {
		found = append(found, Candidate{Expr: whole.expr, score: acceptID, fields: []*field{whole},
			Warnings: []string{"a message that comes again under another name is not recognised"},
			Why:      []string{"the name of the file: no two files in a directory have the same"}})
	}
	return found
}

// nameParts are the parts of the names between dots, if all have as many and
// more than one of them differs.
func (st *Study) nameParts() []*field {
	n := strings.Count(st.docs[0].File, ".") + 1
	parts := make([]*field, n)
	for i := range parts {
		parts[i] = newField([]string{"name"}, fmt.Sprintf(`$meta.file | split(".")[%d]`, i), len(st.docs))
	}
	for doc, d := range st.docs {
		texts := strings.Split(d.File, ".")
		if len(texts) != n {
			return nil
		}
		for i, t := range texts {
			parts[i].set(doc, t, kindText)
		}
	}
	differ := 0
	for _, f := range parts {
		f.finish()
		if len(f.values) > 1 {
			differ++
		}
	}
	if differ < 2 {
		return nil
	}
	return parts
}

// standing is what is left where nothing identifies a message: where it stands.
func (st *Study) standing() []Candidate {
	if st.Sample.Format.Files == "whole" {
		return nil
	}
	return []Candidate{{Expr: `$meta.file + "/" + ($meta.position | tostring)`, score: 1,
		Why:      []string{"nothing in the messages identifies them; a file and the byte where a message begins in it name the message"},
		Warnings: []string{"this finds a file that is read twice, and not an event that is written twice: have the producer give each event an id"}}}
}
