module github.com/semel-dev/semel/cmd/semel

go 1.26.0

require github.com/semel-dev/semel v0.0.0

replace github.com/semel-dev/semel => ../..

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/itchyny/gojq v0.12.20
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/semel-dev/semel/store/mysqlstore v0.0.0
	github.com/semel-dev/semel/store/pgstore v0.0.0-00010101000000-000000000000
	github.com/semel-dev/semel/store/sqlitestore v0.0.0-00010101000000-000000000000
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	modernc.org/sqlite v1.62.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/itchyny/timefmt-go v0.1.9 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.13.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/semel-dev/semel/store/mysqlstore => ../../store/mysqlstore

replace github.com/semel-dev/semel/store/pgstore => ../../store/pgstore

replace github.com/semel-dev/semel/store/sqlitestore => ../../store/sqlitestore
