package adapters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlitestore"
	"github.com/semel-dev/semel/store/sqlstore"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

func openSQLite(ctx context.Context, l config.Location) (*Store, error) {
	if _, err := lookAtSQLite(l.Path); err != nil {
		return nil, err
	}
	st, err := sqlitestore.Open(ctx, l.Path, sqlitestore.Config{})
	if err != nil {
		return nil, &semel.Error{Stage: "open store", Err: err, Hint: cmp.Or(sqliteHint(err), "is it a database that this user may write, on a local disk with room?")}
	}
	s := erase[sqlstore.Tx](st, st)
	s.Hint = sqliteHint
	return s, nil
}

// sqliteHint is what a person can do about a database that cannot be used; "" if it
// is not that.
func sqliteHint(err error) string {
	const primary = 0xff
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		switch coded.Code() & primary {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return "the file is damaged: put a backup in its place, without the files -wal and -shm beside it, and see to the disk"
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
			return "make room on its disk, or see to the disk"
		}
	}
	return ""
}

func existsSQLite(l config.Location) bool {
	_, err := os.Stat(l.Path)
	return err == nil
}

// statementsSQLite asks a database that is made for the question.
func statementsSQLite(ctx context.Context) (statements []string, err error) {
	return statements, onScratch(ctx, func(st *Store) error {
		statements = st.Schema.Statements()
		return nil
	})
}

// sqliteFile is what the file itself tells.
type sqliteFile struct{ there, wal bool }

// header of a database file: a text, and further on the journal mode.
var sqliteMagic = []byte("SQLite format 3\x00")

const (
	sqliteHeader  = 20
	walFormat     = 2
	writeFormatAt = 18
)

// lookAtSQLite says what is at path, with a remedy for what cannot work.
func lookAtSQLite(path string) (sqliteFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return sqliteFile{}, sqliteDirectory(path)
	}
	if err != nil {
		return sqliteFile{}, storeError(path, err, "let this user read and write the file")
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.IsDir() {
		return sqliteFile{}, storeError(path, errors.New("it is a directory"), "name a file, such as "+filepath.Join(path, "semel.db"))
	}
	head := make([]byte, sqliteHeader)
	switch n, err := io.ReadFull(f, head); {
	case n == 0 && errors.Is(err, io.EOF):
		return sqliteFile{there: true, wal: true}, nil // empty: a database to be
	case err != nil || !bytes.HasPrefix(head, sqliteMagic):
		return sqliteFile{}, storeError(path, errors.New("it is not a SQLite database"), "name another file; this one is left as it is")
	}
	if err := writable(path); err != nil {
		return sqliteFile{}, storeError(path, err, "let this user write the file")
	}
	if err := sqliteDirectory(path); err != nil {
		return sqliteFile{}, err
	}
	return sqliteFile{there: true, wal: head[writeFormatAt] == walFormat}, nil
}

// sqliteDirectory checks the directory in which the file and its journal
// would be made.
func sqliteDirectory(path string) error {
	dir := filepath.Dir(path)
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return storeError(path, fmt.Errorf("the directory %s does not exist", dir), "create it; a misspelt path would be an empty database that has forgotten everything")
	case err != nil:
		return storeError(path, err, "check the path and its permissions")
	case !fi.IsDir():
		return storeError(path, fmt.Errorf("%s is not a directory", dir), "check the path")
	}
	if err := writable(dir); err != nil {
		return storeError(path, fmt.Errorf("the directory %s: %w", dir, err), "let this user write the directory; SQLite keeps a journal beside the file")
	}
	return nil
}

// storeError is about the place, which somebody has to change; what goes wrong
// afterwards may be gone the next time.
func storeError(path string, err error, hint string) error {
	return semel.Fault(&semel.Error{Stage: "open store", Message: path, Err: bare(err), Hint: hint})
}

// bare takes the path off an error that names it already.
func bare(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// checkSQLite tries the statements on the database itself, in a transaction
// that is rolled back, or on an empty one if there is none.
func checkSQLite(ctx context.Context, f *config.File, with func(*Store) error) (notes []string, err error) {
	file, err := lookAtSQLite(f.Store.Path)
	switch {
	case err != nil:
		return nil, err
	case !file.there:
		notes = append(notes, "the database does not exist yet; the first run creates it")
		return notes, onScratch(ctx, func(st *Store) error { return errors.Join(proveFresh(ctx, st, f), with(st)) })
	case !file.wal:
		notes = append(notes, "the database is not in WAL mode; the first run changes that for good; the statements were not tried on it")
		return notes, onScratch(ctx, with)
	}
	st, err := openSQLite(ctx, f.Store)
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

func pendingIn(ctx context.Context, st *Store) (notes []string, err error) {
	pending, err := st.Schema.Pending(ctx)
	if len(pending) > 0 {
		notes = append(notes, fmt.Sprintf("%d statements for semel's own tables are pending; the first run applies them (semel schema print shows them)", len(pending)))
	}
	return notes, err
}

func proveFresh(ctx context.Context, st *Store, f *config.File) error {
	if err := st.Schema.Migrate(ctx); err != nil {
		return err
	}
	return st.Pipeline.Prove(ctx, f.Setup, f.Handler)
}

// onScratch runs fn on an empty database that is removed afterwards.
func onScratch(ctx context.Context, fn func(*Store) error) error {
	dir, err := os.MkdirTemp("", "semel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, err := openSQLite(ctx, config.Location{Scheme: "sqlite", Path: filepath.Join(dir, "scratch.db")})
	if err != nil {
		return err
	}
	defer st.Close()
	return fn(st)
}
