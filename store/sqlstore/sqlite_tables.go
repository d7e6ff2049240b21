package sqlstore

import "slices"

// The first version of SQLite's tables. Ids, keys and whatever else comes from
// messages are BLOBs: compared as bytes, whatever they hold. Times are
// milliseconds since 1970 by the database's clock, 0 for none.

// sqliteBatches are the tables that every batch meets.
func sqliteBatches() []string {
	return []string{`CREATE TABLE semel_consumer (
  number INTEGER PRIMARY KEY,
  name   BLOB NOT NULL UNIQUE
) STRICT`, `CREATE TABLE semel_identity (
  consumer INTEGER NOT NULL,
  fact     TEXT NOT NULL,
  value    TEXT NOT NULL,
  PRIMARY KEY (consumer, fact)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_batch (
  consumer INTEGER NOT NULL,
  worker   BLOB NOT NULL,
  slot     INTEGER NOT NULL,
  batch    INTEGER NOT NULL,
  open     INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (consumer, worker, slot)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_inbox (
  consumer    INTEGER NOT NULL,
  id          BLOB NOT NULL,
  fingerprint BLOB NOT NULL,
  verdict     INTEGER NOT NULL,
  bucket      INTEGER NOT NULL,
  hash        INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_fence (
  consumer    INTEGER NOT NULL,
  scope       BLOB NOT NULL,
  incarnation BLOB NOT NULL,
  epoch       INTEGER NOT NULL,
  next_hi     INTEGER NOT NULL,
  next_lo     INTEGER NOT NULL,
  clean       INTEGER NOT NULL,
  worker      BLOB NOT NULL,
  assigned    INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  PRIMARY KEY (consumer, scope, incarnation)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_version (
  consumer    INTEGER NOT NULL,
  key         BLOB NOT NULL,
  n           INTEGER NOT NULL,
  tie         BLOB NOT NULL,
  known       INTEGER NOT NULL,
  id          BLOB NOT NULL,
  fingerprint BLOB NOT NULL,
  PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID`}
}

// sqliteLetters are the tables of parked messages.
func sqliteLetters() []string {
	return slices.Concat([]string{
		`CREATE TABLE semel_letter (
  row         INTEGER PRIMARY KEY,
  consumer    INTEGER NOT NULL,
  ref         BLOB NOT NULL,
  id          BLOB NOT NULL,
  key         BLOB NOT NULL,
  type        BLOB NOT NULL,
  source      BLOB NOT NULL,
  time_s      INTEGER NOT NULL,
  time_ns     INTEGER NOT NULL,
  version_n   INTEGER NOT NULL,
  version_tie BLOB NOT NULL,
  version_set INTEGER NOT NULL,
  header      BLOB,
  body        BLOB,
  fingerprint BLOB NOT NULL,
  origin      BLOB NOT NULL,
  state       TEXT NOT NULL,
  open        INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  class       TEXT NOT NULL,
  reason      TEXT NOT NULL,
  conflict    INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  seen        INTEGER NOT NULL,
  error       TEXT NOT NULL,
  stack       TEXT NOT NULL,
  cause       BLOB NOT NULL,
  due         INTEGER NOT NULL,
  created     INTEGER NOT NULL,
  updated     INTEGER NOT NULL,
  failed      INTEGER NOT NULL,
  actor       TEXT NOT NULL,
  note        TEXT NOT NULL,
  proposed    INTEGER NOT NULL,
  UNIQUE (consumer, ref)
) STRICT`,
	}, letterIndexes(), []string{
		`CREATE TABLE semel_cause (
  consumer INTEGER NOT NULL,
  cause    BLOB NOT NULL,
  class    TEXT NOT NULL,
  reason   TEXT NOT NULL,
  text     TEXT NOT NULL,
  PRIMARY KEY (consumer, cause)
) STRICT, WITHOUT ROWID`,
		`CREATE TABLE semel_letter_attempt (
  letter INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  class  INTEGER NOT NULL,
  error  TEXT NOT NULL,
  stack  TEXT NOT NULL,
  worker BLOB NOT NULL,
  PRIMARY KEY (letter, n)
) STRICT`, `CREATE TABLE semel_letter_revision (
  letter      INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  actor       TEXT NOT NULL,
  note        TEXT NOT NULL,
  id          BLOB NOT NULL,
  key         BLOB NOT NULL,
  type        BLOB NOT NULL,
  source      BLOB NOT NULL,
  time_s      INTEGER NOT NULL,
  time_ns     INTEGER NOT NULL,
  version_n   INTEGER NOT NULL,
  version_tie BLOB NOT NULL,
  version_set INTEGER NOT NULL,
  header      BLOB,
  body        BLOB,
  fingerprint BLOB NOT NULL,
  PRIMARY KEY (letter, n)
) STRICT`})
}

// letterIndexes are those of semel_letter, for databases with partial indexes.
// Listings are merged from one ordered run per state.
func letterIndexes() []string {
	return []string{`CREATE INDEX semel_letter_state ON semel_letter (consumer, state, created, ref)`,
		`CREATE INDEX semel_letter_id ON semel_letter (consumer, id, state, created, ref)`,
		`CREATE INDEX semel_letter_key ON semel_letter (consumer, key, state, created, ref)`,
		`CREATE INDEX semel_letter_cause ON semel_letter (consumer, cause, state, created, ref, failed)`,
		`CREATE INDEX semel_letter_due ON semel_letter (consumer, state, due)`,
		`CREATE INDEX semel_letter_order ON semel_letter (consumer, key, number) WHERE number > 0 AND open = 1`,
		`CREATE INDEX semel_letter_closed ON semel_letter (consumer, updated) WHERE open = 0`}
}

// sqliteAccounts are the tables of holds, suspects, the ledger and the audit.
func sqliteAccounts() []string {
	return []string{`CREATE TABLE semel_hold (
  consumer INTEGER NOT NULL,
  key      BLOB NOT NULL,
  size     INTEGER NOT NULL,
  tail     INTEGER NOT NULL,
  PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_suspect (
  consumer INTEGER NOT NULL,
  unit     BLOB NOT NULL,
  bound    INTEGER NOT NULL,
  started  INTEGER NOT NULL,
  remains  INTEGER NOT NULL,
  at_hi    INTEGER NOT NULL,
  at_lo    INTEGER NOT NULL,
  charged  INTEGER NOT NULL,
  PRIMARY KEY (consumer, unit)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_ledger (
  consumer INTEGER NOT NULL,
  account  TEXT NOT NULL,
  bucket   INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  sum_lo   INTEGER NOT NULL,
  sum_hi   INTEGER NOT NULL,
  PRIMARY KEY (consumer, account, bucket)
) STRICT, WITHOUT ROWID`, `CREATE TABLE semel_audit (
  seq      INTEGER PRIMARY KEY AUTOINCREMENT,
  at       INTEGER NOT NULL,
  consumer INTEGER NOT NULL,
  actor    TEXT NOT NULL,
  action   TEXT NOT NULL,
  object   TEXT NOT NULL,
  reason   TEXT NOT NULL,
  before   BLOB,
  after    BLOB
) STRICT`}
}
