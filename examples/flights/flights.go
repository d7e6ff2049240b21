// Package flights is the input of the flights example: 19,888 status events of
// 6,654 real flights that left New York between 16 and 22 August 2013.
//
// The README beside this file names the source and the licence and says how
// the data ends up when every event takes effect once.
package flights

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The states of a flight, in the order in which they follow each other.
// Departed and Cancelled exclude each other.
const (
	Scheduled = "scheduled" // Seq 1
	Departed  = "departed"  // Seq 2
	Cancelled = "cancelled" // Seq 2
	Arrived   = "arrived"   // Seq 3
)

// Event is one message: a flight entered a state.
type Event struct {
	// Flight identifies the flight: day, carrier, number and airport of
	// origin, "2013-08-16-UA-236-JFK". Without the airport it would not be
	// unique: on that day UA 236 left from JFK and, later, from EWR.
	Flight string `json:"flight"`
	// Status is one of the states above.
	Status string `json:"status"`
	// At is when, by the clock of the airport concerned, without a zone:
	// good for reading, useless for ordering. Seq orders.
	At string `json:"at"`
	// Seq counts the events of one flight from 1.
	Seq int64 `json:"seq"`
}

// ID is the identity of the message, the same at every delivery.
func (e Event) ID() string { return fmt.Sprintf("%s/%d", e.Flight, e.Seq) }

//go:embed events.ndjson.gz
var compressed []byte

// Events returns all events, by scheduled time, flight and Seq.
func Events() ([]Event, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var all []Event
	for lines := json.NewDecoder(z); ; {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("event %d: %w", len(all)+1, err)
		}
		all = append(all, e)
	}
}
