package mysqlstore

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Parse turns an address of Open into a configuration of the driver.
func Parse(address string) (*mysql.Config, error) {
	cfg, err := parseURL(address)
	if !strings.Contains(address, "://") {
		cfg, err = mysql.ParseDSN(address)
	}
	if err != nil {
		return nil, sqlstore.Failf(semel.ClassFault, "mysqlstore: the address: %w", err)
	}
	return cfg, nil
}

func parseURL(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil { // it quotes the address, password included
		return nil, errors.New("it is no URL: write mysql://user:password@host:3306/database, with %XX for special characters")
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, fmt.Errorf("scheme %q: write mysql://user:password@host:3306/database", u.Scheme)
	}
	q := u.Query()
	socket := q.Get("socket")
	q.Del("socket")
	cfg, err := mysql.ParseDSN("/?" + q.Encode()) // the driver's own parameters
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306"))
	if socket != "" {
		cfg.Net, cfg.Addr = "unix", socket
	}
	return cfg, nil
}
