package filebroker

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	t.Run("summed", func(t *testing.T) { brokertest.Run(t, harness(Config{Complete: Summed}, publishSummed)) })
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) { brokertest.Run(t, harness(Config{Files: f.files}, publishParts(f.files, false))) })
		t.Run(f.name+" gzip", func(t *testing.T) { brokertest.Run(t, harness(Config{Files: f.files}, publishParts(f.files, true))) })
	}
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

// publishSummed writes checksums before some of the files and after others.
func publishSummed(tb testing.TB, inbox string, n int, ms []semel.Message) {
	for i, m := range ms {
		path := filepath.Join(inbox, fmt.Sprintf("%d-%d.json", n, i))
		sum := fmt.Appendf(nil, "%x", sha256.Sum256(m.Body))
		if i%2 == 0 {
			publish(tb, path+".sha256", sum)
		}
		publish(tb, path, m.Body)
		if i%2 == 1 {
			publish(tb, path+".sha256", sum)
		}
	}
}

// publishParts writes three files, so that there are several scopes.
func publishParts(files Files, packed bool) func(tb testing.TB, inbox string, n int, ms []semel.Message) {
	return func(tb testing.TB, inbox string, n int, ms []semel.Message) {
		for i := range 3 {
			var parts []string
			for j := i; j < len(ms); j += 3 {
				parts = append(parts, string(ms[j].Body))
			}
			if len(parts) == 0 {
				continue
			}
			body := fileOf(tb, files, parts)
			if packed {
				body = zipped(tb, body)
			}
			publish(tb, filepath.Join(inbox, fmt.Sprintf("%d-%d", n, i)), body)
		}
	}
}

// fileOf makes a file of objects of strings, all with the names of the first.
func fileOf(tb testing.TB, files Files, objects []string) []byte {
	switch files {
	case Array:
		return []byte("[\n  " + strings.Join(objects, ",\n  ") + "\n]\n")
	case CSV:
		return csvOf(tb, objects)
	}
	return []byte(strings.Join(objects, "\n") + "\n")
}

func csvOf(tb testing.TB, objects []string) []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for i, o := range objects {
		var names, values []string
		for j, s := range inOrder(tb, []byte(o)) {
			if j%2 == 0 {
				names = append(names, s)
			} else {
				values = append(values, s)
			}
		}
		if i == 0 {
			w.Write(names)
		}
		w.Write(values)
	}
	w.Flush()
	return out.Bytes()
}
