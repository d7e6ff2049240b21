package webhooks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
)

// Item is what a payload says about the entity it is about, as far as the
// example wants to know it. Nothing in it is about a person.
type Item struct {
	// Key is kind and number of the database row at GitHub,
	// "pull_request/279147437".
	Key string
	// Number is the one people use, 0 if the kind has none.
	Number int64
	// State and Title are empty if the payload does not say.
	State, Title string
	// Updated is when the entity changed last, as it stands in the payload: a
	// time in one of three formats, or a number.
	Updated string
}

// entity are the fields of an entity that Read looks at.
type entity struct {
	ID      int64           `json:"id"`
	AppID   int64           `json:"app_id"`
	Number  int64           `json:"number"`
	State   string          `json:"state"`
	Title   string          `json:"title"`
	Updated json.RawMessage `json:"updated_at"`
}

type payload struct {
	Action       string  `json:"action"`
	PullRequest  *entity `json:"pull_request"`
	Issue        *entity `json:"issue"`
	Discussion   *entity `json:"discussion"`
	Milestone    *entity `json:"milestone"`
	Installation *entity `json:"installation"`
}

// about returns the entity that the event is about, nil if it is about nothing
// that the example keeps. Many events carry a stub of the installation that
// sent them; only a whole one has the id of its app.
func (p *payload) about() (kind string, e *entity) {
	switch {
	case p.PullRequest != nil:
		return "pull_request", p.PullRequest
	case p.Issue != nil:
		return "issue", p.Issue
	case p.Discussion != nil:
		return "discussion", p.Discussion
	case p.Milestone != nil:
		return "milestone", p.Milestone
	case p.Installation != nil && p.Installation.AppID != 0:
		return "installation", p.Installation
	}
	return "", nil
}

func (p *payload) item() (Item, bool) {
	kind, e := p.about()
	if e == nil {
		return Item{}, false
	}
	updated := string(e.Updated)
	var text string
	if json.Unmarshal(e.Updated, &text) == nil {
		updated = text
	}
	return Item{fmt.Sprintf("%s/%d", kind, e.ID), e.Number, e.State, e.Title, updated}, true
}

// Read returns what the body says, and false if it is about nothing that the
// example keeps.
func Read(body []byte) (Item, bool, error) {
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return Item{}, false, err
	}
	it, ok := p.item()
	return it, ok, nil
}

// rank orders actions of the same second: what ends an entity comes after
// everything else, what begins it before, and what does not say its state
// before that.
func rank(action string) int64 {
	switch action {
	case "deleted":
		return 9
	case "closed":
		return 8
	case "opened", "created":
		return 1
	case "pinned", "unpinned":
		return 0
	}
	return 5
}

// Decode is for the library what the section message of webhooks.yaml is for
// the binary, except for the id, which the source has to give. It is a
// broker.DecoderFunc.
//
// The tie is made of the content alone: the rank of the action, and of the
// same action the longer payload, which comes from the newer version of
// GitHub. A payload that came twice under two ids then has one place in the
// order.
func Decode(d *semel.Delivery) error {
	var p payload
	if err := json.Unmarshal(d.Body, &p); err != nil {
		return semel.Invalid(err)
	}
	it, ok := p.item()
	if !ok {
		return semel.ErrFiltered
	}
	d.Key = it.Key
	if it.Updated == "" {
		return nil // no version: the arbitration has a policy for that
	}
	v, err := arbitrate.ParseTime(it.Updated)
	if err != nil {
		return semel.Invalid(fmt.Errorf("updated_at of %s, %s: %w", d.ID, it.Key, err))
	}
	v.Tie = arbitrate.TieInteger(rank(p.Action)*1_000_000 + int64(utf8.RuneCount(d.Body)))
	d.Version = v
	return nil
}

// String is one line of the table.
func (it Item) String() string {
	number := "-"
	if it.Number != 0 {
		number = strconv.FormatInt(it.Number, 10)
	}
	return fmt.Sprintf("%s %s %q %q %s", it.Key, number, it.State, it.Title, it.Updated)
}
