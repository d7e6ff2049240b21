package filebroker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/brokertest"
)

func TestConformance(t *testing.T) {
	t.Run("whole", func(t *testing.T) { brokertest.Run(t, harness(Config{}, publishWhole)) })
	t.Run("marked", func(t *testing.T) { brokertest.Run(t, harness(Config{Complete: Marked}, publishMarked)) })
	t.Run("settled", func(t *testing.T) {
		brokertest.Run(t, harness(Config{Complete: Settled, MinAge: time.Millisecond, Scans: 2}, publishWhole))
	})
	t.Run("lines", func(t *testing.T) { brokertest.Run(t, harness(Config{Files: Lines}, publishLines)) })
	t.Run("gzip", func(t *testing.T) { brokertest.Run(t, harness(Config{Files: Lines}, publishGzip)) })
}

// harness runs the suite on directories; publish writes one batch to inbox/.
func harness(cfg Config, publish func(tb testing.TB, inbox string, n int, ms []semel.Message)) brokertest.Harness {
	cfg.Poll, cfg.MaxBytes = time.Millisecond, 1<<20
	return brokertest.Harness{
		Quiet: 50 * time.Millisecond,
		New: func(tb testing.TB) brokertest.Source {
			cfg := cfg
			cfg.Root = tb.TempDir()
			n := 0
			return brokertest.Source{
				Open: func(tb testing.TB) broker.Receiver {
					q, err := Open(tb.Context(), cfg)
					if err != nil {
						tb.Fatal(err)
					}
					return q
				},
				Publish: func(tb testing.TB, ms ...semel.Message) {
					n++
					publish(tb, filepath.Join(cfg.Root, inboxDir), n, ms)
				},
				Kill: func(_ testing.TB, r broker.Receiver) { crash(r.(Queue)) },
			}
		},
	}
}

// publish writes under a temporary name and renames.
func publish(tb testing.TB, path string, body []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path+".tmp", body, 0o666); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		tb.Fatal(err)
	}
}

func publishWhole(tb testing.TB, inbox string, n int, ms []semel.Message) {
	for i, m := range ms {
		publish(tb, filepath.Join(inbox, fmt.Sprintf("%d-%d.json", n, i)), m.Body)
	}
}

func publishMarked(tb testing.TB, inbox string, n int, ms []semel.Message) {
	for i, m := range ms {
		path := filepath.Join(inbox, fmt.Sprintf("%d-%d.json", n, i))
		publish(tb, path, m.Body)
		publish(tb, path+".ok", nil)
	}
}

// publishLines writes three files, so that there are several scopes.
func publishLines(tb testing.TB, inbox string, n int, ms []semel.Message) {
	for i := range 3 {
		if body := linesOf(ms, i, 3); len(body) > 0 {
			publish(tb, filepath.Join(inbox, fmt.Sprintf("%d-%d.ndjson", n, i)), body)
		}
	}
}

func publishGzip(tb testing.TB, inbox string, n int, ms []semel.Message) {
	for i := range 3 {
		if body := linesOf(ms, i, 3); len(body) > 0 {
			publish(tb, filepath.Join(inbox, fmt.Sprintf("%d-%d.gz", n, i)), zipped(tb, body))
		}
	}
}

func linesOf(ms []semel.Message, from, step int) []byte {
	var b bytes.Buffer
	for i := from; i < len(ms); i += step {
		b.Write(ms[i].Body)
		b.WriteByte('\n')
	}
	return b.Bytes()
}
