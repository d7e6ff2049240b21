// Package webhooks is the input of the webhooks example: 726 real payloads of
// GitHub webhooks, 404 of them different, and what they say about pull
// requests, issues, discussions, milestones and installations.
//
// The README beside this file names the source and the licence and says how
// the data ends up when every message takes effect once.
package webhooks

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Delivery is one message.
type Delivery struct {
	// ID names the delivery: server, place in the server's list, event and,
	// where there is one, action, "api-209-pull_request-closed". A payload has
	// no id of its own; GitHub sends one beside it, in a header.
	ID string
	// Body is the payload, JSON.
	Body []byte
}

// Payload is a line of payloads.ndjson.gz: a body and the ids of all the
// deliveries that brought exactly it.
type Payload struct {
	IDs  []string        `json:"ids"`
	Body json.RawMessage `json:"body"`
}

//go:embed payloads.ndjson.gz
var compressed []byte

// Deliveries returns all of them, sorted by id: server by server in the order
// of their lists. Those with the same payload share their Body; do not change
// it.
func Deliveries() ([]Delivery, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var all []Delivery
	for lines := json.NewDecoder(z); ; {
		var p Payload
		switch err := lines.Decode(&p); {
		case errors.Is(err, io.EOF):
			slices.SortFunc(all, func(a, b Delivery) int { return strings.Compare(a.ID, b.ID) })
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("delivery %d: %w", len(all)+1, err)
		}
		for _, id := range p.IDs {
			all = append(all, Delivery{id, p.Body})
		}
	}
}
