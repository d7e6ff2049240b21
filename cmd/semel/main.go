// Command semel applies messages of a source to a database, each once.
package main

import (
	"os"

	"github.com/semel-dev/semel/cmd/semel/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
