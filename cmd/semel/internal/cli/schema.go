package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

const schemaHelp = `semel keeps its own tables (semel_…) beside yours, in the same database. A run
makes them where they are missing; where only others may change tables, print
the statements for them and check afterwards.

Example:
  semel schema print orders.yaml | less
  semel schema check orders.yaml`

func (a *app) schemaCommand() *cobra.Command {
	c := &cobra.Command{Use: "schema", Short: "Print, apply or check semel's own tables", Long: schemaHelp, Args: verbs,
		RunE: helpOnly}
	c.AddCommand(
		a.schemaVerb("print FILE", "Print all statements, semel's and those of setup:", "", a.schemaPrint),
		a.schemaVerb("apply FILE", "Bring the tables to this version", "", a.schemaApply),
		a.schemaVerb("check FILE", "Tell which statements are pending", "\n  3  statements are pending", a.schemaCheck))
	return c
}

func (a *app) schemaVerb(use, short, more string, fn func(context.Context, *config.File, *adapters.Store, bool) error) *cobra.Command {
	var p place
	var dry bool
	name, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Args: arguments("FILE"),
		Long: short + ".\n\nExample:\n  semel schema " + name + " orders.yaml\n\nExit codes:\n  0  done\n  1  the command line or the pipeline file is wrong\n  2  the store could not be used" + more,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withSchema(args[0], p, name == "apply" && !dry, func(ctx context.Context, f *config.File, st *adapters.Store) error {
				return fn(ctx, f, st, dry)
			})
		}}
	if name == "apply" {
		c.Flags().BoolVar(&dry, "dry-run", false, "print the pending statements; change nothing")
	}
	p.flags(c)
	return c
}

// withSchema opens the store; create: also if there is no database yet.
func (a *app) withSchema(path string, p place, create bool, fn func(context.Context, *config.File, *adapters.Store) error) error {
	f, err := a.load(path, p)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if !create && !adapters.StoreExists(f.Store) {
		return fn(ctx, f, nil)
	}
	st, err := adapters.OpenStore(ctx, f.Store)
	if err != nil {
		return exit(startCode(nil, err), err)
	}
	defer st.Close()
	return fn(ctx, f, st)
}

// pending are the statements to run; all of them where there is no database.
func pending(ctx context.Context, f *config.File, st *adapters.Store) ([]string, error) {
	if st == nil {
		return adapters.Statements(ctx, f.Store)
	}
	s, err := st.Schema.Pending(ctx)
	if err != nil {
		return nil, exit(exitFault, err)
	}
	return s, nil
}

func (a *app) printStatements(statements []string) error {
	if a.json {
		return writeJSON(a.out, map[string]any{"statements": append([]string{}, statements...)})
	}
	for _, s := range statements {
		fmt.Fprintf(a.out, "%s;\n\n", strings.TrimRight(strings.TrimSpace(s), ";"))
	}
	return nil
}

func (a *app) schemaPrint(ctx context.Context, f *config.File, _ *adapters.Store, _ bool) error {
	s, err := adapters.Statements(ctx, f.Store)
	if err != nil {
		return exit(exitFault, err)
	}
	return a.printStatements(append(s, f.Setup...))
}

func (a *app) schemaApply(ctx context.Context, f *config.File, st *adapters.Store, dry bool) error {
	todo, err := pending(ctx, f, st)
	if err != nil || dry {
		if err == nil {
			err = a.printStatements(todo)
		}
		return err
	}
	if err := st.Schema.Migrate(ctx); err != nil {
		return exit(exitFault, err)
	}
	if err := st.Pipeline.Setup(ctx, f.Setup); err != nil {
		return exit(startCode(st.Classify, err), err)
	}
	if a.json {
		return writeJSON(a.out, map[string]int{"applied": len(todo), "setup": len(f.Setup)})
	}
	fmt.Fprintf(a.out, "%s applied; %s of setup run\n", counted(int64(len(todo)), "statement"), counted(int64(len(f.Setup)), "text"))
	return nil
}

func (a *app) schemaCheck(ctx context.Context, f *config.File, st *adapters.Store, _ bool) error {
	todo, err := pending(ctx, f, st)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printStatements(todo)
	} else if len(todo) == 0 {
		fmt.Fprintln(a.out, "up to date")
	} else {
		fmt.Fprintf(a.out, "%s pending; semel schema apply %s runs them, and so does the next semel run\n", counted(int64(len(todo)), "statement"), f.Path)
	}
	if err == nil && len(todo) > 0 {
		return exit(exitDead, nil)
	}
	return err
}
