package mysqlstore

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Store is a store in a MySQL or MariaDB database. Transactions are
// sqlstore.Tx. Its methods are safe for concurrent use.
type Store struct{ *sqlstore.Store }

var (
	_ store.Backend[sqlstore.Tx] = (*Store)(nil)
	_ store.Schema               = (*Store)(nil)
)

// Migrate is that of sqlstore. A user who may not create tables is told who can,
// and what is enough for this one.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.Store.Migrate(ctx)
	if number(err) == 1142 {
		return fmt.Errorf("mysqlstore: this user may not create semel's tables: have a user who may run what `semel schema print FILE` prints, "+
			"or Migrate, and GRANT SELECT, INSERT, UPDATE, DELETE on the tables semel_* to this one: %w", err)
	}
	return err
}
