module github.com/semel-dev/semel/store/sqlitestore

go 1.26

require github.com/semel-dev/semel v0.0.0

replace github.com/semel-dev/semel => ../..
