package docs_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lesson is a page whose commands can be run.
type lesson struct {
	steps []step
	// differ are words of the page that stand for others, the longest first.
	differ []*stand
	ignore []*regexp.Regexp
}

// step is a command with its output, or a file with its content.
type step struct {
	file, text string
	want       []string
}

// stand is a word of the page and what may stand in its place.
type stand struct {
	word, pattern string
	same          bool   // once seen, it is that
	is            string // what it was seen to be
}

var (
	declaration = regexp.MustCompile(`^<!-- (differs|same|ignored|file): (.*) -->$`)
	spaces      = regexp.MustCompile(`[ \t]+`)
)

func squeeze(s string) string { return strings.TrimSpace(spaces.ReplaceAllString(s, " ")) }

func parseLesson(text string) (*lesson, error) {
	l := &lesson{}
	file, fence := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := declaration.FindStringSubmatch(line)
		last := len(l.steps) - 1
		switch {
		case fence != "" && line == "```":
			fence = ""
		case fence == "console" && strings.HasPrefix(line, "$ "):
			l.steps = append(l.steps, step{text: line[2:]})
		case fence == "console":
			l.steps[last].want = append(l.steps[last].want, line)
		case fence == "file":
			l.steps[last].text += line + "\n"
		case fence != "":
		case line == "```console":
			fence = "console"
		case strings.HasPrefix(line, "```") && file != "":
			l.steps = append(l.steps, step{file: file})
			file, fence = "", "file"
		case strings.HasPrefix(line, "```"):
			fence = "other"
		case m != nil && m[1] == "file":
			file = m[2]
		case m != nil:
			if err := l.declare(m[1], m[2]); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(l.differ, func(a, b *stand) int { return cmp.Compare(len(b.word), len(a.word)) })
	return l, nil
}

func (l *lesson) declare(kind, what string) error {
	if kind == "ignored" {
		re, err := regexp.Compile(what)
		l.ignore = append(l.ignore, re)
		return err
	}
	word, pattern, ok := strings.Cut(what, " = ")
	if _, err := regexp.Compile(pattern); !ok || err != nil {
		return fmt.Errorf("%s: %q: %w", kind, what, err)
	}
	l.differ = append(l.differ, &stand{word: squeeze(word), pattern: pattern, same: kind == "same"})
	return nil
}

// bound puts what was seen into a command.
func (l *lesson) bound(command string) (string, error) {
	for _, s := range l.differ {
		if !s.same || !strings.Contains(command, s.word) {
			continue
		}
		if s.is == "" {
			return "", fmt.Errorf("%s: %s was not seen before", command, s.word)
		}
		command = strings.ReplaceAll(command, s.word, s.is)
	}
	return command, nil
}

// clearLine is how a line that shows progress gives way to the next one.
const clearLine = "\r\x1b[K"

// compare compares output with what the page shows.
func (l *lesson) compare(output string, want []string) error {
	var got []string
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, clearLine); i >= 0 {
			line = line[i+len(clearLine):]
		}
		if !slices.ContainsFunc(l.ignore, func(re *regexp.Regexp) bool { return re.MatchString(line) }) {
			got = append(got, line)
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !l.match(squeeze(got[i]), squeeze(want[i])) {
			return fmt.Errorf("line %d differs; it printed\n  %s\nand the page shows\n  %s", i+1, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
	return nil
}

// match compares a line, and learns what the words in it stand for.
func (l *lesson) match(got, want string) bool {
	var pattern strings.Builder
	var groups []*stand
	for rest := want; rest != ""; {
		at, s := l.next(rest)
		pattern.WriteString(regexp.QuoteMeta(rest[:at]))
		rest = rest[at:]
		if s == nil {
			break
		}
		rest = rest[len(s.word):]
		if s.is != "" {
			pattern.WriteString(regexp.QuoteMeta(s.is))
			continue
		}
		pattern.WriteString("(" + strings.NewReplacer("(?:", "(?:", "(", "(?:").Replace(s.pattern) + ")")
		groups = append(groups, s)
	}
	m := regexp.MustCompile("^" + pattern.String() + "$").FindStringSubmatch(got)
	if m == nil {
		return false
	}
	for i, s := range groups {
		if s.same && s.is != "" && s.is != m[i+1] {
			return false
		}
		if s.same {
			s.is = m[i+1]
		}
	}
	return true
}

// next finds the first declared word, the longest of those that begin there.
func (l *lesson) next(s string) (at int, found *stand) {
	at = len(s)
	for _, d := range l.differ {
		if i := strings.Index(s, d.word); i >= 0 && i < at {
			at, found = i, d
		}
	}
	return at, found
}

// TestTutorialCannotLie: the comparison finds what it is there for.
func TestTutorialCannotLie(t *testing.T) {
	l, err := parseLesson("<!-- differs: 1.8 s = [0-9.]+ m?s -->\n<!-- same: ab12 = [a-z0-9]{4} -->\n<!-- ignored: ^progress -->\n" +
		"```console\n$ one\nit took   1.8 s\nref ab12\n$ show ab12\nab12\n```\n<!-- file: x.yaml -->\n```yaml\na: b\n```\n```yaml\nnot: this\n```\n")
	if err != nil || len(l.steps) != 3 || l.steps[2].file != "x.yaml" || l.steps[2].text != "a: b\n" {
		t.Fatalf("%v %+v", err, l)
	}
	if _, err := l.bound("show ab12"); err == nil {
		t.Error("a reference was used before it was seen")
	}
	for _, wrong := range []string{"", "it took 30 ms\n", "it took ages\nref zz99\n", "it took 30 ms\nref zz999\n", "it took 30 ms\nref zz99\nmore\n"} {
		if l.compare(wrong, l.steps[0].want) == nil {
			t.Errorf("%q was taken for what the page shows", wrong)
		}
	}
	l.differ[1].is = "" // a wrong line may have bound it
	for _, s := range l.differ {
		s.is = ""
	}
	if err := l.compare("progress 1\n\r\x1b[K12 done\r\x1b[Kit took 30 ms\nref zz99\n", l.steps[0].want); err != nil {
		t.Error(err)
	}
	if c, err := l.bound("show ab12"); err != nil || c != "show zz99" {
		t.Errorf("%q, %v", c, err)
	}
	if l.compare("zz98\n", l.steps[1].want) == nil {
		t.Error("another reference was taken for the same")
	}
}
