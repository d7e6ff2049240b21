package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/memstore"
	"github.com/semel-dev/semel/store/storetest"
)

// The suite must fail for stores that break the contract. Each type here is a
// store with one fault; the suite runs against it in a process of its own, since
// a test cannot expect another one to fail.

type tx = *memstore.Tx

type backend = store.Backend[tx]

// forgetful finds no record that was there.
type forgetful struct{ *memstore.Store }

func (b forgetful) Claim(ctx context.Context, t tx, c string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	_, err := b.Store.Claim(ctx, t, c, r, nil)
	return prior, err
}

// folding takes ids that differ in case for one.
type folding struct{ *memstore.Store }

func (b folding) Claim(ctx context.Context, t tx, c string, r []store.Record, prior []store.Prior) ([]store.Prior, error) {
	lower := make([]store.Record, len(r))
	for i := range r {
		lower[i] = r[i]
		lower[i].ID = strings.ToLower(r[i].ID)
	}
	return b.Store.Claim(ctx, t, c, lower, prior)
}

// unfenced lets everybody advance.
type unfenced struct{ *memstore.Store }

func (b unfenced) Advance(ctx context.Context, t tx, c string, a []store.Advance, lost []int) ([]int, error) {
	_, err := b.Store.Advance(ctx, t, c, a, nil)
	return lost, err
}

// eager creates fences that it may not create.
type eager struct{ *memstore.Store }

func (b eager) Assign(ctx context.Context, c, w string, s []store.Start) ([]store.Fence, error) {
	all := append([]store.Start(nil), s...)
	for i := range all {
		all[i].Create = store.CreateAlways
	}
	return b.Store.Assign(ctx, c, w, all)
}

// sticky does not let go of a scope.
type sticky struct{ *memstore.Store }

func (sticky) Leave(context.Context, string, []store.Fence) error { return nil }

// hopeful takes an unknown commit for a success.
type hopeful struct{ *memstore.Store }

func (hopeful) Resolve(context.Context, store.Mark) (store.Outcome, error) {
	return store.Committed, nil
}

// wrapping hides the error of the function behind another.
type wrapping struct{ *memstore.Store }

func (b wrapping) InTx(ctx context.Context, m store.Mark, fn func(context.Context, tx) error) (store.Outcome, error) {
	var inner error
	out, err := b.Store.InTx(ctx, m, func(ctx context.Context, t tx) error { inner = fn(ctx, t); return nil })
	if err == nil {
		err = inner // too late: it is committed
	}
	return out, err
}

// unmarked ignores marks.
type unmarked struct{ *memstore.Store }

func (b unmarked) InTx(ctx context.Context, _ store.Mark, fn func(context.Context, tx) error) (store.Outcome, error) {
	return b.Store.InTx(ctx, store.Mark{}, fn)
}

// deaf calls every error transient.
type deaf struct{ *memstore.Store }

func (b deaf) Classify(error) semel.Class { return semel.ClassTransient }

// anyone may take the name of another pipeline.
type anyone struct{ *memstore.Store }

func (b anyone) Enlist(ctx context.Context, w store.Worker) error {
	w.Identity = nil
	return b.Store.Enlist(ctx, w)
}

// overwriting moves letters whatever version was seen.
type overwriting struct{ *memstore.Store }

func (b overwriting) Move(ctx context.Context, t tx, c string, ms []store.Move, missed []int) ([]int, error) {
	for _, m := range ms {
		ls, err := b.Store.Find(ctx, t, c, nil, []string{m.Ref}, nil)
		if err != nil || len(ls) == 0 {
			return missed, err
		}
		m.Version = ls[0].Version
		if _, err := b.Store.Move(ctx, t, c, []store.Move{m}, nil); err != nil {
			return missed, err
		}
	}
	return missed, nil
}

// forgetting loses what the producer sent when it is revised.
type forgetting struct{ *memstore.Store }

func (b forgetting) Revisions(ctx context.Context, c, ref string) ([]store.Revision, error) {
	rs, err := b.Store.Revisions(ctx, c, ref)
	if len(rs) > 0 && rs[0].N == 0 {
		rs = rs[1:]
	}
	return rs, err
}

// stubborn keeps the order in which content was proposed first.
type stubborn struct{ *memstore.Store }

func (b stubborn) Note(ctx context.Context, t tx, c string, seen []string, rs []store.Revision) error {
	var fresh []store.Revision
	for _, r := range rs {
		known, err := b.Store.Revisions(ctx, c, r.Ref)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(known, func(k store.Revision) bool { return k.Fingerprint == r.Fingerprint }) {
			fresh = append(fresh, r)
		}
	}
	return b.Store.Note(ctx, t, c, seen, fresh)
}

// careless keeps the cause of the first failure.
type careless struct{ *memstore.Store }

func (b careless) Move(ctx context.Context, t tx, c string, ms []store.Move, missed []int) ([]int, error) {
	for i := range ms {
		ms[i].Cause = store.Cause{}
	}
	return b.Store.Move(ctx, t, c, ms, missed)
}

// stateless counts closed letters as well.
type stateless struct{ *memstore.Store }

func (b stateless) Groups(ctx context.Context, q store.Query) ([]store.Group, error) {
	q.States = nil
	return b.Store.Groups(ctx, q)
}

// jumbled lists the letters of each page by state.
type jumbled struct{ *memstore.Store }

func (b jumbled) List(ctx context.Context, q store.Query) ([]store.Letter, error) {
	ls, err := b.Store.List(ctx, q)
	slices.SortStableFunc(ls, func(a, b store.Letter) int { return strings.Compare(string(a.State), string(b.State)) })
	return ls, err
}

// offset takes the letter to continue behind for one of the page.
type offset struct{ *memstore.Store }

func (b offset) List(ctx context.Context, q store.Query) ([]store.Letter, error) {
	if q.After.Ref != "" {
		q.After.Ref = q.After.Ref[:len(q.After.Ref)-1]
	}
	return b.Store.List(ctx, q)
}

// unbounded has pages of any size.
type unbounded struct{ *memstore.Store }

func (b unbounded) List(ctx context.Context, q store.Query) (all []store.Letter, err error) {
	for limit := q.Limit; ; {
		page, err := b.Store.List(ctx, q)
		all = append(all, page...)
		if err != nil || len(page) == 0 || len(all) >= limit || limit == 0 {
			return all, err
		}
		last := page[len(page)-1]
		q.After, q.Limit = store.Cursor{Created: last.Created, Ref: last.Ref}, limit-len(all)
	}
}

// flat keeps no difference between a tombstone and an empty body.
type flat struct{ *memstore.Store }

func (b flat) Park(ctx context.Context, t tx, ps []store.Parking, exists []int) ([]int, error) {
	for i := range ps {
		if ps[i].Message.Body == nil {
			ps[i].Message.Body = []byte{}
		}
	}
	return b.Store.Park(ctx, t, ps, exists)
}

// headless runs letters behind the first of their key.
type headless struct{ *memstore.Store }

func (b headless) Park(ctx context.Context, t tx, ps []store.Parking, exists []int) ([]int, error) {
	free := append([]store.Parking(nil), ps...)
	for i := range free {
		if free[i].State == store.StateRetry {
			free[i].Number = 0
		}
	}
	return b.Store.Park(ctx, t, free, exists)
}

// uncounted keeps no ledger.
type uncounted struct{ *memstore.Store }

func (uncounted) Count(context.Context, tx, string, []store.Tally) error { return nil }

// content finds its ledger right.
type content struct{ *memstore.Store }

func (b content) Status(ctx context.Context, c string, rows bool) (store.Status, error) {
	st, err := b.Store.Status(ctx, c, rows)
	st.Imbalances = nil
	return st, err
}

// hoarding removes nothing.
type hoarding struct{ *memstore.Store }

func (hoarding) Purge(context.Context, store.Purge) (store.Purged, error) { return store.Purged{}, nil }

// hasty removes what is not old enough.
type hasty struct{ *memstore.Store }

func (b hasty) Purge(ctx context.Context, p store.Purge) (store.Purged, error) {
	p.Keep = 0
	return b.Store.Purge(ctx, p)
}

// volatile says that it is durable.
type volatile struct{ *memstore.Store }

func (b volatile) Capabilities() store.Capabilities {
	c := b.Store.Capabilities()
	c.Durable = true
	return c
}

// broken says for each fault where the suite must fail.
func broken() map[string]struct {
	make func(*memstore.Store) backend
	at   string
} {
	type fault = struct {
		make func(*memstore.Store) backend
		at   string
	}
	return map[string]fault{
		"forgetful":   {func(s *memstore.Store) backend { return forgetful{s} }, "Records/Claim"},
		"folding":     {func(s *memstore.Store) backend { return folding{s} }, "Records/AwkwardIDs"},
		"unfenced":    {func(s *memstore.Store) backend { return unfenced{s} }, "Fences/Zombie"},
		"eager":       {func(s *memstore.Store) backend { return eager{s} }, "Fences/Create"},
		"sticky":      {func(s *memstore.Store) backend { return sticky{s} }, "Fences/Leave"},
		"hopeful":     {func(s *memstore.Store) backend { return hopeful{s} }, "Mark/Resolve"},
		"wrapping":    {func(s *memstore.Store) backend { return wrapping{s} }, "Transaction/CommitsAllOrNothing"},
		"unmarked":    {func(s *memstore.Store) backend { return unmarked{s} }, "Mark/SomeoneElse"},
		"deaf":        {func(s *memstore.Store) backend { return deaf{s} }, "Transaction/ForeignCommit"},
		"anyone":      {func(s *memstore.Store) backend { return anyone{s} }, "Workers/Identity"},
		"overwriting": {func(s *memstore.Store) backend { return overwriting{s} }, "Moves/TwoMove"},
		"forgetting":  {func(s *memstore.Store) backend { return forgetting{s} }, "Moves/Original"},
		"stubborn":    {func(s *memstore.Store) backend { return stubborn{s} }, "Letters/Note"},
		"careless":    {func(s *memstore.Store) backend { return careless{s} }, "List/Causes"},
		"stateless":   {func(s *memstore.Store) backend { return stateless{s} }, "List/Groups"},
		"jumbled":     {func(s *memstore.Store) backend { return jumbled{s} }, "List/Order"},
		"offset":      {func(s *memstore.Store) backend { return offset{s} }, "List/Pages"},
		"unbounded":   {func(s *memstore.Store) backend { return unbounded{s} }, "List/Large"},
		"flat":        {func(s *memstore.Store) backend { return flat{s} }, "Letters/Bodies"},
		"headless":    {func(s *memstore.Store) backend { return headless{s} }, "Due/Heads"},
		"uncounted":   {func(s *memstore.Store) backend { return uncounted{s} }, "Records/Ledger"},
		"content":     {func(s *memstore.Store) backend { return content{s} }, "Status/Imbalances"},
		"hoarding":    {func(s *memstore.Store) backend { return hoarding{s} }, "Purge/Records"},
		"hasty":       {func(s *memstore.Store) backend { return hasty{s} }, "Purge/Keeps"},
		"volatile":    {func(s *memstore.Store) backend { return volatile{s} }, "Capabilities/Durable"},
		"tokenless":   {func(s *memstore.Store) backend { return tokenless{s} }, "Effects/Token"},
		"greedy":      {func(s *memstore.Store) backend { return greedy{s} }, "Effects/Race"},
		"unleased":    {func(s *memstore.Store) backend { return unleased{s} }, "Effects/Lease"},
		"blunt":       {func(s *memstore.Store) backend { return blunt{s} }, "Effects/Names"},
		"cutting":     {func(s *memstore.Store) backend { return cutting{s} }, "Effects/Round"},
		"settled":     {func(s *memstore.Store) backend { return settled{s} }, "Effects/Purge"},
		"all":         {func(s *memstore.Store) backend { return all{s} }, "Effects/List"},
		"":            {func(s *memstore.Store) backend { return s }, ""},
	}
}

const faultVar = "STORETEST_FAULT"

// TestSuite runs the suite against a store in memory, or against the broken one
// that the environment names.
func TestSuite(t *testing.T) {
	name := os.Getenv(faultVar)
	fault, ok := broken()[name]
	if !ok {
		t.Fatalf("no fault is called %q", name)
	}
	inner := make(map[backend]*memstore.Store)
	open := func(s *memstore.Store) backend {
		b := fault.make(s)
		inner[b] = s
		return b
	}
	storetest.Run(t, storetest.Harness[tx]{
		New: func(*testing.T) backend { return open(memstore.New()) },
		Reopen: func(_ *testing.T, b backend) backend {
			if name == "volatile" {
				return open(memstore.New())
			}
			return open(inner[b].Connect())
		},
		Put: func(_ context.Context, t tx, key, value string) error { return t.Put(key, value) },
		Get: func(_ context.Context, b backend, key string) (string, bool, error) {
			value, ok := inner[b].Get(key)
			return value, ok, nil
		},
		Commit:   func(_ context.Context, t tx) error { return t.Commit() },
		Rollback: func(_ context.Context, t tx) error { return t.Rollback() },
	})
}

// TestBroken runs the suite against every broken store.
func TestBroken(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, fault := range broken() {
		t.Run(name, func(t *testing.T) {
			run := "^TestSuite$"
			for _, part := range strings.Split(fault.at, "/") {
				run += "/^" + part + "$"
			}
			cmd := exec.Command(self, "-test.run="+strings.TrimSuffix(run, "/^$"))
			cmd.Env = append(os.Environ(), faultVar+"="+name)
			out, err := cmd.CombinedOutput()
			if failed := strings.Contains(string(out), "--- FAIL: TestSuite/"+fault.at); failed == (name == "") || (err != nil) == (name == "") {
				t.Errorf("the suite against a store that is %q: %v\n%s", name, err, out)
			}
		})
	}
}
