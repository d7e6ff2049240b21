package servertest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

func mariadb() recipe {
	return recipe{
		what: "MariaDB of the distribution",
		source: source{
			programs: []string{"mariadbd", "mariadb-install-db", "my_print_defaults"}, // the second calls the third
			dirs:     []string{"/usr/sbin", "/usr/bin"},
			packages: []string{"mariadb-server-core", "mariadb-client-core"}, // without the service
		},
		dialect:   dialect{identify: mysqlIdentity, database: mysqlDatabase},
		stop:      syscall.SIGTERM,
		create:    mariadbCreate,
		arguments: mariadbArguments,
		url: func(s *Server) string {
			return fmt.Sprintf("mysql://semel:%s@127.0.0.1:%d/", s.secret, s.port)
		},
	}
}

// mariadbCreate leaves root to the socket, which nobody can open: over TCP
// there is one user, who has a password. The file is read at every start.
func mariadbCreate(ctx context.Context, s *Server) error {
	_, err := s.write("init.sql", fmt.Sprintf("CREATE OR REPLACE USER semel@'%%' IDENTIFIED BY '%s';\n"+
		"GRANT ALL ON *.* TO semel@'%%' WITH GRANT OPTION;\n", s.secret))
	if err != nil {
		return err
	}
	return s.command(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+s.data(),
		"--auth-root-authentication-method=socket", "--auth-root-socket-user=root", "--skip-test-db", "--skip-name-resolve")
}

func mariadbArguments(s *Server) []string {
	args := []string{
		"--no-defaults", "--datadir=" + s.data(), "--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--init-file=" + filepath.Join(s.dir, "init.sql"), "--skip-name-resolve", "--character-set-server=utf8mb4",
		"--innodb-buffer-pool-size=64M", "--max-connections=200",
	}
	if s.options.Fast {
		args = append(args, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-flush-method=nosync")
	}
	return args
}

// mysql9 has the configuration of MariaDB, as far as that goes.
func mysql9() recipe {
	r := mariadb()
	r.what, r.extra = "MySQL of Debian's unstable suite", true
	r.source = source{
		programs: []string{"mysqld"},
		suite: &suite{
			name: "sid", packages: []string{"mysql-server-core"}, program: "usr/sbin/mysqld",
			libs: []string{"usr/lib/x86_64-linux-gnu", "usr/lib/mysql/private"},
			args: []string{"--no-defaults", "--lc-messages-dir=TREE/usr/share/mysql", "--character-sets-dir=TREE/usr/share/mysql/charsets",
				"--plugin-dir=TREE/usr/lib/mysql/plugin"},
		},
	}
	r.create = mysqlCreate
	r.arguments = func(s *Server) []string {
		return append(mariadbArguments(s)[1:], "--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-log-writer-threads=OFF")
	}
	return r
}

// mysqlCreate leaves root without a password until the first start takes it
// away: there is no TCP before.
func mysqlCreate(ctx context.Context, s *Server) error {
	_, err := s.write("init.sql", fmt.Sprintf("CREATE USER IF NOT EXISTS semel@'%%' IDENTIFIED BY '%s';\n"+
		"GRANT ALL ON *.* TO semel@'%%' WITH GRANT OPTION;\nDROP USER IF EXISTS root@localhost;\n", s.secret))
	if err != nil {
		return err
	}
	return s.command(ctx, "mysqld", "--initialize-insecure", "--datadir="+s.data())
}

// MySQLConfig turns an address, mysql://user:password@host:port/database, into what
// Go's MySQL driver wants.
func MySQLConfig(address string) (*mysql.Config, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User = at.User.Username()
	c.Passwd, _ = at.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", at.Host, strings.TrimPrefix(at.Path, "/")
	return c, nil
}

func mysqlOpen(address string) (*sql.DB, error) {
	c, err := MySQLConfig(address)
	if err != nil {
		return nil, err
	}
	c.Logger = &mysql.NopLogger{} // it speaks of each refused connection while a server starts
	// A session that was left with a transaction open would hold up a drop.
	c.Params = map[string]string{"lock_wait_timeout": "10"}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func mysqlIdentity(ctx context.Context, address string) (id identity, err error) {
	db, err := mysqlOpen(address)
	if err != nil {
		return id, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT @@datadir, @@version").Scan(&id.data, &id.version)
	id.data = filepath.Clean(id.data)
	id.version, _, _ = strings.Cut(id.version, "-")
	return id, err
}

func mysqlDatabase(ctx context.Context, address string) (string, func(context.Context) error, error) {
	at, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	name := "semel_" + random()
	drop := func(ctx context.Context) error { return mysqlExec(ctx, address, "DROP DATABASE IF EXISTS "+name) }
	if err := mysqlExec(ctx, address, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	at.Path = "/" + name
	return at.String(), drop, nil
}

func mysqlExec(ctx context.Context, address, statement string) error {
	db, err := mysqlOpen(address)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
