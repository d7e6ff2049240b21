package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/semel-dev/semel"
)

const schemaTable = `CREATE TABLE semel_schema (
  version INTEGER NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL
)`

// Statements returns all statements from an empty database to this version.
func (s *Store) Statements() []string { return s.dialect.Statements() }

// Statements returns all statements from an empty database to this version.
func (d *Dialect) Statements() []string {
	return append([]string{schemaTable}, slices.Concat(d.Migrations...)...)
}

// Pending returns the statements that Migrate would run.
func (s *Store) Pending(ctx context.Context) (pending []string, err error) {
	err = s.read(ctx, func(q reader) error {
		var there, version int64
		if err := q.one(s.dialect.HasTable, []any{&there}, "semel_schema"); err != nil {
			return err
		}
		if there == 0 {
			pending = s.Statements()
			return nil
		}
		if err := q.one("SELECT COALESCE(MAX(version), 0) FROM semel_schema", []any{&version}); err != nil {
			return err
		}
		steps, err := s.stepsAfter(version)
		pending = slices.Concat(steps...)
		return err
	})
	return pending, err
}

// stepsAfter returns the steps that a database at version lacks.
func (s *Store) stepsAfter(version int64) ([][]string, error) {
	known := int64(len(s.dialect.Migrations))
	if version > known {
		return nil, failf(semel.ClassFault, "sqlstore: the tables are at version %d and this program knows %d: use a newer program", version, known)
	}
	return s.dialect.Migrations[version:], nil
}

// Migrate brings the tables to this version in one transaction. Of several
// processes one does it; the others find it done.
//
// Where a statement that changes tables ends the transaction, each stands for
// itself: it does nothing if it was done before, and a step counts when all of
// it is there.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, func(t *tx) error {
		if err := t.alone(); err != nil {
			return err
		}
		defer t.together()
		var there, version int64
		if err := t.one(s.dialect.HasTable, []any{&there}, "semel_schema"); err != nil {
			return err
		}
		if there == 0 {
			if err := t.change(schemaTable); err != nil {
				return err
			}
		}
		if err := t.one("SELECT COALESCE(MAX(version), 0) FROM semel_schema", []any{&version}); err != nil {
			return err
		}
		steps, err := s.stepsAfter(version)
		if err != nil {
			return err
		}
		for i, step := range steps {
			if err := t.step(version+int64(i)+1, step); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) step(version int64, statements []string) error {
	for _, st := range statements {
		if err := t.change(st); err != nil {
			return err
		}
	}
	_, err := t.exec("INSERT INTO semel_schema (version, at) VALUES (?, {now})", version)
	if err == nil && t.store.dialect.Implicit {
		err = t.session.control(t.store, t.store.dialect.Begin) // committed by that, before another process may look
	}
	return err
}

// alone keeps other processes from migrating at the same time.
func (t *tx) alone() error {
	d := t.store.dialect
	switch {
	case d.Alone == "":
		return nil
	case !d.Implicit:
		return t.ddl(d.Alone)
	}
	var got sql.NullInt64
	if err := t.one(d.Alone, []any{&got}); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return failf(semel.ClassContention, "sqlstore: another process is changing the tables")
	}
	return nil
}

// together ends what alone began, where the end of the transaction does not. An
// error would close the connection, which ends it as well.
func (t *tx) together() {
	if d := t.store.dialect; d.Together != "" {
		_ = t.ddl(d.Together)
	}
}

// Change runs statements that change tables of the user's, where one such
// statement ends the transaction: each stands for itself. It is false, and
// nothing is done, where they can be run in a transaction like any others.
func (s *Store) Change(ctx context.Context, statements []string) (bool, error) {
	if !s.dialect.Implicit {
		return false, nil
	}
	return true, s.update(ctx, func(t *tx) error {
		if err := t.alone(); err != nil {
			return err
		}
		defer t.together()
		for _, st := range statements {
			if err := t.change(st); err != nil {
				return err
			}
		}
		return nil
	})
}

// change runs a statement that changes tables, and goes on in a new transaction
// if it ended the one that was.
func (t *tx) change(statement string) error {
	if !t.store.dialect.Implicit {
		return t.ddl(statement)
	}
	return t.lost(t.changeAlone(statement))
}

func (t *tx) changeAlone(statement string) error {
	d := t.store.dialect
	err := t.ddl(d.Around[0])
	if err == nil {
		_, err = t.session.conn.ExecContext(t.quiet, statement)
		err = errors.Join(err, t.ddl(d.Around[1]))
	}
	if err == nil {
		err = t.session.control(t.store, d.Begin)
	}
	return err
}

// ddl runs a statement that is not worth keeping prepared.
func (t *tx) ddl(statement string) error {
	_, err := t.session.conn.ExecContext(t.quiet, t.store.dialect.text(statement))
	return t.lost(err)
}
