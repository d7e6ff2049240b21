package demo_test

import (
	"os"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/cli"
)

// TestMain makes this program semel itself for the children of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "demo") {
		os.Exit(cli.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}
