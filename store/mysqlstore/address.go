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
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery) // the driver's own parameters
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	if cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306")); cfg.Params["socket"] != "" {
		cfg.Net, cfg.Addr = "unix", cfg.Params["socket"]
	}
	delete(cfg.Params, "socket")
	return cfg, nil
}
