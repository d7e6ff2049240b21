package mysqlstore

import (
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
