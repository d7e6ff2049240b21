package webhooks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Inbox delivers payloads to a directory queue as the receiver of a webhook
// would that writes each request to a file, and is called more than once.
type Inbox struct {
	// Root is the queue; the files appear in inbox/ below it, which is
	// created if it does not exist.
	Root string
	// Seed decides the order and what comes twice.
	Seed uint64
	// Again is the share of the deliveries that come twice, from 0 to 1.
	Again float64
	// Key, if not empty, delivers only what is about this entity,
	// "pull_request/279147437".
	Key string
}

// Delivered is what one call of Deliver put into the inbox.
type Delivered struct {
	// Files appeared, for Deliveries different ones.
	Files, Deliveries int
}

// Deliver puts the payloads into the inbox, each file complete before it can be
// seen. Its name is when it came, in nanoseconds since 1970, and the id of the
// delivery: "1796070000000000001.api-209-pull_request-closed.json". Calling it
// again delivers everything again. One call at a time.
func (in Inbox) Deliver() (Delivered, error) {
	if in.Again < 0 || in.Again > 1 {
		return Delivered{}, fmt.Errorf("share delivered twice is %v: must be 0 to 1", in.Again)
	}
	all, err := in.choose()
	if err != nil {
		return Delivered{}, err
	}
	inbox := filepath.Join(in.Root, "inbox")
	if err := os.MkdirAll(inbox, 0o755); err != nil {
		return Delivered{}, err
	}
	came := Shuffle(all, in.Seed, in.Again)
	start := time.Now().UnixNano()
	for i, d := range came {
		if err := put(inbox, fmt.Sprintf("%d.%s.json", start+int64(i), d.ID), d.Body); err != nil {
			return Delivered{}, err
		}
	}
	return Delivered{len(came), len(all)}, nil
}

func (in Inbox) choose() ([]Delivery, error) {
	all, err := Deliveries()
	if err != nil || in.Key == "" {
		return all, err
	}
	if all, err = About(all, in.Key); err == nil && len(all) == 0 {
		err = fmt.Errorf("no payload is about %q: keys are made of kind and id, pull_request/279147437", in.Key)
	}
	return all, err
}

// About returns the deliveries that are about the entity.
func About(all []Delivery, key string) ([]Delivery, error) {
	var about []Delivery
	for _, d := range all {
		it, ok, err := Read(d.Body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.ID, err)
		}
		if ok && it.Key == key {
			about = append(about, d)
		}
	}
	return about, nil
}

// Shuffle returns the deliveries in a random order that seed decides, a share
// of them twice. It leaves its argument alone.
func Shuffle(all []Delivery, seed uint64, again float64) []Delivery {
	came := append([]Delivery(nil), all...)
	r := rand.New(rand.NewPCG(seed, 0))
	swap := func(i, j int) { came[i], came[j] = came[j], came[i] }
	r.Shuffle(len(came), swap)
	came = append(came, came[:int(again*float64(len(all)))]...)
	r.Shuffle(len(came), swap)
	return came
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
