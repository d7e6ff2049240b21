package adapters

import (
	"context"
	"errors"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/pgstore"
	"github.com/semel-dev/semel/store/sqlstore"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

func openPostgres(ctx context.Context, l config.Location) (*Store, error) {
	st, err := pgstore.Open(ctx, l.Scheme+":"+l.Path, pgstore.Config{})
	if err != nil {
		return nil, notOpened(l, err, pgstore.Classify(err))
	}
	return erase[sqlstore.Tx](st, st), nil
}

// notOpened is the error of a server that did not take us.
func notOpened(l config.Location, err error, c semel.Class) error {
	err = &semel.Error{Stage: "open store", Message: l.String(), Err: err,
		Hint: "is the server running, does the database exist, and may this user create tables in it?"}
	if c == semel.ClassFault {
		return semel.Fault(err)
	}
	return err
}

// onServer: a run makes tables and no database, so there is always one to look
// into.
func onServer(config.Location) bool { return true }

func statementsPostgres(context.Context) ([]string, error) { return pgstore.Statements(), nil }

// checkPostgres tries the statements in a transaction that is rolled back.
func checkPostgres(ctx context.Context, f *config.File, with func(*Store) error) (notes []string, err error) {
	st, err := openPostgres(ctx, f.Store)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	notes, err = pendingIn(ctx, st)
	if err != nil {
		return notes, err
	}
	return notes, errors.Join(st.Pipeline.Prove(ctx, f.Setup, f.Handler), with(st))
}
