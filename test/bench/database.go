package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel/store/sqlitestore"
)

// database is a SQLite file with the table that all effects go to. Both sides
// of a comparison open it with the same settings.
type database struct {
	path string
	db   *sql.DB
}

// effect is the one row that a message causes; the user's own table, which has
// nothing that could refuse a repeat.
const effectTable = "CREATE TABLE IF NOT EXISTS effect (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, body BLOB NOT NULL)"

const insertEffect = "INSERT INTO effect (id, body) VALUES (?, ?)"

// checkpoint is after how many pages the WAL goes into the database; it is
// sqlitestore's own setting.
const checkpoint = 8000

// openDatabase opens the file in WAL mode with synchronous=FULL. With pages 0
// the WAL is never emptied, so that its size tells what was written.
func openDatabase(ctx context.Context, path string, pages int) (*database, error) {
	dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"+
		"&_pragma=cache_size(-65536)&_pragma=wal_autocheckpoint(%d)&_pragma=foreign_keys(on)", filepath.ToSlash(path), pages)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, effectTable); err != nil {
		db.Close()
		return nil, err
	}
	return &database{path, db}, nil
}

// store returns semel's store on the same pool.
func (d *database) store(ctx context.Context) (*sqlitestore.Store, error) {
	s, err := sqlitestore.New(ctx, d.db, sqlitestore.Config{})
	if err != nil {
		return nil, err
	}
	return s, s.Migrate(ctx)
}

// verify says whether there is exactly one effect for each of want ids.
func (d *database) verify(ctx context.Context, want int) error {
	var rows, ids int
	if err := d.db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT id) FROM effect").Scan(&rows, &ids); err != nil {
		return err
	}
	if rows != want || ids != want {
		return &inexact{rows, ids, want}
	}
	return nil
}

// inexact says that effects were lost or happened twice.
type inexact struct{ rows, ids, want int }

func (e *inexact) Error() string {
	return fmt.Sprintf("%d effects of %d ids, want one each of %d", e.rows, e.ids, e.want)
}

// emptyWAL moves everything into the database and truncates the WAL.
func (d *database) emptyWAL(ctx context.Context) error {
	var busy, pages, moved int
	if err := d.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return fmt.Errorf("the WAL could not be emptied: %d pages, %d moved", pages, moved)
	}
	return nil
}

// walBytes is the size of the WAL.
func (d *database) walBytes() (int64, error) {
	fi, err := os.Stat(d.path + "-wal")
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (d *database) close() error { return d.db.Close() }
