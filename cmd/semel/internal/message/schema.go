package message

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	broken "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/semel-dev/semel"
)

// Schema is a compiled JSON Schema.
type Schema struct {
	path   string
	schema *jsonschema.Schema
}

// LoadSchema compiles the schema in a file and what it refers to on the same
// disk. Formats are asserted: who writes format: date-time wants it checked.
// Without $schema it is draft 2020-12.
func LoadSchema(path string) (*Schema, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(diskLoader{})
	s, err := c.Compile((&url.URL{Scheme: "file", Path: abs}).String())
	if err != nil {
		return nil, schemaError(err)
	}
	return &Schema{path: path, schema: s}, nil
}

// schemaError takes the compiler's wrapping off: it quotes URLs of ours.
func schemaError(err error) error {
	var load *jsonschema.LoadURLError
	var form *jsonschema.SchemaValidationError
	switch {
	case errors.As(err, &load):
		return load.Err
	case errors.As(err, &form):
		return fmt.Errorf("not a JSON Schema: %w", form.Err)
	}
	return err
}

// diskLoader reads schemas from files. Fetching one over the network would
// let somebody else decide what is valid, and when.
type diskLoader struct{}

func (diskLoader) Load(ref string) (any, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "file" {
		return nil, fmt.Errorf("it refers to %s: schemas are read from files only; keep a copy beside the pipeline", ref)
	}
	f, err := os.Open(filepath.FromSlash(u.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return jsonschema.UnmarshalJSON(f)
}

// check validates a body. The error says where and which rule, not what stood
// there.
func (s *Schema) check(tree any) error {
	err := s.schema.Validate(tree)
	if err == nil {
		return nil
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return semel.Invalidf("the body could not be checked against %s", s.path)
	}
	v = leaf(v)
	return semel.Invalidf("the body violates %s at %s: %s", filepath.Base(s.path), pointer(v.InstanceLocation), rule(v))
}

// leaf is the first cause that has no cause of its own.
func leaf(v *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	return v
}

// schemaName is what a schema calls its properties. A key of another form was
// chosen by whoever wrote the message, and may be long or private.
var schemaName = regexp.MustCompile(`^[A-Za-z0-9_.$-]{1,64}$`)

func pointer(path []string) string {
	if len(path) == 0 {
		return "the top"
	}
	var b strings.Builder
	for _, p := range path {
		if !schemaName.MatchString(p) {
			p = "*"
		}
		b.WriteString("/" + p)
	}
	return b.String()
}

func rule(v *jsonschema.ValidationError) string {
	switch k := v.ErrorKind.(type) {
	case *broken.Type:
		return fmt.Sprintf("%s is there, not %s", k.Got, strings.Join(k.Want, " or "))
	case *broken.Required:
		return "missing " + strings.Join(k.Missing, ", ")
	case *broken.AdditionalProperties:
		return fmt.Sprintf("%d properties that are not allowed", len(k.Properties))
	case *broken.Format:
		return "not of format " + k.Want
	}
	return "rule " + strings.Join(v.ErrorKind.KeywordPath(), "/")
}
