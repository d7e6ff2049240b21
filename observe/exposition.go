package observe

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// page is metrics in the text format of Prometheus, version 0.0.4. It is made
// as a whole, so that whoever reads it slowly keeps only himself waiting.
type page struct {
	bytes.Buffer
	escape *strings.Replacer // in values of labels
	common string            // labels of all samples
	name   string            // of the present family
}

func newPage(labels ...string) *page {
	p := &page{escape: strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)}
	p.common = p.pairs(labels)
	return p
}

// family begins the samples of one name.
func (p *page) family(name, kind, help string) {
	p.name = name
	p.write("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")
}

// sample writes one; labels are names and values in turn.
func (p *page) sample(v float64, labels ...string) { p.line("", v, p.pairs(labels)) }

func (p *page) line(suffix string, v float64, labels string) {
	all := p.common
	if labels != "" && all != "" {
		all += ","
	}
	all += labels
	if all != "" {
		all = "{" + all + "}"
	}
	p.write(p.name, suffix, all, " ", number(v), "\n")
}

// histogram writes the samples of one.
func (p *page) histogram(h *histogram) {
	var below int64
	for i, bound := range h.bounds {
		below += h.counts[i]
		p.line("_bucket", float64(below), p.pairs([]string{"le", number(bound)}))
	}
	p.line("_bucket", float64(h.count()), p.pairs([]string{"le", "+Inf"}))
	p.line("_sum", h.sum, "")
	p.line("_count", float64(h.count()), "")
}

func (p *page) write(parts ...string) {
	for _, s := range parts {
		p.WriteString(s)
	}
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func (p *page) pairs(labels []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(labels); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(labels[i] + `="` + strings.ToValidUTF8(p.escape.Replace(labels[i+1]), "�") + `"`)
	}
	return b.String()
}

// histogram counts values by bounds; the last count is of those above all.
type histogram struct {
	bounds []float64
	counts []int64
	sum    float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

func (h *histogram) count() (n int64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}
