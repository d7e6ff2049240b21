module github.com/semel-dev/semel/test

go 1.26

require github.com/semel-dev/semel v0.0.0

replace github.com/semel-dev/semel => ..

require github.com/semel-dev/semel/store/sqlitestore v0.0.0

replace github.com/semel-dev/semel/store/sqlitestore => ../store/sqlitestore
