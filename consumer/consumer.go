// Package consumer is the pipeline: receive, decode, admit, handle in a
// transaction, record, commit, settle.
package consumer

import (
	"context"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/store"
)

// Consumer runs one pipeline.
type Consumer[Tx any] struct{}

// New checks the configuration against what source and store can do and
// returns all problems at once.
func New[Tx any](cfg Config, src broker.Receiver, st store.Backend[Tx], w Work[Tx]) (*Consumer[Tx], error) {
	panic("being written")
}

// Run consumes until ctx ends or, with Config.Drain, until nothing is left.
func (c *Consumer[Tx]) Run(ctx context.Context) error { panic("being written") }

// Account returns what was received and what became of it so far.
func (c *Consumer[Tx]) Account() semel.Account { panic("being written") }
