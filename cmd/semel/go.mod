module github.com/semel-dev/semel/cmd/semel

go 1.26.0

require github.com/semel-dev/semel v0.0.0

replace github.com/semel-dev/semel => ../..

require github.com/semel-dev/semel/store/sqlitestore v0.0.0

require (
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/itchyny/gojq v0.12.20 // indirect
	github.com/itchyny/timefmt-go v0.1.9 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/term v0.48.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/semel-dev/semel/store/sqlitestore => ../../store/sqlitestore
