package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
)

// mysqlDriver implements sqlstore.Driver.
type mysqlDriver struct{ lockWait, idle time.Duration }

// Guard readies a connection for writing. Outside of a transaction of ours it
// only reads, so that what a handler does after it ended the transaction does
// not commit by itself.
func (d mysqlDriver) Guard(ctx context.Context, c *sql.Conn) (sqlstore.Guard, error) {
	s, err := check(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, st := range d.settings(s) {
		if _, err := c.ExecContext(ctx, st); err != nil {
			return nil, err
		}
	}
	return &guard{}, nil
}

func (d mysqlDriver) settings(s server) []string {
	idle := "wait_timeout"
	if s.maria { // which can tell a transaction from a connection
		idle = "idle_transaction_timeout"
	}
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION TRANSACTION READ ONLY",
		fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d, lock_wait_timeout = %[1]d", seconds(d.lockWait)),
		fmt.Sprintf("SET SESSION %s = %d", idle, seconds(d.idle)),
	}
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// guard learns of a transaction's fate from errors: the server tells no driver
// otherwise.
type guard struct{ sqlstore.Watch }

// Note: a deadlock has rolled the transaction back. A lock that was waited for
// too long has undone one statement, and committing the rest would be half of
// the work.
func (g *guard) Note(err error) {
	switch n := number(err); {
	case n == errDeadlock || n == errRecordChanged:
		g.Meet(sqlstore.Gone)
	case n == errLockWait:
		g.Meet(sqlstore.Failed)
	case gone(err):
		g.Meet(sqlstore.Lost)
	}
}

// Again: a statement that was refused may have spoiled its transaction.
func (mysqlDriver) Again(error) bool { return false }

// Denied: only these answers to a COMMIT say that nothing is left of it.
func (mysqlDriver) Denied(err error) bool {
	n := number(err)
	return n == errDeadlock || n == errRecordChanged || n == errPluginRollback
}

// Classify sorts the driver's errors.
func (mysqlDriver) Classify(err error) (semel.Class, bool) {
	switch n := number(err); {
	case n != 0:
		return class(n), true
	case gone(err):
		return semel.ClassInfrastructure, true
	case errors.Is(err, mysql.ErrPktTooLarge):
		return semel.ClassPermanent, true
	case errors.Is(err, mysql.ErrBusyBuffer), errors.Is(err, mysql.ErrPktSync), errors.Is(err, mysql.ErrPktSyncMul):
		return semel.ClassInfrastructure, true
	}
	return semel.ClassTransient, false
}

// number is the server's error number, 0 for other errors.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// gone reports that the connection has ended.
func gone(err error) bool {
	var n net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.As(err, &n)
}

// NoTable reports an error that says a table is not there.
func NoTable(err error) bool { return number(err) == 1146 }

// Numbers of errors that mean more than their class.
const (
	errDuplicate      = 1062
	errLockWait       = 1205
	errDeadlock       = 1213
	errRecordChanged  = 1020 // since the snapshot was taken: innodb_snapshot_isolation
	errPluginRollback = 3101
)

func class(n uint16) semel.Class {
	switch n {
	case errLockWait, errDeadlock, errRecordChanged, errPluginRollback,
		1412, 1615, 3572: // a table changed, prepare again, NOWAIT
		return semel.ClassContention
	case 1317, 1969, 3024: // stopped: KILL QUERY, max_statement_time, max_execution_time
		return semel.ClassTransient
	case 1021, 1030, 1037, 1038, 1041, 1114, 1135, 1206, 1878, // disk, memory, locks
		1040, 1203, 1226, 1129, 1130, 1184, 1189, 1190, 1158, 1159, 1160, 1161, 1042, 1043, 1080, 1152, 4031, 1927, // connections
		1044, 1045, 1049, 1251, 1698, 1862, 3118, // login, database
		1053, 1077, 1180, 1181, 1194, 1195, 3032, 3100, // server, storage engine
		1290, 1792, 1836: // read only
		return semel.ClassInfrastructure
	case 1022, 1048, errDuplicate, 1169, 1216, 1217, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025, // constraints
		1264, 1265, 1292, 1364, 1365, 1366, 1367, 1369, 1406, 1411, 1416, 1425, 1426, 1439, 1441, 1525, 1690, 3037, 3548, 3617, // values
		3140, 3141, 3143, 3144, 3156, 3157, 3158, 3854, 4038, // JSON
		1118, 1153, 1301, 1644: // sizes, SIGNAL
		return semel.ClassPermanent
	}
	if n < 1000 || n >= 10000 {
		return semel.ClassTransient
	}
	return semel.ClassFault // what the program says, whatever the message
}
