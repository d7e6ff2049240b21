module github.com/semel-dev/semel/store/mysqlstore

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/semel-dev/semel v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace github.com/semel-dev/semel => ../..
