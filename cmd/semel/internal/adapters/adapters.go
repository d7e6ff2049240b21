// Package adapters turns the URLs of pipeline files into sources and stores.
//
// Adapters are listed here, in plain sight; nothing registers itself. A store's
// transaction type ends at this package: behind it, the command line sees ports
// that do not mention it.
package adapters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/searchstore"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

// source is what this build knows of a scheme of sources.
type source struct {
	// horizonless: it cannot say how late it may deliver again.
	horizonless bool
	open        func(ctx context.Context, f *config.File, r Report) (broker.Receiver, error)
	look        func(f *config.File) Bystander
	// scratch opens an empty source of the same kind, elsewhere.
	scratch func(ctx context.Context, f *config.File) (src broker.Receiver, remove func(), err error)
}

func sources() map[string]source {
	return map[string]source{
		"directory": {true, openDirectory, lookAtDirectory, scratchDirectory},
	}
}

// storage is what this build knows of a scheme of stores.
type storage struct {
	dialect sqlstep.Dialect
	open    func(ctx context.Context, l config.Location) (*Store, error)
	// check looks at what is there without making anything, and runs with on
	// the store or on an empty one like it.
	check func(ctx context.Context, f *config.File, with func(*Store) error) (notes []string, err error)
	// exists reports whether there is a database to look into.
	exists func(l config.Location) bool
	// statements make semel's tables from nothing.
	statements func(context.Context) ([]string, error)
}

func stores() map[string]storage {
	return map[string]storage{
		"mariadb":  {sqlstep.MySQL("mariadb"), openMySQL, checkMySQL, onServer, statementsMySQL},
		"mysql":    {sqlstep.MySQL("mysql"), openMySQL, checkMySQL, onServer, statementsMySQL},
		"postgres": {sqlstep.Postgres(), openPostgres, checkPostgres, onServer, statementsPostgres},
		"sqlite":   {sqlstep.SQLite(), openSQLite, checkSQLite, existsSQLite, statementsSQLite},
	}
}

// Options tells the reader of pipeline files what this build has.
func Options() config.Options {
	o := config.Options{Sources: map[string]bool{}, Stores: map[string]sqlstep.Dialect{}}
	for scheme, s := range sources() {
		o.Sources[scheme] = s.horizonless
	}
	for scheme, s := range stores() {
		o.Stores[scheme] = s.dialect
	}
	return o
}

// SourceSchemes are those of sources that this build has, sorted.
func SourceSchemes() []string { return slices.Sorted(maps.Keys(sources())) }

// Report is told what a source leaves alone or could not do as it should. It
// is called from several goroutines.
type Report func(what string, err error)

// OpenSource opens the pipeline's source for consuming.
func OpenSource(ctx context.Context, f *config.File, r Report) (broker.Receiver, error) {
	return sources()[f.Source.Scheme].open(ctx, f, r)
}

// Bystander looks at a source without taking part in it.
type Bystander interface {
	// Stages says how much the source holds, and where.
	Stages(ctx context.Context) ([]Stage, error)
	// Each hands over what lies in a stage, as it would be delivered; place
	// says where it is. It stops at the first error of fn and returns it.
	Each(ctx context.Context, stage string, fn func(place string, d *semel.Delivery) error) error
	// Check says what is found, and what could not work.
	Check(ctx context.Context) (notes []string, err error)
}

// Stage is a place where messages lie in a source.
type Stage struct {
	Name string
	// Worker holds them; empty: nobody.
	Worker string
	N      int64
}

// Look returns a view on the pipeline's source.
func Look(f *config.File) Bystander { return sources()[f.Source.Scheme].look(f) }

// Store is a store without its transaction type.
type Store struct {
	Reader   store.Reader
	Schema   store.Schema
	Desk     Desk
	Pipeline Pipeline
	Effects  store.Effects
	// Classify sorts errors of the store.
	Classify func(error) semel.Class
	// Hint says what a person can do about an error of the store; "" if there
	// is nothing to say.
	Hint func(error) string
	// Close gives everything back. It has nothing to tell: what was decided is
	// committed before.
	Close func()
}

// Desk is letter.Desk without its type parameter.
type Desk interface {
	Replay(ctx context.Context, consumer string, targets []letter.Target, by, note string) ([]letter.Done, error)
	ReplayProposed(ctx context.Context, consumer string, targets []letter.Target, by, note string) ([]letter.Done, error)
	Discard(ctx context.Context, consumer string, targets []letter.Target, by, reason string) ([]letter.Done, error)
	Propose(ctx context.Context, consumer string, edits []letter.Proposal, by, note string) ([]letter.Done, error)
}

// Pipeline is what needs the store's transactions.
type Pipeline interface {
	// Consumer makes a consumer that does what the file says.
	Consumer(cfg consumer.Config, src broker.Receiver, f *config.File) (Consumer, error)
	// Setup makes the pipeline's own tables, in one transaction.
	Setup(ctx context.Context, statements []string) error
	// Prove runs setup and prepares the steps in a transaction that is
	// rolled back: what it finds wrong would fail with the first message.
	Prove(ctx context.Context, setup []string, h *sqlstep.Handler) error
	// Try runs setup and the steps for each message, in a transaction that is
	// rolled back, and returns what became of each.
	Try(ctx context.Context, setup []string, h *sqlstep.Handler, msgs []semel.Message) (outcomes []error, err error)
}

// Consumer is consumer.Consumer without its type parameter.
type Consumer interface {
	Run(ctx context.Context) error
	Account() semel.Account
}

// OpenStore opens the pipeline's store.
func OpenStore(ctx context.Context, l config.Location) (*Store, error) {
	return stores()[l.Scheme].open(ctx, l)
}

// StoreExists reports whether there is a database already.
func StoreExists(l config.Location) bool { return stores()[l.Scheme].exists(l) }

// Statements are those that make semel's own tables in such a store.
func Statements(ctx context.Context, l config.Location) ([]string, error) {
	return stores()[l.Scheme].statements(ctx)
}

// Check looks at the pipeline's store, tries its statements, and makes its
// consumer; nothing is changed. unfit is what the consumer refuses because it
// does not fit together, err what is wrong with the store.
func Check(ctx context.Context, f *config.File, cfg consumer.Config) (notes []string, unfit, err error) {
	notes, err = stores()[f.Store.Scheme].check(ctx, f, func(st *Store) error {
		src, remove, err := sources()[f.Source.Scheme].scratch(ctx, f)
		if err != nil {
			return err
		}
		defer remove()
		if _, err = st.Pipeline.Consumer(cfg, src, f); err != nil {
			unfit = fmt.Errorf("%s: %w", f.Path, err)
			if class, _ := semel.ClassOf(err); class != semel.ClassInfrastructure { // that a search server is away may pass
				unfit = semel.Fault(unfit)
			}
		}
		return nil
	})
	return notes, unfit, err
}

// Try does what the pipeline's handler would do with messages and changes
// nothing: on the pipeline's store, or on an empty one if there is none.
func Try(ctx context.Context, f *config.File, msgs []semel.Message) (outcomes []error, err error) {
	_, err = stores()[f.Store.Scheme].check(ctx, f, func(st *Store) (err error) {
		outcomes, err = st.Pipeline.Try(ctx, f.Setup, f.Handler, msgs)
		return err
	})
	return outcomes, err
}

// tx is what the handler of pipeline files asks of a transaction.
type tx interface {
	sqlstep.Execer
	sqlstep.Preparer
}

// pipeline implements Pipeline for one transaction type.
type pipeline[Tx tx] struct {
	store   store.Backend[Tx]
	effects store.Effects
}

func erase[Tx tx](st interface {
	store.Backend[Tx]
	store.Effects
}, schema store.Schema) *Store {
	return &Store{
		Reader: st, Schema: schema, Desk: letter.Desk[Tx]{Store: st}, Pipeline: pipeline[Tx]{st, st}, Effects: st,
		Classify: st.Classify, Hint: func(error) string { return "" }, Close: func() { _ = st.Close(context.Background()) },
	}
}

func (p pipeline[Tx]) Consumer(cfg consumer.Config, src broker.Receiver, f *config.File) (Consumer, error) {
	h := f.Handler
	if f.Index != nil {
		x, err := searchstore.Open(context.Background(), f.Index.Config) // bounded by its timeout
		if err != nil {
			return nil, err
		}
		work := consumer.PrepareBatch(func(ctx context.Context, ms []semel.Message) error { return f.Index.Write(ctx, x, ms) },
			func(ctx context.Context, t Tx, m semel.Message) error { return h.Handle(ctx, t, m) })
		return consumer.New(cfg, src, p.store, work)
	}
	if f.Outside == nil {
		work := consumer.Each(func(ctx context.Context, t Tx, m semel.Message) error { return h.Handle(ctx, t, m) })
		return consumer.New(cfg, src, p.store, work)
	}
	g, err := f.Outside.Guard(p.effects, cfg.Name)
	if err != nil {
		return nil, err
	}
	work := consumer.Prepare(func(ctx context.Context, m semel.Message) (func(context.Context, Tx) error, error) {
		if err := g.Do(ctx, m); err != nil {
			return nil, err
		}
		return func(ctx context.Context, t Tx) error { return h.Handle(ctx, t, m) }, nil
	})
	return consumer.New(cfg, src, p.store, work)
}

func (p pipeline[Tx]) Setup(ctx context.Context, statements []string) error {
	if len(statements) == 0 {
		return nil
	}
	if c, ok := any(p.store).(changer); ok {
		if done, err := c.Change(ctx, statements); done {
			return p.setupError(err)
		}
	}
	var outcome store.Outcome
	var err error
	for range setupTries {
		outcome, err = p.store.InTx(ctx, store.Mark{}, func(ctx context.Context, t Tx) error {
			return p.setup(ctx, t, statements)
		})
		if err == nil || p.store.Classify(err) != semel.ClassContention {
			break
		}
	}
	if err == nil && outcome != store.Committed {
		err = errors.New("setup: the commit was not confirmed")
	}
	return err
}

// setupTries bounds how often setup runs while others that start at the same
// time are in its way.
const setupTries = 10

func (p pipeline[Tx]) setup(ctx context.Context, t Tx, statements []string) error {
	for _, s := range statements {
		if _, err := t.ExecContext(ctx, s); err != nil {
			return p.setupError(err)
		}
	}
	return nil
}

func (p pipeline[Tx]) setupError(err error) error {
	if err == nil {
		return nil
	}
	e := &semel.Error{Stage: "setup", Err: err}
	if c := p.store.Classify(err); c == semel.ClassFault || c == semel.ClassPermanent {
		e.Hint = "correct setup: in the pipeline file, or the tables that are there"
	}
	return e
}

// changer is a store in which statements that change tables end a transaction.
type changer interface {
	Change(ctx context.Context, statements []string) (bool, error)
}

// errProved rolls back what was only tried.
var errProved = errors.New("proved")

func (p pipeline[Tx]) Prove(ctx context.Context, statements []string, h *sqlstep.Handler) error {
	_, err := p.store.InTx(ctx, store.Mark{}, func(ctx context.Context, t Tx) error {
		if err := p.setup(ctx, t, statements); err != nil {
			return err
		}
		if err := h.Prepare(ctx, t); err != nil {
			return err
		}
		return errProved
	})
	switch {
	case errors.Is(err, errProved):
		return nil
	case p.store.Classify(err) == semel.ClassFault || p.store.Classify(err) == semel.ClassPermanent:
		return semel.Fault(err)
	}
	return err
}

func (p pipeline[Tx]) Try(ctx context.Context, statements []string, h *sqlstep.Handler, msgs []semel.Message) ([]error, error) {
	outcomes := make([]error, len(msgs))
	_, err := p.store.InTx(ctx, store.Mark{}, func(ctx context.Context, t Tx) (err error) {
		if err := p.setup(ctx, t, statements); err != nil {
			return err
		}
		for i, m := range msgs {
			if outcomes[i], err = try(ctx, t, h, m); err != nil {
				return err
			}
		}
		return errProved
	})
	if errors.Is(err, errProved) {
		err = nil
	}
	return outcomes, err
}

// try runs the steps for one message. What a failed one did is undone, as it
// would be in a batch; on a server nothing else could follow.
func try(ctx context.Context, t sqlstep.Execer, h *sqlstep.Handler, m semel.Message) (outcome, err error) {
	if _, err := t.ExecContext(ctx, "SAVEPOINT semel_try"); err != nil {
		return nil, err
	}
	outcome = h.Handle(ctx, t, m)
	end := "RELEASE SAVEPOINT semel_try"
	if outcome != nil && !errors.Is(outcome, semel.ErrDuplicate) && !errors.Is(outcome, semel.ErrSuperseded) {
		end = "ROLLBACK TO SAVEPOINT semel_try"
	}
	_, err = t.ExecContext(ctx, end)
	return outcome, err
}
