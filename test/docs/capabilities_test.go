package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/broker/membroker"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"
)

const page = "../../docs/adapters/README.md"

// TestCapabilities keeps the page's tables what the adapters say of themselves,
// which their conformance suites prove. With -args -write it writes them.
func TestCapabilities(t *testing.T) {
	text := read(t, page)
	begin, end := "<!-- capabilities: begin -->\n", "<!-- capabilities: end -->"
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the tables", page)
	}
	want := head + begin + sources(t) + "\n" + stores(t) + end + tail
	if want == text {
		return
	}
	if !*write {
		t.Fatalf("%s does not say what the adapters say; run: go test ./docs -run Capabilities -args -write", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
}

var write = flag.Bool("write", false, "write the tables of capabilities")

func sources(t *testing.T) string {
	whole, lines := directory(t, filebroker.Whole), directory(t, filebroker.Lines)
	queue := membroker.New(membroker.Config{}).Receiver().Capabilities()
	parts := membroker.New(membroker.Config{Partitions: 1}).Receiver().Capabilities()
	columns := []broker.Capabilities{whole, lines, queue, parts}
	var b strings.Builder
	fmt.Fprintln(&b, "| source | directory, whole files | directory, lines | memory, queue | memory, partitions |\n|---|---|---|---|---|")
	row(&b, "stable position", columns, func(c broker.Capabilities) string { return yes(c.Traits.Has(semel.StablePosition)) })
	row(&b, "exclusive scope", columns, func(c broker.Capabilities) string { return yes(c.Traits.Has(semel.ExclusiveScope)) })
	row(&b, "in order per scope", columns, func(c broker.Capabilities) string { return yes(c.Traits.Has(semel.InOrderPerScope)) })
	row(&b, "a key stays in its scope", columns, func(c broker.Capabilities) string { return yes(c.Traits.Has(semel.StableKeyPartition)) })
	row(&b, "scopes come and go", columns, func(c broker.Capabilities) string { return yes(c.Ephemeral) })
	row(&b, "uncounted return (release)", columns, func(c broker.Capabilities) string { return yes(c.Release) })
	row(&b, "counted return (retry)", columns, func(c broker.Capabilities) string { return yes(c.Retry) })
	row(&b, "shows dead messages (reject)", columns, func(c broker.Capabilities) string { return yes(c.Reject) })
	row(&b, "settlement is confirmed", columns, func(c broker.Capabilities) string { return yes(c.Confirmed) })
	row(&b, "refuses a former owner", columns, func(c broker.Capabilities) string { return yes(c.FencesStale) })
	row(&b, "redelivery horizon", columns, func(c broker.Capabilities) string {
		if c.Horizon == 0 {
			return "to be stated"
		}
		return c.Horizon.String()
	})
	return b.String()
}

func directory(t *testing.T, files filebroker.Files) broker.Capabilities {
	q, err := filebroker.Open(t.Context(), filebroker.Config{Root: t.TempDir(), Files: files})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close(t.Context())
	return q.Capabilities()
}

func stores(t *testing.T) string {
	db, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	columns := []store.Capabilities{db.Capabilities(), sqlstore.Postgres().Capabilities, sqlstore.MySQL().Capabilities, memstore.New().Capabilities()}
	var b strings.Builder
	fmt.Fprintln(&b, "| store | sqlite | postgres | mysql | memory |\n|---|---|---|---|---|")
	row(&b, "transactions at a time", columns, func(c store.Capabilities) string {
		if c.Committers == 0 {
			return "any number"
		}
		return fmt.Sprint(c.Committers)
	})
	row(&b, "longest time a batch should hold its locks", columns, func(c store.Capabilities) string {
		if c.MaxHold == 0 {
			return "no bound"
		}
		return c.MaxHold.String()
	})
	row(&b, "a handler's COMMIT fails", columns, func(c store.Capabilities) string { return yes(c.FailsForeignCommit) })
	row(&b, "an answered commit survives power loss", columns, func(c store.Capabilities) string { return yes(c.Durable) })
	return b.String()
}

func row[C any](b *strings.Builder, name string, columns []C, cell func(C) string) {
	fmt.Fprintf(b, "| %s |", name)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", cell(c))
	}
	fmt.Fprintln(b)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
