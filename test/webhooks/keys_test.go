package webhooks_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/store/sqlstore"
)

// count is a handler whose effect is one row per message that it is given. Key
// carries what the file was called.
func count(consumer string) func(context.Context, sqlstore.Tx, semel.Message) error {
	return func(ctx context.Context, tx sqlstore.Tx, m semel.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO items (consumer, id, line, winner, version) VALUES (?, ?, '', '', 0)", consumer, m.Key)
		return err
	}
}

// effects delivers all payloads in the order of their names and returns the
// names of those that had an effect.
func (w *world) effects(name string, decode broker.DecoderFunc) (semel.Account, map[string]bool) {
	w.t.Helper()
	a := w.consume(consumer.Config{Name: name, Decoder: decode, MaxCommitters: 1}, deliveries(w.t), count(name))
	names := map[string]bool{}
	for _, n := range w.column(name, "id") {
		names[n] = true
	}
	return a, names
}

func byName(d *semel.Delivery) error {
	d.Key = d.ID
	return nil
}

func byContent(d *semel.Delivery) error {
	sum := sha256.Sum256(d.Body)
	d.Key, d.ID = d.ID, hex.EncodeToString(sum[:])
	return nil
}

// TestD03Keys: 726 requests came, and 726 have an effect if the name of the
// file is the id. A hash of the body has 404, and takes 322 requests that
// happened for repeats. Nothing but a comparison with the source shows it; this
// is one, and it names them.
func TestD03Keys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a, names := w.effects("by name", byName); a.Of[semel.Applied] != 726 || len(names) != 726 || a.Of[semel.Duplicate] != 0 {
		t.Errorf("by name: %+v, %d effects; want 726", a, len(names))
	}
	a, names := w.effects("by content", byContent)
	if a.Of[semel.Applied] != 404 || len(names) != 404 || a.Of[semel.Duplicate] != 322 {
		t.Errorf("by content: %+v, %d effects; want 404, and 322 taken for repeats", a, len(names))
	}
	lost, servers := missing(t, names)
	if want := map[string]int{"api": 5, "ghes31": 10, "ghes32": 49, "ghes33": 49, "ghes34": 85, "ghes35": 124}; !maps.Equal(servers, want) {
		t.Errorf("%v of %d lost by server; want %v", servers, len(lost), want)
	}
	t.Logf("a hash of the body loses %d requests: %s", len(lost), strings.Join(lost, " "))
}

// missing compares with the source. Every request without an effect has the
// payload of another one that had an effect.
func missing(t *testing.T, had map[string]bool) (lost []string, servers map[string]int) {
	t.Helper()
	all := deliveries(t)
	with := map[string]string{}
	for _, d := range all {
		if had[d.ID] {
			with[string(d.Body)] = d.ID
		}
	}
	servers = map[string]int{}
	for _, d := range all {
		server, _, _ := strings.Cut(d.ID, "-")
		servers[server] += 0
		if had[d.ID] {
			continue
		}
		lost, servers[server] = append(lost, d.ID), servers[server]+1
		if with[string(d.Body)] == "" {
			t.Errorf("%s was lost, and it is no copy of another one", d.ID)
		}
	}
	slices.Sort(lost)
	return lost, servers
}
