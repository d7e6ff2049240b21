package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/demo"
)

const demoHelp = `Show three incidents of at-least-once delivery on a consumer written by hand and
on semel: the same messages, the same kill -9 at the same moments. Processes,
queues and databases are real, and the numbers are read back from them. All of
it is in a temporary directory.

  a1  duplicate notification: answered too late, or killed after sending
  a2  counter too high: killed between the commit and the ack
  a3  status goes backwards: "paid" arrives after "cancelled"

Example:
  semel demo              all three, in less than a minute
  semel demo a2 --keep    one; queue, database and pipeline.yaml stay

Exit codes:
  0  semel was exact, and the naive consumer was not
  1  the command line is wrong
  2  semel was wrong, the naive consumer was right, or it could not be shown`

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use: "demo [INCIDENT]...", Short: "A naive consumer and semel, killed at the same moments", Long: demoHelp,
		Args: func(_ *cobra.Command, args []string) error {
			for i, name := range args {
				if !slices.Contains(demo.Names(), name) || slices.Contains(args[:i], name) {
					return fmt.Errorf("%q: an incident is one of %s, each at most once", name, strings.Join(demo.Names(), ", "))
				}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.demo(args, keep) },
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave the directory, and tell where it is")
	c.AddCommand(a.demoChildCommand())
	return c
}

// demoChildCommand is what the children of the demonstration run.
func (a *app) demoChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: "child SIDE INCIDENT [URL]", Hidden: true, Args: arguments("SIDE", "INCIDENT", "[URL]"),
		RunE: func(_ *cobra.Command, args []string) error {
			url := first(args[2:]...)
			if err := demo.Consume(context.Background(), args[0], args[1], url); err != nil {
				return exit(exitFault, err)
			}
			return nil
		},
	}
}

func (a *app) demo(incidents []string, keep bool) error {
	program, err := os.Executable()
	if err != nil {
		return exit(exitFault, err)
	}
	ctx, stop := a.signals(func(os.Signal) {})
	defer stop()
	width, _ := terminal(a.err)
	if a.getenv("TERM") == "dumb" {
		width = 0 // nothing that moves
	}
	r, err := demo.Run(ctx, demo.Options{
		Incidents: incidents, Keep: keep, Program: program, Progress: a.err, Width: width, Color: a.getenv("NO_COLOR") == "",
	})
	if err != nil {
		return exit(exitFault, err)
	}
	if a.json {
		err = writeJSON(a.out, r)
	} else {
		_, color := terminal(a.out)
		r.Print(a.out, color && a.getenv("NO_COLOR") == "")
	}
	switch {
	case err != nil:
		return exit(exitFault, err)
	case r.Shown:
		return nil
	case a.json:
		return exit(exitFault, errors.New(strings.Join(r.Problems, "\n")))
	}
	return exit(exitFault, nil)
}
