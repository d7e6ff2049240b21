package flights

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// Inbox delivers the events to a directory queue the way a careless source
// would: in a random order, and some of them twice.
type Inbox struct {
	// Root is the queue; the files appear in inbox/ below it, which is
	// created if it does not exist.
	Root string
	// Seed decides the order and which events come twice.
	Seed uint64
	// Again is the share of the events that come twice, from 0 to 1.
	Again float64
	// Lines is how many NDJSON files hold the events, every second one
	// compressed. 0 means one JSON file for each delivery instead.
	Lines int
}

// Delivered is what one call of Deliver put into the inbox.
type Delivered struct {
	// Run numbers the calls for one Root from 1. It is part of all file
	// names, so that nothing meets its own older copy in done/.
	Run int
	// Files appeared; they hold Messages deliveries of Events events.
	Files, Messages, Events int
}

// Deliver puts all events into the inbox, each file complete before it can be
// seen. Calling it again delivers everything again. One call at a time.
func (in Inbox) Deliver() (Delivered, error) {
	if in.Again < 0 || in.Again > 1 || in.Lines < 0 {
		return Delivered{}, fmt.Errorf("share delivered twice is %v, number of line files %d: must be 0 to 1, and not negative", in.Again, in.Lines)
	}
	events, err := Events()
	if err != nil {
		return Delivered{}, err
	}
	inbox := filepath.Join(in.Root, "inbox")
	if err := os.MkdirAll(inbox, 0o755); err != nil {
		return Delivered{}, err
	}
	last, err := lastRun(in.Root)
	if err != nil {
		return Delivered{}, err
	}
	d := Delivered{Run: last + 1, Events: len(events)}
	events = in.shuffle(events)
	d.Messages = len(events)
	if in.Lines > 0 {
		d.Files = in.Lines
		return d, deliverLines(inbox, d, events)
	}
	d.Files = len(events)
	return d, deliverFiles(inbox, d.Run, events)
}

func (in Inbox) shuffle(events []Event) []Event {
	r := rand.New(rand.NewPCG(in.Seed, 0))
	swap := func(i, j int) { events[i], events[j] = events[j], events[i] }
	r.Shuffle(len(events), swap)
	again := int(in.Again * float64(len(events)))
	events = append(events, events[:again]...)
	r.Shuffle(len(events), swap)
	return events
}

// runOf matches the names made here and nothing that a queue's numeric suffix
// or a person could have made of other files.
var runOf = regexp.MustCompile(`^run(\d+)-\d+\.(json|ndjson)`)

// lastRun looks for files of earlier runs wherever they went.
func lastRun(root string) (int, error) {
	last := 0
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a worker moved it on
		}
		if err != nil {
			return err
		}
		if m := runOf.FindStringSubmatch(d.Name()); m != nil {
			n, _ := strconv.Atoi(m[1])
			last = max(last, n)
		}
		return nil
	})
	return last, err
}

func deliverFiles(inbox string, run int, events []Event) error {
	for i, e := range events {
		body, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := put(inbox, fmt.Sprintf("run%d-%05d.json", run, i+1), body); err != nil {
			return err
		}
	}
	return nil
}

func deliverLines(inbox string, d Delivered, events []Event) error {
	for i := range d.Files {
		part := events[i*len(events)/d.Files : (i+1)*len(events)/d.Files]
		body, err := lines(part, i%2 == 1)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("run%d-%05d.ndjson", d.Run, i+1)
		if i%2 == 1 {
			name += ".gz"
		}
		if err := put(inbox, name, body); err != nil {
			return err
		}
	}
	return nil
}

func lines(events []Event, compress bool) ([]byte, error) {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return nil, err
		}
	}
	if !compress {
		return plain.Bytes(), nil
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// put writes under a name that the queue ignores and renames: a reader of the
// directory sees the whole file or none.
func put(dir, name string, body []byte) error {
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, body, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}
