package mysqlstore

import (
	"strings"
	"testing"

	"github.com/semel-dev/semel"
)

func TestParse(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://u:p%40ss@db:3307/shop":             "u:p@ss@tcp(db:3307)/shop",
		"mariadb://u@db/shop":                       "u@tcp(db:3306)/shop",
		"mysql://u@[::1]/shop":                      "u@tcp([::1]:3306)/shop",
		"mysql:///shop":                             "tcp(127.0.0.1:3306)/shop",
		"mysql://u@/shop?socket=/run/m.sock":        "u@unix(/run/m.sock)/shop",
		"mysql://u@db/shop?tls=true&timeout=3s":     "u@tcp(db:3306)/shop?timeout=3s&tls=true",
		"u:p@tcp(db:3306)/shop":                     "u:p@tcp(db:3306)/shop",
		"mysql://u@db/shop?charset=utf8mb4&loc=UTC": "u@tcp(db:3306)/shop?charset=utf8mb4",
	} {
		c, err := Parse(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		} else if got := c.FormatDSN(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	for _, address := range []string{"mysql://u:sec%ret@host/db", "postgres://u:secret@host/db", "mysql://u:secret@host/db?tls=nothing", "secret"} {
		_, err := Parse(address)
		if err == nil || Classify(err) != semel.ClassFault || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://u:secret@127.0.0.1:1":                         "names no database",
		"mysql://u:secret@127.0.0.1:1/db?clientFoundRows=true": "clientFoundRows",
		"mysql://u:secret@127.0.0.1:1/db":                      "refused",
	} {
		_, err := Open(t.Context(), address, Config{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestVersion(t *testing.T) {
	for version, want := range map[string]server{
		"8.0.36":                     {false, 8, 0},
		"9.7.4-commercial":           {false, 9, 7},
		"10.11.19-MariaDB-0+deb12u1": {true, 10, 11},
		"5.5.5-10.6.1-MariaDB-log":   {true, 10, 6},
		"5.7.44":                     {false, 5, 7},
	} {
		if got := parse(version); got != want {
			t.Errorf("%s: %+v", version, got)
		}
	}
}
