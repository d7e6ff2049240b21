package sqlstore

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/store"
)

// SQLite returns the dialect of SQLite 3.51.3 and later. One transaction
// writes at a time, and BEGIN IMMEDIATE makes it the one: whatever it reads is
// locked.
func SQLite() *Dialect {
	return &Dialect{
		Capabilities: store.Capabilities{
			Name:               "sqlite",
			Committers:         1,
			MaxHold:            250 * time.Millisecond,
			FailsForeignCommit: true,
			Durable:            true,
		},
		Begin:      "BEGIN IMMEDIATE",
		Now:        "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
		HasTable:   "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		Migrations: [][]string{slices.Concat(sqliteBatches(), sqliteLetters(), sqliteAccounts()), sqliteEffects()},
	}
}
