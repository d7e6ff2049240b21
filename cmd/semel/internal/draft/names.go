package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const maxName = 48 // of a column, in bytes

// Name makes a name for a table or a column of any text: lower case letters,
// digits and _, no digit first. fallback is taken where nothing is left.
func Name(text, fallback string) string {
	var b strings.Builder
	runes := []rune(text)
	for i, r := range runes {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1])) {
			b.WriteByte('_')
		}
		switch {
		case upper:
			b.WriteRune(unicode.ToLower(r))
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	name := strings.Join(strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' }), "_")
	name = strings.TrimRight(name[:min(len(name), maxName)], "_")
	switch {
	case name == "":
		return fallback
	case name[0] >= '0' && name[0] <= '9':
		return "c_" + name
	}
	return name
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// CheckTable says why a name is none for the table of a pipeline; nil if it is
// one.
func CheckTable(name string) error {
	switch lower := strings.ToLower(name); {
	case !identifier.MatchString(name):
		return fmt.Errorf("a table's name is 1 to 63 letters, digits and _, no digit first")
	case strings.HasPrefix(lower, "semel_") || strings.HasPrefix(lower, "sqlite_"):
		return fmt.Errorf("names that begin with semel_ and sqlite_ belong to semel and to the database")
	}
	return nil
}

// quote is a name as it stands in SQL.
func quote(name string) string {
	if slices.Contains(strings.Fields(reserved), strings.ToUpper(name)) {
		return `"` + name + `"`
	}
	return name
}

// reserved are words that some database does not take for a name.
const reserved = `ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC ATTACH AUTHORIZATION
AUTOINCREMENT BEFORE BEGIN BETWEEN BINARY BOTH BY CASCADE CASE CAST CHECK COLLATE COLLATION COLUMN COMMIT CONCURRENTLY
CONFLICT CONSTRAINT CREATE CROSS CURRENT CURRENT_CATALOG CURRENT_DATE CURRENT_ROLE CURRENT_SCHEMA CURRENT_TIME
CURRENT_TIMESTAMP CURRENT_USER DATABASE DEFAULT DEFERRABLE DEFERRED DELETE DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE
EXCEPT EXCLUDE EXCLUSIVE EXISTS EXPLAIN FAIL FALSE FETCH FILTER FIRST FOLLOWING FOR FOREIGN FREEZE FROM FULL GENERATED GLOB
GRANT GROUP GROUPS HAVING IF IGNORE ILIKE IMMEDIATE IN INDEX INDEXED INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL
JOIN KEY LAST LATERAL LEADING LEFT LIKE LIMIT LOCALTIME LOCALTIMESTAMP MATCH MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL
NULLS OF OFFSET ON ONLY OR ORDER OTHERS OUTER OVER OVERLAPS PARTITION PLACING PLAN PRAGMA PRECEDING PRIMARY QUERY RAISE RANGE
RECURSIVE REFERENCES REGEXP REINDEX RELEASE RENAME REPLACE RESTRICT RETURNING RIGHT ROLLBACK ROW ROWID ROWS SAVEPOINT SELECT
SESSION_USER SET SIMILAR SOME SYMMETRIC TABLE TABLESAMPLE TEMP TEMPORARY THEN TIES TO TRAILING TRANSACTION TRIGGER TRUE
UNBOUNDED UNION UNIQUE UPDATE USER USING VACUUM VALUES VARIADIC VERBOSE VIEW VIRTUAL WHEN WHERE WINDOW WITH WITHOUT`

// names gives out names that differ.
type names map[string]bool

func (n names) take(name string) string {
	unique := name
	for i := 2; n[unique]; i++ {
		unique = name + "_" + strconv.Itoa(i)
	}
	n[unique] = true
	return unique
}
