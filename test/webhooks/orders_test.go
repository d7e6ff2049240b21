package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/arbitrate"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/examples/webhooks"
	"github.com/semel-dev/semel/store/sqlstore"
)

const (
	pull    = "pull_request/279147437"
	pullEnd = `pull_request/279147437 2 "closed" "Update the README with new information." 2019-05-15T15:21:18Z`
	// Eight of its events are in its last second.
	pullTies = 8
)

// TestD01Orders: the 39 events of a pull request in 200 random orders, each of
// them twice, in batches of all sizes. The same event wins every time, nothing
// is unaccounted for, and ties are reported.
func TestD01Orders(t *testing.T) {
	t.Parallel()
	w, events := newWorld(t), about(t, pull, 39)
	var winner string
	for seed := range uint64(200) {
		cfg := newest(fmt.Sprintf("order %d", seed))
		cfg.MaxBatch = 1 + int(seed%40)*2
		a := w.consume(cfg, webhooks.Shuffle(events, seed, 1), w.upsert(cfg.Name, keep))
		if a.Received != 78 || handled(a) != 78 || a.Of[semel.Duplicate] != 39 {
			t.Errorf("%s: %+v; want 78 handled, duplicate or superseded, 39 of them duplicates", cfg.Name, a)
		}
		// All events of the last second but the first to come meet an equal version.
		if a.Ties < pullTies-1 {
			t.Errorf("%s: %d ties reported, want %d at least", cfg.Name, a.Ties, pullTies-1)
		}
		if got := w.column(cfg.Name, "line"); !slices.Equal(got, []string{pullEnd}) {
			t.Errorf("%s: it ends as %s, want %s", cfg.Name, got, pullEnd)
		}
		got := strings.Join(w.column(cfg.Name, "winner"), " ")
		if winner == "" {
			winner = got
		}
		if got != winner {
			t.Errorf("%s: %s won, but %s before", cfg.Name, got, winner)
		}
		if n := w.column(cfg.Name, "effects"); len(n) != 1 || n[0] != fmt.Sprint(a.Of[semel.Applied]) {
			t.Errorf("%s: %s effects, %d counted", cfg.Name, n, a.Of[semel.Applied])
		}
	}
	if !strings.HasSuffix(winner, "-pull_request-closed") {
		t.Errorf("%s won", winner)
	}
}

// TestD01LastCameWins is what D-01 protects from, and shows that its orders can
// tell: without versions of semel's, "not older than what is there" ends as the
// order wants.
func TestD01LastCameWins(t *testing.T) {
	t.Parallel()
	w, events := newWorld(t), about(t, pull, 39)
	ends := map[string]int{}
	for seed := range uint64(20) {
		cfg := newest(fmt.Sprintf("naive %d", seed))
		cfg.Arbitrate = arbitrate.Policy{}
		w.consume(cfg, webhooks.Shuffle(events, seed, 1), w.upsert(cfg.Name, keep+" WHERE excluded.version >= items.version"))
		ends[strings.Join(w.column(cfg.Name, "line"), "")]++
	}
	if len(ends) != 2 || ends[pullEnd] == 0 {
		t.Errorf("it ended as %v; want closed sometimes and open sometimes", ends)
	}
}

// TestD01NoRule: without a tie expression nothing is guessed. What meets
// another content of the same second is a dead letter that says so.
func TestD01NoRule(t *testing.T) {
	t.Parallel()
	w, events := newWorld(t), about(t, pull, 39)
	for seed := range uint64(10) {
		cfg := newest(fmt.Sprintf("no rule %d", seed))
		cfg.Decoder = broker.DecoderFunc(withoutTie)
		var reasons []error
		cfg.Observer.Failed = func(f semel.Failure) {
			if f.Verdict == semel.Dead {
				reasons = append(reasons, f.Err)
			}
		}
		cfg.MaxCommitters = 1 // so that Failed is called by one goroutine at a time
		a := w.consume(cfg, webhooks.Shuffle(events, seed, 1), w.upsert(cfg.Name, keep))
		dead := a.Of[semel.Dead]
		if a.Ties != 0 || handled(a)+dead != 78 || dead < pullTies-1 || int64(len(reasons)) != dead {
			t.Errorf("%s: %+v with %d reasons; want %d dead letters at least and no tie decided", cfg.Name, a, len(reasons), pullTies-1)
		}
		for _, err := range reasons {
			if !strings.Contains(err.Error(), "same version and other content") {
				t.Errorf("%s: a dead letter says %v", cfg.Name, err)
			}
		}
	}
}

func withoutTie(d *semel.Delivery) error {
	err := webhooks.Decode(d)
	d.Version.Tie = ""
	return err
}

// TestAllInManyOrders: all 726 payloads, half of them twice, end as the table
// in the README says, whatever the order.
func TestAllInManyOrders(t *testing.T) {
	t.Parallel()
	w, all, want := newWorld(t), deliveries(t), readmeTable(t)
	var winners []string
	for seed := range uint64(4) {
		cfg := newest(fmt.Sprintf("all %d", seed))
		cfg.MaxBatch = []int{2000, 7, 100, 31}[seed%4]
		a := w.consume(cfg, webhooks.Shuffle(all, seed, 0.5), w.upsert(cfg.Name, keep))
		if a.Of[semel.Filtered] != 516 || a.Of[semel.Duplicate] != 363 || a.Of[semel.Applied]+a.Of[semel.Superseded] != 210 {
			t.Errorf("%s: %+v; want 516 filtered, 363 duplicates, 210 applied or superseded", cfg.Name, a)
		}
		if got := w.column(cfg.Name, "line"); !slices.Equal(got, want) {
			t.Errorf("%s: it ends as\n%s\nwant\n%s", cfg.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		// Which of several copies was there first is up to the order.
		got := payloadsOf(t, all, w.column(cfg.Name, "winner"))
		if winners == nil {
			winners = got
		}
		if !slices.Equal(got, winners) {
			t.Errorf("%s: other payloads won than before", cfg.Name)
		}
	}
}

func payloadsOf(t *testing.T, all []webhooks.Delivery, ids []string) (bodies []string) {
	t.Helper()
	for _, id := range ids {
		i := slices.IndexFunc(all, func(d webhooks.Delivery) bool { return d.ID == id })
		if i < 0 {
			t.Fatalf("%s won, but was never sent", id)
		}
		bodies = append(bodies, string(all[i].Body))
	}
	return bodies
}

// TestRolledBack: handlers that fail the first time they run, and batches that
// are redone because of them, do not change the end either.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	w, events := newWorld(t), about(t, "issue/444500041", 33)
	cfg := newest("rolled back")
	write, failed := w.upsert(cfg.Name, keep), map[string]bool{}
	cfg.MaxCommitters = 1
	a := w.consume(cfg, webhooks.Shuffle(events, 1, 1), func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		err := write(ctx, tx, m)
		if err == nil && !failed[m.ID] {
			failed[m.ID] = true
			err = errors.New("for the first time")
		}
		return err
	})
	if handled(a) != 66 || len(failed) == 0 {
		t.Errorf("%+v, %d handlers failed", a, len(failed))
	}
	want := `issue/444500041 1 "closed" "Spelling error in the README file" 2021-10-11T16:40:56Z`
	if got := w.column(cfg.Name, "line || effects"); !slices.Equal(got, []string{want + fmt.Sprint(a.Of[semel.Applied])}) {
		t.Errorf("it ends as %s, want %s after %d effects", got, want, a.Of[semel.Applied])
	}
}
