package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version that packaging/build links in.
var release string

// built is what bug reports need to know of the program.
type built struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// SQLite is the version of the driver, of which the database's follows.
	SQLite string `json:"sqlite"`
}

func build() built {
	b := built{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = first(info.Main.Version, "(devel)")
	}
	for _, m := range info.Deps {
		if m.Path == "modernc.org/sqlite" {
			b.SQLite = m.Version
		}
	}
	return b
}

func version() string { return build().Version }

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell which program this is",
		Long: `Tell which program this is: its version, the Go it was built with, the platform
it was built for, and the version of the SQLite driver.

Example:
  semel version --json

Exit codes:
  0  done`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := build()
			if a.json {
				return writeJSON(a.out, b)
			}
			_, err := fmt.Fprintf(a.out, "semel %s, %s, %s, modernc.org/sqlite %s\n", b.Version, b.Go, b.Platform, first(b.SQLite, "unknown"))
			return err
		},
	}
}
