package searchstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/internal/printable"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 20

// errMissing is in the error of an answer 404.
var errMissing = errors.New("it is not there")

// answer is what the server said.
type answer struct {
	status int
	after  time.Duration // Retry-After
	body   []byte
}

// send returns an error if nobody knows what became of the request.
func (x *Index) send(ctx context.Context, method, path string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(x.cfg.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the url cannot be used")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "semel")
	if body != nil {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	switch {
	case x.cfg.APIKey != "":
		req.Header.Set("Authorization", "ApiKey "+x.cfg.APIKey)
	case x.cfg.Username != "":
		req.SetBasicAuth(x.cfg.Username, x.cfg.Password)
	}
	resp, err := x.cfg.Client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // it quotes the URL
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		a.after = time.Duration(n) * time.Second
	}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return answer{}, fmt.Errorf("the answer broke off: %w", err)
	}
	return a, nil
}

// cause is how the server tells an error.
type cause struct{ Type, Reason string }

// err is what the server said, without anything of a document.
func (a answer) err() error {
	var e struct{ Error json.RawMessage }
	var c cause
	if json.Unmarshal(a.body, &e) == nil {
		_ = json.Unmarshal(e.Error, &c) // some errors are plain text
	}
	return fmt.Errorf("the server answered %d%s", a.status, c.suffix())
}

// refused is what a person has to put right, whatever was asked.
func (a answer) refused() error {
	switch {
	case a.blocked():
		return semel.Infrastructure(fmt.Errorf("%w: writes are blocked, as they are while a disk is full", a.err()))
	case a.status == http.StatusUnauthorized:
		return semel.Fault(fmt.Errorf("%w: give a username and password or an API key that it knows", a.err()))
	case a.status == http.StatusForbidden:
		return semel.Fault(fmt.Errorf("%w: allow this user to read the index's settings and to write documents (the privileges index and view_index_metadata)", a.err()))
	case a.status == http.StatusNotFound:
		return semel.Fault(fmt.Errorf("%w: create the index, or name the one that is there (%w)", a.err(), errMissing))
	case a.status >= 300 && a.status < 400:
		return semel.Fault(fmt.Errorf("%w: it sends us elsewhere; name that address in the url", a.err()))
	}
	return nil
}

func (a answer) blocked() bool {
	return a.status == http.StatusForbidden && bytes.Contains(a.body, []byte(`"cluster_block_exception"`))
}

// told are reasons that quote names of the mapping and no value of a document.
var told = regexp.MustCompile(`^(failed to parse field \[[^\]]{1,100}\] of type \[\w{1,40}\]` +
	`|mapping set to strict, dynamic introduction of \[[^\]]{1,100}\] within \[[^\]]{1,100}\] is not allowed` +
	`|object mapping for \[[^\]]{1,100}\] tried to parse field \[[^\]]{1,100}\] as object, but found a concrete value` +
	`|mapper \[[^\]]{1,100}\] cannot be changed from type \[\w{1,40}\] to \[\w{1,40}\]` +
	`|Limit of total fields \[\d+\] has been exceeded` +
	`|no such index \[[^\]]{1,255}\])`)

func (c cause) suffix() string {
	if c.Type == "" {
		return ""
	}
	s := ": " + printable.Line(c.Type, 80)
	if reason := told.FindString(c.Reason); reason != "" {
		s += ": " + printable.Line(reason, 240)
	}
	return s
}
