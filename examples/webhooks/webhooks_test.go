package webhooks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/examples/webhooks"
)

func deliveries(t *testing.T) []webhooks.Delivery {
	t.Helper()
	all, err := webhooks.Deliveries()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDeliveriesAreComplete(t *testing.T) {
	perServer, ids, bodies := map[string]int{}, map[string]bool{}, map[string]bool{}
	all := deliveries(t)
	for _, d := range all {
		server, _, _ := strings.Cut(d.ID, "-")
		perServer[server]++
		ids[d.ID], bodies[string(d.Body)] = true, true
		if !json.Valid(d.Body) {
			t.Errorf("%s is not JSON", d.ID)
		}
	}
	want := map[string]int{"api": 329, "ghes31": 49, "ghes32": 49, "ghes33": 50, "ghes34": 124, "ghes35": 125}
	if !maps.Equal(perServer, want) || len(ids) != 726 || len(bodies) != 404 {
		t.Errorf("%v, %d ids, %d bodies; want %v, 726, 404", perServer, len(ids), len(bodies), want)
	}
	if !slices.IsSortedFunc(all, func(a, b webhooks.Delivery) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("not sorted by id")
	}
}

// TestNoMailAddresses: none that belongs to somebody is shipped.
func TestNoMailAddresses(t *testing.T) {
	address := regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}`)
	seen := map[string]bool{}
	for _, d := range deliveries(t) {
		if seen[string(d.Body)] {
			continue
		}
		seen[string(d.Body)] = true
		for _, found := range address.FindAllString(string(d.Body), -1) {
			if !strings.HasPrefix(found, "git@") && !strings.HasSuffix(found, "@example.com") {
				t.Errorf("%s has an address", d.ID)
			}
		}
	}
}

func TestAbout(t *testing.T) {
	all := deliveries(t)
	for key, want := range map[string]int{"pull_request/279147437": 39, "issue/444500041": 33, "installation/5": 18, "": 0, "issue/1": 0} {
		about, err := webhooks.About(all, key)
		if err != nil || len(about) != want {
			t.Errorf("%d deliveries are about %q, %v; want %d", len(about), key, err, want)
		}
	}
	if _, err := webhooks.About([]webhooks.Delivery{{ID: "broken", Body: []byte("{")}}, ""); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a body that is not JSON: %v", err)
	}
}

func TestDecode(t *testing.T) {
	filtered, keys := 0, map[string]int{}
	for _, d := range deliveries(t) {
		m := semel.Delivery{Message: semel.Message{ID: d.ID, Body: d.Body}}
		err := webhooks.Decode(&m)
		switch {
		case errors.Is(err, semel.ErrFiltered):
			filtered++
		case err != nil, !m.Version.Set, m.Version.Tie == "", m.ID != d.ID:
			t.Errorf("%s: id %s, version %+v, %v", d.ID, m.ID, m.Version, err)
		default:
			keys[m.Key]++
		}
	}
	if filtered != 516 || len(keys) != 17 {
		t.Errorf("%d filtered, %d keys; want 516 and 17", filtered, len(keys))
	}
}

func TestDecodeRefuses(t *testing.T) {
	for body, want := range map[string]string{
		`{`: "unexpected end",
		`{"issue":{"id":7,"updated_at":"2019-05-15T15:20:33"}}`: "updated_at of x, issue/7",
	} {
		err := webhooks.Decode(&semel.Delivery{Message: semel.Message{ID: "x", Body: []byte(body)}})
		if class, _ := semel.ClassOf(err); class != semel.ClassInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it invalid because of %q", body, err, want)
		}
	}
	d := semel.Delivery{Message: semel.Message{ID: "x", Body: []byte(`{"issue":{"id":7}}`)}}
	if err := webhooks.Decode(&d); err != nil || d.Version.Set {
		t.Errorf("without updated_at: version %+v, %v; want none", d.Version, err)
	}
}

var name = regexp.MustCompile(`^\d{19}\.([a-z0-9]+-\d{3}-[a-z0-9_-]+)\.json$`)

// inbox returns the ids of the files in a queue's inbox, with how often each
// came, after a look at their names and contents.
func inbox(t *testing.T, root string) map[string]int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for _, d := range deliveries(t) {
		bodies[d.ID] = string(d.Body)
	}
	came := map[string]int{}
	for _, e := range entries {
		m := name.FindStringSubmatch(e.Name())
		if m == nil {
			t.Fatalf("a file is called %s", e.Name())
		}
		body, err := os.ReadFile(filepath.Join(root, "inbox", e.Name()))
		if err != nil || string(body) != bodies[m[1]] {
			t.Errorf("%s has another content than %s, %v", e.Name(), m[1], err)
		}
		came[m[1]]++
	}
	return came
}

func TestDeliver(t *testing.T) {
	in := webhooks.Inbox{Root: t.TempDir(), Seed: 1, Again: 0.1}
	for again := 1; again <= 2; again++ {
		if d, err := in.Deliver(); err != nil || d != (webhooks.Delivered{Files: 798, Deliveries: 726}) {
			t.Fatalf("%+v, %v", d, err)
		}
		files, most := 0, 0
		came := inbox(t, in.Root)
		for _, n := range came {
			files, most = files+n, max(most, n)
		}
		if files != again*798 || len(came) != 726 || most != again*2 {
			t.Errorf("call %d: %d files of %d deliveries, one of them %d times", again, files, len(came), most)
		}
	}
}

func TestDeliverOneKey(t *testing.T) {
	in := webhooks.Inbox{Root: t.TempDir(), Again: 1, Key: "issue/444500041"}
	if d, err := in.Deliver(); err != nil || d != (webhooks.Delivered{Files: 66, Deliveries: 33}) {
		t.Errorf("%+v, %v", d, err)
	}
	for id, n := range inbox(t, in.Root) {
		if n != 2 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}

func TestDeliverRefuses(t *testing.T) {
	for _, in := range []webhooks.Inbox{{Again: -0.1}, {Again: 1.1}, {Key: "issue"}, {Key: "444500041"}} {
		in.Root = t.TempDir()
		if _, err := in.Deliver(); err == nil {
			t.Errorf("%+v was accepted", in)
		}
	}
}

func TestSeedDecides(t *testing.T) {
	all := deliveries(t)
	ids := func(seed uint64) string {
		var b strings.Builder
		for _, d := range webhooks.Shuffle(all, seed, 0.5) {
			fmt.Fprintln(&b, d.ID)
		}
		return b.String()
	}
	one := ids(1)
	if one != ids(1) {
		t.Error("the same seed made another order")
	}
	if one == ids(2) {
		t.Error("another seed made the same order")
	}
}

func Example() {
	all, _ := webhooks.Deliveries()
	for _, d := range all {
		if it, ok, _ := webhooks.Read(d.Body); ok && it.Key == "installation/5" && strings.HasPrefix(d.ID, "ghes31") {
			fmt.Println(d.ID, it)
		}
	}
	// Output:
	// ghes31-015-installation-deleted installation/5 - "" "" 2019-05-15T19:37:38.000Z
	// ghes31-016-installation_repositories-added installation/5 - "" "" 1557949058
}
