package sqlstore

// sqliteEffects is the second version of SQLite's tables: effects outside of
// the database. Results may be large, so rows have a number of their own.
func sqliteEffects() []string {
	return []string{`CREATE TABLE semel_effect (
  consumer    INTEGER NOT NULL,
  key         BLOB NOT NULL,
  fingerprint BLOB NOT NULL,
  state       TEXT NOT NULL,
  token       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  holder      BLOB NOT NULL,
  until       INTEGER NOT NULL,
  result      BLOB,
  size        INTEGER NOT NULL,
  note        BLOB NOT NULL,
  at          INTEGER NOT NULL,
  PRIMARY KEY (consumer, key)
) STRICT`,
		`CREATE INDEX semel_effect_open ON semel_effect (consumer, key) WHERE state = 'intended'`,
		`CREATE INDEX semel_effect_old ON semel_effect (consumer, at) WHERE state <> 'intended'`}
}
