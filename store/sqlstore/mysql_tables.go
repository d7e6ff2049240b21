package sqlstore

// The tables of MySQL and MariaDB. Ids, keys and whatever else comes from messages
// are binary: compared as bytes, whatever they hold. Times are milliseconds since
// 1970 by the database's clock, 0 for none. Each statement creates one table with
// its indexes, if it is not there: they cannot be taken back together.

// mysqlBatches are the tables that every batch meets.
func mysqlBatches() []string {
	return []string{`CREATE TABLE IF NOT EXISTS semel_consumer (
  number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name   VARBINARY(255) NOT NULL UNIQUE
)`, `CREATE TABLE IF NOT EXISTS semel_identity (
  consumer BIGINT NOT NULL,
  fact     VARBINARY(255) NOT NULL,
  value    MEDIUMTEXT NOT NULL,
  PRIMARY KEY (consumer, fact)
)`, `CREATE TABLE IF NOT EXISTS semel_batch (
  consumer BIGINT NOT NULL,
  worker   VARBINARY(512) NOT NULL,
  slot     BIGINT NOT NULL,
  batch    BIGINT NOT NULL,
  open     BIGINT NOT NULL,
  at       BIGINT NOT NULL,
  PRIMARY KEY (consumer, worker, slot)
)`, `CREATE TABLE IF NOT EXISTS semel_inbox (
  consumer    BIGINT NOT NULL,
  id          VARBINARY(255) NOT NULL,
  fingerprint BINARY(16) NOT NULL,
  verdict     BIGINT NOT NULL,
  bucket      BIGINT NOT NULL,
  hash        BIGINT NOT NULL,
  at          BIGINT NOT NULL,
  PRIMARY KEY (consumer, id)
)`, `CREATE TABLE IF NOT EXISTS semel_fence (
  consumer    BIGINT NOT NULL,
  scope       VARBINARY(1024) NOT NULL,
  incarnation VARBINARY(512) NOT NULL,
  epoch       BIGINT NOT NULL,
  next_hi     BIGINT NOT NULL,
  next_lo     BIGINT NOT NULL,
  clean       BIGINT NOT NULL,
  worker      VARBINARY(512) NOT NULL,
  assigned    BIGINT NOT NULL,
  at          BIGINT NOT NULL,
  PRIMARY KEY (consumer, scope, incarnation)
)`, `CREATE TABLE IF NOT EXISTS semel_version (
  consumer    BIGINT NOT NULL,
  key         VARBINARY(255) NOT NULL,
  n           BIGINT NOT NULL,
  tie         MEDIUMBLOB NOT NULL,
  known       BIGINT NOT NULL,
  id          VARBINARY(255) NOT NULL,
  fingerprint BINARY(16) NOT NULL,
  PRIMARY KEY (consumer, key)
)`}
}

// mysqlLetters are the tables of parked messages.
func mysqlLetters() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS semel_letter (
  row         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  consumer    BIGINT NOT NULL,
  ref         VARBINARY(1024) NOT NULL,
  id          VARBINARY(255) NOT NULL,
  key         VARBINARY(255) NOT NULL,
  type        MEDIUMBLOB NOT NULL,
  source      MEDIUMBLOB NOT NULL,
  time_s      BIGINT NOT NULL,
  time_ns     BIGINT NOT NULL,
  version_n   BIGINT NOT NULL,
  version_tie MEDIUMBLOB NOT NULL,
  version_set BIGINT NOT NULL,
  header      LONGBLOB,
  body        LONGBLOB,
  fingerprint BINARY(16) NOT NULL,
  origin      MEDIUMBLOB NOT NULL,
  state       VARBINARY(32) NOT NULL,
  open        BIGINT NOT NULL,
  version     BIGINT NOT NULL,
  number      BIGINT NOT NULL,
  class       VARBINARY(32) NOT NULL,
  reason      MEDIUMTEXT NOT NULL,
  conflict    BIGINT NOT NULL,
  attempts    BIGINT NOT NULL,
  seen        BIGINT NOT NULL,
  error       MEDIUMTEXT NOT NULL,
  stack       MEDIUMTEXT NOT NULL,
  cause       VARBINARY(255) NOT NULL,
  due         BIGINT NOT NULL,
  created     BIGINT NOT NULL,
  updated     BIGINT NOT NULL,
  failed      BIGINT NOT NULL,
  actor       MEDIUMTEXT NOT NULL,
  note        MEDIUMTEXT NOT NULL,
  proposed    BIGINT NOT NULL,
  UNIQUE (consumer, ref),
  INDEX semel_letter_state (consumer, state, created, ref),
  INDEX semel_letter_id (consumer, id, state, created, ref),
  INDEX semel_letter_key (consumer, key, state, created, ref),
  INDEX semel_letter_cause (consumer, cause, state, created, ref, failed),
  INDEX semel_letter_due (consumer, state, due),
  INDEX semel_letter_order (consumer, key, open, number),
  INDEX semel_letter_closed (consumer, open, updated)
)`,
		`CREATE TABLE IF NOT EXISTS semel_cause (
  consumer BIGINT NOT NULL,
  cause    VARBINARY(255) NOT NULL,
  class    VARBINARY(32) NOT NULL,
  reason   MEDIUMTEXT NOT NULL,
  text     MEDIUMTEXT NOT NULL,
  PRIMARY KEY (consumer, cause)
)`,
		`CREATE TABLE IF NOT EXISTS semel_letter_attempt (
  letter BIGINT NOT NULL,
  n      BIGINT NOT NULL,
  at     BIGINT NOT NULL,
  class  BIGINT NOT NULL,
  error  MEDIUMTEXT NOT NULL,
  stack  MEDIUMTEXT NOT NULL,
  worker VARBINARY(512) NOT NULL,
  PRIMARY KEY (letter, n)
)`, `CREATE TABLE IF NOT EXISTS semel_letter_revision (
  letter      BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  at          BIGINT NOT NULL,
  actor       MEDIUMTEXT NOT NULL,
  note        MEDIUMTEXT NOT NULL,
  id          VARBINARY(255) NOT NULL,
  key         VARBINARY(255) NOT NULL,
  type        MEDIUMBLOB NOT NULL,
  source      MEDIUMBLOB NOT NULL,
  time_s      BIGINT NOT NULL,
  time_ns     BIGINT NOT NULL,
  version_n   BIGINT NOT NULL,
  version_tie MEDIUMBLOB NOT NULL,
  version_set BIGINT NOT NULL,
  header      LONGBLOB,
  body        LONGBLOB,
  fingerprint BINARY(16) NOT NULL,
  PRIMARY KEY (letter, n)
)`}
}

// mysqlAccounts are the tables of holds, suspects, the ledger and the audit.
func mysqlAccounts() []string {
	return []string{`CREATE TABLE IF NOT EXISTS semel_hold (
  consumer BIGINT NOT NULL,
  key      VARBINARY(255) NOT NULL,
  size     BIGINT NOT NULL,
  tail     BIGINT NOT NULL,
  PRIMARY KEY (consumer, key)
)`, `CREATE TABLE IF NOT EXISTS semel_suspect (
  consumer BIGINT NOT NULL,
  unit     VARBINARY(1024) NOT NULL,
  bound    BIGINT NOT NULL,
  started  BIGINT NOT NULL,
  remains  BIGINT NOT NULL,
  at_hi    BIGINT NOT NULL,
  at_lo    BIGINT NOT NULL,
  charged  BIGINT NOT NULL,
  PRIMARY KEY (consumer, unit)
)`, `CREATE TABLE IF NOT EXISTS semel_ledger (
  consumer BIGINT NOT NULL,
  account  VARBINARY(255) NOT NULL,
  bucket   BIGINT NOT NULL,
  n        BIGINT NOT NULL,
  sum_lo   BIGINT NOT NULL,
  sum_hi   BIGINT NOT NULL,
  PRIMARY KEY (consumer, account, bucket)
)`, `CREATE TABLE IF NOT EXISTS semel_audit (
  seq      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at       BIGINT NOT NULL,
  consumer BIGINT NOT NULL,
  actor    MEDIUMTEXT NOT NULL,
  action   MEDIUMTEXT NOT NULL,
  object   MEDIUMTEXT NOT NULL,
  reason   MEDIUMTEXT NOT NULL,
  before   LONGBLOB,
  after    LONGBLOB
)`}
}

// mysqlEffects is the second version of MySQL's tables: effects outside of
// the database.
func mysqlEffects() []string {
	return []string{`CREATE TABLE IF NOT EXISTS semel_effect (
  consumer    BIGINT NOT NULL,
  key         VARBINARY(255) NOT NULL,
  fingerprint BINARY(16) NOT NULL,
  state       VARBINARY(32) NOT NULL,
  token       BIGINT NOT NULL,
  attempts    BIGINT NOT NULL,
  holder      MEDIUMBLOB NOT NULL,
  until       BIGINT NOT NULL,
  result      LONGBLOB,
  size        BIGINT NOT NULL,
  note        LONGBLOB NOT NULL,
  at          BIGINT NOT NULL,
  PRIMARY KEY (consumer, key),
  INDEX semel_effect_open (consumer, state, key),
  INDEX semel_effect_old (consumer, state, at)
)`}
}
