package zz

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	_ "modernc.org/sqlite"
	"path/filepath"
	"strings"
	"testing"
)

const N = 1000

func open(b *testing.B, idx bool) (*sql.DB, *sql.Conn) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "x.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(2)")
	if err != nil {
		b.Fatal(err)
	}
	c, err := db.Conn(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	ex(b, c, `CREATE TABLE inbox(consumer INTEGER NOT NULL,id BLOB NOT NULL,fp BLOB NOT NULL,verdict INTEGER NOT NULL,bucket INTEGER NOT NULL,hash INTEGER NOT NULL,at INTEGER NOT NULL,PRIMARY KEY(consumer,id)) WITHOUT ROWID`)
	if idx {
		ex(b, c, `CREATE INDEX ia ON inbox(consumer,at)`)
	}
	ex(b, c, `CREATE TABLE eff(id INTEGER PRIMARY KEY, body BLOB)`)
	return db, c
}
func ex(b *testing.B, c *sql.Conn, q string, a ...any) {
	if _, err := c.ExecContext(context.Background(), q, a...); err != nil {
		b.Fatal(q, err)
	}
}
func ids() [][]byte {
	r := make([][]byte, N)
	for i := range r {
		x := make([]byte, 18)
		rand.Read(x)
		r[i] = []byte(hex.EncodeToString(x))
	}
	return r
}

var fp = make([]byte, 16)

func run(b *testing.B, idx bool, f func(c *sql.Conn, ids [][]byte)) {
	db, c := open(b, idx)
	defer db.Close()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		x := ids()
		ex(b, c, "BEGIN IMMEDIATE")
		f(c, x)
		ex(b, c, "COMMIT")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*N), "ns/row")
}

const ins = "INSERT INTO inbox VALUES(?1,?2,?3,?4,?5,?6,?7) ON CONFLICT(consumer,id) DO NOTHING"

func stmtRow(b *testing.B, ctx context.Context) func(c *sql.Conn, x [][]byte) {
	var st *sql.Stmt
	return func(c *sql.Conn, x [][]byte) {
		if st == nil {
			st, _ = c.PrepareContext(ctx, ins)
		}
		for _, id := range x {
			r, err := st.ExecContext(ctx, int64(1), id, fp, int64(1), int64(20000), int64(123456789012345), int64(1790000000000))
			if err != nil {
				b.Fatal(err)
			}
			if n, _ := r.RowsAffected(); n != 1 {
				b.Fatal(n)
			}
		}
	}
}
func BenchmarkStmt(b *testing.B)    { run(b, false, stmtRow(b, context.Background())) }
func BenchmarkStmtIdx(b *testing.B) { run(b, true, stmtRow(b, context.Background())) }
func BenchmarkStmtCancel(b *testing.B) {
	ctx, cf := context.WithCancel(context.Background())
	defer cf()
	run(b, false, stmtRow(b, ctx))
}
func BenchmarkRaw(b *testing.B) {
	var st driver.StmtExecContext
	args := make([]driver.NamedValue, 7)
	for i := range args {
		args[i].Ordinal = i + 1
	}
	args[0].Value = int64(1)
	args[2].Value = fp
	args[3].Value = int64(1)
	args[4].Value = int64(20000)
	args[6].Value = int64(1790000000000)
	run(b, false, func(c *sql.Conn, x [][]byte) {
		c.Raw(func(dc any) error {
			if st == nil {
				s, err := dc.(driver.ConnPrepareContext).PrepareContext(context.Background(), ins)
				if err != nil {
					b.Fatal(err)
				}
				st = s.(driver.StmtExecContext)
			}
			for i, id := range x {
				args[1].Value = id
				args[5].Value = int64(i) * 999999999
				r, err := st.ExecContext(context.Background(), args)
				if err != nil {
					b.Fatal(err)
				}
				if n, _ := r.RowsAffected(); n != 1 {
					b.Fatal(n)
				}
			}
			return nil
		})
	})
}
func multi(b *testing.B, k int) {
	q := "INSERT INTO inbox VALUES" + strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,?),", k), ",") + " ON CONFLICT(consumer,id) DO NOTHING"
	var st driver.StmtExecContext
	args := make([]driver.NamedValue, 7*k)
	for i := range args {
		args[i].Ordinal = i + 1
	}
	run(b, false, func(c *sql.Conn, x [][]byte) {
		c.Raw(func(dc any) error {
			if st == nil {
				s, err := dc.(driver.ConnPrepareContext).PrepareContext(context.Background(), q)
				if err != nil {
					b.Fatal(err)
				}
				st = s.(driver.StmtExecContext)
			}
			for i := 0; i < N; i += k {
				for j := 0; j < k; j++ {
					a := args[j*7:]
					a[0].Value = int64(1)
					a[1].Value = x[i+j]
					a[2].Value = fp
					a[3].Value = int64(1)
					a[4].Value = int64(20000)
					a[5].Value = int64(j) * 99999999
					a[6].Value = int64(1790000000000)
				}
				r, err := st.ExecContext(context.Background(), args)
				if err != nil {
					b.Fatal(err)
				}
				if n, _ := r.RowsAffected(); n != int64(k) {
					b.Fatal(n)
				}
			}
			return nil
		})
	})
}
func BenchmarkMulti10(b *testing.B)  { multi(b, 10) }
func BenchmarkMulti50(b *testing.B)  { multi(b, 50) }
func BenchmarkMulti200(b *testing.B) { multi(b, 200) }
func multi2(b *testing.B, k int) {
	q := "INSERT INTO inbox VALUES"
	for i := 0; i < k; i++ {
		if i > 0 {
			q += ","
		}
		q += "(?1,?,?,?2,?3,?,?4)"
	}
	// numbering: ?N then ? continue => craft explicit
	q = "INSERT INTO inbox SELECT ?1,column1,column2,?2,?3,column3,?4 FROM (VALUES"
	n := 5
	for i := 0; i < k; i++ {
		if i > 0 {
			q += ","
		}
		q += "(?" + itoa(n) + ",?" + itoa(n+1) + ",?" + itoa(n+2) + ")"
		n += 3
	}
	q += ") WHERE true ON CONFLICT(consumer,id) DO NOTHING"
	var st driver.StmtExecContext
	args := make([]driver.NamedValue, 4+3*k)
	for i := range args {
		args[i].Ordinal = i + 1
	}
	args[0].Value = int64(1)
	args[1].Value = int64(1)
	args[2].Value = int64(20000)
	args[3].Value = int64(1790000000000)
	run(b, false, func(c *sql.Conn, x [][]byte) {
		c.Raw(func(dc any) error {
			if st == nil {
				s, err := dc.(driver.ConnPrepareContext).PrepareContext(context.Background(), q)
				if err != nil {
					b.Fatal(err)
				}
				st = s.(driver.StmtExecContext)
			}
			for i := 0; i < N; i += k {
				for j := 0; j < k; j++ {
					a := args[4+j*3:]
					a[0].Value = x[i+j]
					a[1].Value = fp
					a[2].Value = int64(j) * 99999999
				}
				r, err := st.ExecContext(context.Background(), args)
				if err != nil {
					b.Fatal(err)
				}
				if n, _ := r.RowsAffected(); n != int64(k) {
					b.Fatal(n)
				}
			}
			return nil
		})
	})
}
func itoa(n int) string                { b, _ := json.Marshal(n); return string(b) }
func BenchmarkMultiSel50(b *testing.B) { multi2(b, 50) }
func BenchmarkJSON(b *testing.B) {
	q := "INSERT INTO inbox SELECT ?1,unhex(value->>0),unhex(value->>1),?2,?3,value->>2,?4 FROM json_each(?5) WHERE true ON CONFLICT(consumer,id) DO NOTHING"
	run(b, false, func(c *sql.Conn, x [][]byte) {
		var sb strings.Builder
		sb.WriteByte('[')
		for i, id := range x {
			if i > 0 {
				sb.WriteByte(',')
			}
			sb.WriteString(`["`)
			sb.WriteString(hex.EncodeToString(id))
			sb.WriteString(`","`)
			sb.WriteString(hex.EncodeToString(fp))
			sb.WriteString(`",123456789]`)
		}
		sb.WriteByte(']')
		r, err := c.ExecContext(context.Background(), q, 1, 1, 20000, 1790000000000, sb.String())
		if err != nil {
			b.Fatal(err)
		}
		if n, _ := r.RowsAffected(); n != N {
			b.Fatal(n)
		}
	})
}
func BenchmarkEffOnly(b *testing.B) {
	body := make([]byte, 200)
	var st *sql.Stmt
	ctx := context.Background()
	run(b, false, func(c *sql.Conn, x [][]byte) {
		if st == nil {
			st, _ = c.PrepareContext(ctx, "INSERT INTO eff(body) VALUES(?)")
		}
		for range x {
			if _, err := st.ExecContext(ctx, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
