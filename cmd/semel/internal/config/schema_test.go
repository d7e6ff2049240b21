package config

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	repository = "../../../.."
	schemaPath = repository + "/docs/reference/pipeline.schema.json"
)

// editorSchema compiles the schema that editors use.
func editorSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON reads YAML as an editor does; the error is one of YAML.
func asJSON(text string) (any, error) {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(b))
}

// node is a part of the schema.
type node struct {
	Ref         string           `json:"$ref"`
	Description string           `json:"description"`
	Properties  map[string]*node `json:"properties"`
	Enum        []string         `json:"enum"`
	Defs        map[string]*node `json:"$defs"`
}

func schemaTree(t *testing.T) *node {
	t.Helper()
	b, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	var n node
	if err := json.Unmarshal(b, &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

// unlike is near no word, so that the parser lists what there is.
const unlike = "zzzzzzzzzzzzzzzz"

// wordsOf asks the parser: it answers a word that does not exist with a list
// of those that do.
func wordsOf(t *testing.T, text string) []string {
	t.Helper()
	_, err := load(t, text, options())
	if err == nil {
		t.Fatalf("%s was taken", unlike)
	}
	for line := range strings.Lines(err.Error()) {
		if _, list, ok := strings.Cut(line, ": one of "); ok && strings.Contains(line, unlike) {
			words := strings.Split(strings.TrimSpace(list), ", ")
			slices.Sort(words)
			return words
		}
	}
	t.Fatalf("no list in %v", err)
	return nil
}

// TestSchemaHasTheKeysOfTheParser, and no others, with the same words.
func TestSchemaHasTheKeysOfTheParser(t *testing.T) {
	top := schemaTree(t)
	for where, s := range map[string]struct {
		node *node
		text string // with a key that does not exist
	}{
		"the file":         {top, unlike + ": 1\n"},
		"message":          {top.Properties["message"], "message: {" + unlike + ": 1}\n"},
		"arbitrate":        {top.Properties["arbitrate"], "arbitrate: {" + unlike + ": 1}\n"},
		"handle":           {top.Properties["handle"], "handle: {" + unlike + ": 1}\n"},
		"retry":            {top.Properties["retry"], "retry: {" + unlike + ": 1}\n"},
		"handle.http":      {top.Properties["handle"].Properties["http"], "handle: {http: {" + unlike + ": 1}}\n"},
		"handle.exec":      {top.Properties["handle"].Properties["exec"], "handle: {exec: {" + unlike + ": 1}}\n"},
		"handle.index":     {top.Properties["handle"].Properties["index"], "handle: {index: {" + unlike + ": 1}}\n"},
		"a step of handle": {top.Defs["step"], "handle: {sql: [{" + unlike + ": 1}]}\n"},
	} {
		want := wordsOf(t, s.text)
		if got := slices.Sorted(maps.Keys(s.node.Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the parser %q", where, got, want)
		}
		for key, n := range s.node.Properties {
			if n.Description == "" {
				t.Errorf("%s: %s has no description", where, key)
			}
			if n.Properties == nil {
				checkWords(t, strings.ReplaceAll(s.text, unlike+": 1", key+": "+unlike), where+": "+key, n)
			}
		}
	}
}

// checkWords compares the words of a key. One without words is not answered
// with a list.
func checkWords(t *testing.T, text, what string, n *node) {
	t.Helper()
	_, err := load(t, text, options())
	if choice := err != nil && strings.Contains(err.Error(), unlike+`": one of `) && strings.Contains(err.Error(), "cannot be"); !choice {
		if n.Enum != nil {
			t.Errorf("%s: the schema has the words %q, the parser none", what, n.Enum)
		}
		return
	}
	got, want := slices.Sorted(slices.Values(n.Enum)), wordsOf(t, text)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the schema has the words %q, the parser %q", what, got, want)
	}
}

// pipelinesOf finds the pipeline files and examples of the repository.
func pipelinesOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"good": good, "small": small}
	err := filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name()[0] == '.' && e.Name() != ".." && path != repository:
			return filepath.SkipDir
		case !slices.Contains([]string{".md", ".yaml", ".yml"}, filepath.Ext(path)):
			return nil
		}
		b, err := os.ReadFile(path)
		for i, text := range yamlIn(path, string(b)) {
			if pipelineLike.MatchString(text) {
				all[strings.TrimPrefix(path, repository+"/")+strings.Repeat("'", i)] = text
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// pipelineLike tells pipeline files from other YAML, and from parts of one.
var pipelineLike = regexp.MustCompile(`(?ms)^name: .*^source: .*^message:`)

func yamlIn(path, text string) (all []string) {
	if filepath.Ext(path) != ".md" {
		return []string{text}
	}
	for _, part := range strings.Split(text, "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		all = append(all, block)
	}
	return all
}

func TestSchemaTakesEveryExample(t *testing.T) {
	s, all := editorSchema(t), pipelinesOf(t)
	if len(all) < 7 {
		t.Errorf("only %d pipelines were found", len(all))
	}
	for name, text := range all {
		v, err := asJSON(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// beyond are problems that a schema cannot see: in jq, SQL and other files, in
// the environment, in the build, or between values.
var beyond = regexp.MustCompile(`(?m)^[^ ]+ (message\.[a-z]+: (function|not a jq|now is|none\.json|bad\.json)|message\.id is the same|` +
	`message\.max_bytes must be a size|handle\.sql: |handle\.with\.[a-z]+(: the jq| is not used)|ids would be|source: this build|store: |setup: |` +
	`a delay of retry\.delays is above|handle\.(http|exec)\.(expect: [0-9]+ is in|timeout is above|body: )|handle\.http\.(headers: |ask\.url is the same|url: the environment)|handle\.exec\.env\.|handle\.index(: |\.password: | has no version)|anchors|delimiter must be one character: write .*)`)

// TestSchemaRefusesWhatTheParserRefuses, as far as it can be said in one.
func TestSchemaRefusesWhatTheParserRefuses(t *testing.T) {
	s := editorSchema(t)
	refused := 0
	for _, tc := range problems {
		v, err := asJSON(strings.Replace(small, tc.replace, tc.with, 1))
		if err != nil || v == nil {
			continue // an editor says so without a schema
		}
		taken := s.Validate(v) == nil
		switch unseen := beyond.MatchString(tc.want); {
		case taken && !unseen:
			t.Errorf("%q: the schema takes what the parser refuses: %s", tc.with, tc.want)
		case !taken:
			refused++
		}
	}
	if refused < 30 {
		t.Errorf("the schema refused %d of %d", refused, len(problems))
	}
}

// TestExamplesNameTheSchema, so that editors find it.
func TestExamplesNameTheSchema(t *testing.T) {
	for name, text := range pipelinesOf(t) {
		if ext := filepath.Ext(name); ext != ".yaml" {
			continue
		}
		_, rest, ok := strings.Cut(text, "# yaml-language-server: $schema=")
		path, _, _ := strings.Cut(rest, "\n")
		if _, err := os.Stat(filepath.Join(repository, filepath.Dir(name), path)); !ok || err != nil {
			t.Errorf("%s does not name its schema: %v", name, err)
		}
	}
}
