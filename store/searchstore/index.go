// Package searchstore writes documents to an index of Elasticsearch or
// OpenSearch so that each ends up in its newest version, however often and in
// whatever order its messages are delivered. It needs net/http and nothing else.
//
// Guarantee: a search server shares no transaction with the dedup record.
// What makes an effect happen once is the identity of the document, its id, and
// the version by which the server itself decides which of two writes is newer.
// A repeated write of the same version changes nothing; an older one is refused,
// from a stopped process that wakes up as well. The record of the message is
// committed after the server acknowledged the document. See DESIGN.md.
package searchstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/internal/printable"
)

// Indexed is after the server acknowledged a bulk, before anybody knows.
const Indexed fault.Point = "I1-indexed"

// Points returns the points at which the package may die.
func Points() []fault.Point { return []fault.Point{Indexed} }

// Versions says how the server decides between two writes of one document.
type Versions uint8

const (
	// ExternalGTE: the higher version wins, and the same one writes again.
	ExternalGTE Versions = iota
	// External: the higher version wins; the same one counts as superseded,
	// so that of two contents with one version the first stays.
	External
	// NoVersions: whoever comes last wins. Repeating a write is harmless, but
	// an older message that is delivered again overwrites a newer one. It is
	// right where a document is written once, or its messages commute.
	NoVersions
)

// Config is where documents go. The zero value of a field is its default.
type Config struct {
	// URL of the server, such as https://search.example:9200; required. It
	// holds no credentials: they would show in errors of other programs.
	URL string
	// Index is the name of one index that is there; required. An alias or a
	// data stream is refused: an id is unique in an index, and what stands
	// behind the other two changes.
	Index string
	// Username and Password, or APIKey as the server's tools print it.
	Username, Password, APIKey string
	Versions                   Versions
	// DeletedField is true in what is left of a deleted document; "deleted".
	DeletedField string
	// Timeout bounds one request, and how long an overloaded server is asked
	// again before the caller is told; 30 s.
	Timeout time.Duration
	// MaxDocs and MaxBytes bound one bulk; 1000 and 5 MiB, and what the server
	// takes (http.max_content_length).
	MaxDocs, MaxBytes int
	// Client sends the requests; one with the roots of the system.
	Client *http.Client
}

const (
	defaultTimeout  = 30 * time.Second
	defaultDocs     = 1000
	defaultBytes    = 5 << 20
	maxName         = 255
	defaultDeletion = "deleted"
)

func (c Config) withDefaults() Config {
	c.DeletedField = cmp.Or(c.DeletedField, defaultDeletion)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.MaxDocs, c.MaxBytes = cmp.Or(c.MaxDocs, defaultDocs), cmp.Or(c.MaxBytes, defaultBytes)
	if c.Client == nil {
		c.Client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}}
	}
	client := *c.Client // a redirected request would take credentials elsewhere
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Client = &client
	return c
}

// Validate returns all problems at once. None of them quotes a secret.
func (c Config) Validate() error { return errors.Join(c.Problems()...) }

// Problems are those of Validate, one by one.
func (c Config) Problems() (errs []error) {
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch u, err := url.Parse(c.URL); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		say("url must be like https://search.example:9200")
	case u.User != nil:
		say("url holds credentials: give username and password, or an API key, apart from it")
	}
	if why := badName(c.Index); why != "" {
		say("index %q %s", printable.Line(c.Index, 80), why)
	}
	switch {
	case c.APIKey != "" && c.Username+c.Password != "":
		say("give an API key, or username and password, not both")
	case (c.Username == "") != (c.Password == ""):
		say("username and password belong together")
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		say("the API key has characters that no header can hold")
	}
	if c.Timeout < 0 || c.MaxDocs < 0 || c.MaxBytes < 0 {
		say("timeout and bounds must not be negative")
	}
	if strings.Contains(c.DeletedField, ".") {
		say("the field of deleted documents must be one at the top")
	}
	if c.Versions > NoVersions {
		say("there is no version type %d", c.Versions)
	}
	return errs
}

// badName says what is wrong with the name of an index.
func badName(name string) string {
	switch {
	case name == "":
		return "is missing: name the index that documents are written to"
	case len(name) > maxName:
		return "is longer than 255 bytes"
	case name == "." || name == ".." || strings.ContainsRune("-_+", rune(name[0])):
		return "must not be . or .., nor begin with -, _ or +"
	case strings.ContainsAny(name, `\/*?"<>| ,#:%`) || strings.ContainsFunc(name, unicode.IsControl):
		return `must not have blanks or any of \ / * ? " < > | , # : %: it is one index, not a pattern`
	case strings.ToLower(name) != name:
		return "must be in lower case"
	}
	return ""
}

// Index writes documents. It is safe for concurrent use: two writes of one
// document wait for each other.
type Index struct {
	cfg    Config
	server string // for people
	notes  []string

	mu   sync.Mutex
	busy map[string]bool // ids on their way
	free chan struct{}   // closed when some are not any more
}

// Open checks the configuration, the server and the index. What is wrong with
// the set-up is of class fault; a server that cannot be reached is infrastructure.
func Open(ctx context.Context, c Config) (*Index, error) {
	if err := c.Validate(); err != nil {
		return nil, semel.Fault(err)
	}
	x := &Index{cfg: c.withDefaults(), busy: map[string]bool{}, free: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	for _, step := range []func(context.Context) error{x.product, x.concrete, x.settings, x.limits} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", x, err)
		}
	}
	return x, nil
}

// String says where documents go, without secrets.
func (x *Index) String() string {
	u, err := url.Parse(x.cfg.URL)
	if err != nil {
		return "index " + x.cfg.Index
	}
	return "index " + x.cfg.Index + " at " + u.Host
}

// Server is the product and its version.
func (x *Index) Server() string { return x.server }

// Notes are what works, and weakens what an acknowledgement of the server means.
func (x *Index) Notes() []string { return x.notes }

// Close gives connections back.
func (x *Index) Close() { x.cfg.Client.CloseIdleConnections() }

// product finds out who answers. What only speaks a similar protocol may
// ignore versions.
func (x *Index) product(ctx context.Context) error {
	var about struct {
		Version struct{ Number, Distribution string }
		Tagline string
	}
	if err := x.get(ctx, "/", &about); err != nil {
		return err
	}
	major, _, _ := strings.Cut(about.Version.Number, ".")
	n, _ := strconv.Atoi(major)
	switch {
	case about.Version.Distribution == "opensearch" && n >= 1:
		x.server = "OpenSearch " + printable.Line(about.Version.Number, 20)
	case about.Tagline == "You Know, for Search" && about.Version.Distribution == "" && n >= 7:
		x.server = "Elasticsearch " + printable.Line(about.Version.Number, 20)
	default:
		return semel.Fault(fmt.Errorf("what answers is neither OpenSearch nor Elasticsearch from 7 on (version %q)", printable.Line(about.Version.Number, 20)))
	}
	return nil
}

// concrete refuses what is not one index.
func (x *Index) concrete(ctx context.Context) error {
	var found struct {
		Indices []struct {
			Name       string
			DataStream string `json:"data_stream"`
		}
		Aliases     []struct{ Name string }
		DataStreams []struct{ Name string } `json:"data_streams"`
	}
	if err := x.get(ctx, "/_resolve/index/"+url.PathEscape(x.cfg.Index), &found); err != nil && !errors.Is(err, errMissing) {
		return err
	}
	switch {
	case len(found.Aliases) > 0:
		return semel.Fault(errors.New("it is an alias: an id is unique in one index, and a repeated message would be written a second time " +
			"after the alias moved; name the index itself, and let readers use the alias"))
	case len(found.DataStreams) > 0 || len(found.Indices) > 0 && found.Indices[0].DataStream != "":
		return semel.Fault(errors.New("it is a data stream, or belongs to one: that only takes new documents, and gives the same id to two of its indexes " +
			"after a rollover; name an ordinary index"))
	case len(found.Indices) == 0:
		return semel.Fault(fmt.Errorf("there is no such index: create it with the mapping you want (PUT /%s), so that the first document does not decide it", x.cfg.Index))
	}
	return nil
}

func (x *Index) settings(ctx context.Context) error {
	var all map[string]struct{ Settings, Defaults map[string]any }
	err := x.get(ctx, "/"+url.PathEscape(x.cfg.Index)+"/_settings?flat_settings=true&include_defaults=true", &all)
	if class, _ := semel.ClassOf(err); err != nil && class == semel.ClassFault {
		x.notes = append(x.notes, "the settings of the index may not be read, so it is not known how durable its acknowledgements are")
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range all {
		get := func(name string) string {
			if v, ok := s.Settings["index."+name]; ok {
				return fmt.Sprint(v)
			}
			return fmt.Sprint(s.Defaults["index."+name])
		}
		if strings.EqualFold(get("translog.durability"), "async") {
			x.notes = append(x.notes, "index.translog.durability is async: what the server acknowledged in the last seconds (index.translog.sync_interval) "+
				"is lost when it crashes, and is not sent again; set it to request")
		}
		if get("number_of_replicas") == "0" {
			x.notes = append(x.notes, "index.number_of_replicas is 0: what the server acknowledged is lost with the disk of one node")
		}
		for _, block := range []string{"blocks.write", "blocks.read_only"} {
			if get(block) == "true" {
				return semel.Fault(fmt.Errorf("index.%s is set: nothing can be written; remove it", block))
			}
		}
	}
	return nil
}

// limits keeps a bulk below what the smallest node takes. A hosted server may
// not tell; then 413 does.
func (x *Index) limits(ctx context.Context) error {
	var all struct {
		Nodes map[string]struct {
			HTTP struct {
				Max int64 `json:"max_content_length_in_bytes"`
			}
		}
	}
	if x.get(ctx, "/_nodes/http", &all) != nil {
		return ctx.Err()
	}
	for _, n := range all.Nodes {
		if n.HTTP.Max > 0 {
			x.cfg.MaxBytes = int(min(int64(x.cfg.MaxBytes), n.HTTP.Max))
		}
	}
	return nil
}

// get reads an answer into out.
func (x *Index) get(ctx context.Context, path string, out any) error {
	a, err := x.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return semel.Infrastructure(fmt.Errorf("%w: when a pipeline starts, the server has to run and to be reachable from here", err))
	}
	if err := a.refused(); err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return semel.Infrastructure(a.err())
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return semel.Fault(errors.New("what answers is not a search server: its answer is not JSON"))
	}
	return nil
}
