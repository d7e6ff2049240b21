package adapters

import (
	"context"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/mysqlstore"
	"github.com/semel-dev/semel/store/sqlstore"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

func openMySQL(ctx context.Context, l config.Location) (*Store, error) {
	st, err := connectMySQL(ctx, l)
	if err != nil {
		return nil, err
	}
	return erase[sqlstore.Tx](st, st), nil
}

func connectMySQL(ctx context.Context, l config.Location) (*mysqlstore.Store, error) {
	st, err := mysqlstore.Open(ctx, l.Scheme+":"+l.Path, mysqlstore.Config{})
	if err != nil {
		return nil, notOpened(l, err, mysqlstore.Classify(err))
	}
	return st, nil
}

func statementsMySQL(context.Context) ([]string, error) { return mysqlstore.Statements(), nil }

// checkMySQL has the server compile the statements: what changes tables cannot
// be tried and rolled back.
func checkMySQL(ctx context.Context, f *config.File, with func(*Store) error) ([]string, error) {
	inner, err := connectMySQL(ctx, f.Store)
	if err != nil {
		return nil, err
	}
	st := erase[sqlstore.Tx](inner, inner)
	defer st.Close()
	notes, err := pendingIn(ctx, st)
	if err != nil {
		return notes, err
	}
	untried, err := compileMySQL(ctx, inner, f)
	if untried {
		notes = append(notes, "a table that setup makes is not there yet, so the statements of handle could not be tried (semel schema apply makes it)")
	}
	return notes, errors.Join(err, with(st))
}

func compileMySQL(ctx context.Context, st *mysqlstore.Store, f *config.File) (untried bool, err error) {
	_, err = st.InTx(ctx, store.Mark{}, func(ctx context.Context, t sqlstore.Tx) error {
		for _, s := range f.Setup {
			if _, err := t.PrepareContext(ctx, s); err != nil { //nolint:sqlclosecheck // closed at the end of the transaction
				return &semel.Error{Stage: "setup", Err: err, Hint: "correct setup in the pipeline file"}
			}
		}
		err := f.Handler.Prepare(ctx, t)
		if untried = len(f.Setup) > 0 && mysqlstore.NoTable(err); err != nil && !untried {
			return err
		}
		return errProved
	})
	if errors.Is(err, errProved) {
		err = nil
	}
	if c := st.Classify(err); c == semel.ClassFault || c == semel.ClassPermanent {
		err = semel.Fault(err)
	}
	return untried, err
}
