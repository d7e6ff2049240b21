package sqlstore

import (
	"database/sql"
	"regexp"
	"slices"

	"github.com/semel-dev/semel/store"
)

// MySQL returns the dialect of MySQL 8.0 and MariaDB 10.6 and later. The driver
// must report rows changed, not rows found.
func MySQL() *Dialect {
	d := &Dialect{
		Capabilities: store.Capabilities{Name: "mysql", Durable: true},
		Begin:        "START TRANSACTION READ WRITE",
		Server:       true,
		Savepoint:    true,
		Implicit:     true,
		Around:       [2]string{"SET SESSION TRANSACTION READ WRITE", "SET SESSION TRANSACTION READ ONLY"},
		Snapshot:     sql.LevelRepeatableRead,
		// Whatever the session's time zone is.
		Now:      "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS SIGNED)",
		Lock:     " FOR UPDATE",
		Rewrite:  mysqlWords,
		Alone:    "SELECT GET_LOCK(CONCAT('semel ', SHA2(DATABASE(), 224)), 60)",
		Together: "DO RELEASE_LOCK(CONCAT('semel ', SHA2(DATABASE(), 224)))",
		HasTable: "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
		Migrations: [][]string{
			slices.Concat(mysqlBatches(), mysqlLetters(), mysqlAccounts()),
			mysqlEffects(),
		},
	}
	for _, step := range d.Migrations {
		for i := range step {
			step[i] = mysqlQuoted(step[i]) + " ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
		}
	}
	return d
}

var (
	mysqlNothing  = regexp.MustCompile(`ON CONFLICT \((\w+)[\w, ]*\)\s+DO NOTHING`)
	mysqlUpdate   = regexp.MustCompile(`ON CONFLICT \([\w, ]+\)\s+DO UPDATE SET`)
	mysqlExcluded = regexp.MustCompile(`excluded\.(\w+)`)
	mysqlInto     = regexp.MustCompile(`INSERT INTO (\w+)`)
	mysqlReserved = regexp.MustCompile(`\b(key|row|before)\b`)
)

// mysqlWords turns a portable statement into one of MySQL. An INSERT that may
// do nothing sets a column to what it is: unlike INSERT IGNORE that hides no
// other error, and no row counts as changed.
func mysqlWords(s string) string {
	if into := mysqlInto.FindStringSubmatch(s); into != nil {
		s = mysqlNothing.ReplaceAllString(s, "ON DUPLICATE KEY UPDATE $1 = "+into[1]+".$1")
		s = mysqlUpdate.ReplaceAllString(s, "ON DUPLICATE KEY UPDATE")
		s = mysqlExcluded.ReplaceAllString(s, "VALUES($1)")
	}
	return mysqlQuoted(s)
}

// mysqlQuoted quotes the names of columns that are words of MySQL's.
func mysqlQuoted(s string) string { return mysqlReserved.ReplaceAllString(s, "`$1`") }
