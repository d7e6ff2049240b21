// Package cli is the command line: one file per verb.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/internal/trap"
	"github.com/semel-dev/semel/letter"
	"github.com/semel-dev/semel/store/searchstore"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// Exit codes, the same for all verbs; each help says which of them it uses.
const (
	exitDone       = 0 // done; for run: drained, or stopped in good order
	exitUsage      = 1 // the command line or the pipeline file is wrong; nothing was started
	exitFault      = 2 // stopped by a fault
	exitDead       = 3 // dead letters, or whatever else waits for a person
	exitImbalanced = 4 // the account does not balance
	exitWaiting    = 5 // messages wait
)

// codedError ends the program with a code; without err silently.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func exit(code int, err error) error {
	if code == exitDone && err == nil {
		return nil
	}
	return &codedError{code, err}
}

func usagef(format string, args ...any) error { return exit(exitUsage, fmt.Errorf(format, args...)) }

// app is what the verbs share.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	exit     func(int) // for the second signal
	json     bool
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, exit: os.Exit}
	return a.main(args)
}

func (a *app) main(args []string) int {
	restore, err := trap.Arm(a.getenv, slices.Concat(fault.All(), fault.Effects(), filebroker.Points(), letter.Points(), searchstore.Points()))
	if err != nil {
		fmt.Fprintln(a.err, "semel:", err)
		return exitUsage
	}
	defer restore()
	out := &outlet{Writer: a.out}
	a.out = out
	root := a.root()
	root.SetArgs(args)
	ran, err := root.ExecuteC()
	if out.err == nil {
		return a.report(ran, err)
	}
	if !errors.Is(err, out.err) {
		a.report(ran, err)
	}
	fmt.Fprintf(a.err, "%s: the output is not whole: %v: make room for it, or write it elsewhere\n", ran.CommandPath(), out.err)
	return exitFault
}

// outlet keeps the first error of what is written to: whoever reads the output
// of a verb that ends well has all of it.
type outlet struct {
	io.Writer
	err error
}

func (o *outlet) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// report prints an error once, and says where help is if the command line was
// at fault.
func (a *app) report(ran *cobra.Command, err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return exitDone
	case !errors.As(err, &coded):
		// Of cobra itself: an unknown verb or flag, a missing argument.
		fmt.Fprintf(a.err, "semel: %v\nsemel: %s --help shows how it is used\n", err, ran.CommandPath())
		return exitUsage
	case coded.err == nil:
		return coded.code
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(a.err, problems.Error())
		return coded.code
	}
	fmt.Fprintf(a.err, "%s: %s\n", ran.CommandPath(), strings.ReplaceAll(printable(err.Error()), "\n", "\n  "))
	return coded.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "semel",
		Short: "At-least-once messages, effects that happen once",
		Long: `semel takes messages from a source, applies each to your database once, and can
say of every message where it is now.

  semel demo                          what goes wrong without it, in seconds
  semel init                          write a pipeline file for your messages
  semel run orders.yaml --once        take what is there, then end
  semel status orders.yaml            what waits, where, for whom
  semel letters list orders.yaml      what could not be applied, and why
  semel explain orders.yaml ID        everything known about one message`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              verbs,
		RunE:              helpOnly,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("semel {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "write the result as JSON")
	root.AddCommand(a.initCommand(), a.runCommand(), a.statusCommand(), a.lettersCommand(), a.effectsCommand(), a.explainCommand(), a.schemaCommand(), a.demoCommand(), a.versionCommand())
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	return root
}

// usageTemplate is shorter than cobra's: a help has to fit a screen.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} VERB{{else}}{{.UseLine}}{{end}}
{{if .HasAvailableSubCommands}}
Verbs:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}
Flags:
{{.Flags.FlagUsages | trimTrailingWhitespaces}}
`

// helpOnly is a command that needs a verb.
func helpOnly(c *cobra.Command, _ []string) error {
	if err := c.Help(); err != nil {
		return err
	}
	return exit(exitUsage, nil)
}

// verbs wants a verb that there is.
func verbs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2 // letters that differ; the default is 0
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%s has no verb %q: did you mean %s?", c.CommandPath(), args[0], near[0])
	}
	var names []string
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			names = append(names, v.Name())
		}
	}
	return fmt.Errorf("%s has no verb %q: it has %s", c.CommandPath(), args[0], strings.Join(names, ", "))
}

// arguments wants exactly these; a last one in brackets may be there any
// number of times.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		many := strings.HasPrefix(names[len(names)-1], "[")
		need := names
		if many {
			need = names[:len(names)-1]
		}
		if len(args) < len(need) {
			return fmt.Errorf("%s is missing", need[len(args)])
		}
		if len(args) > len(need) && !many {
			return fmt.Errorf("too many arguments from %q on", args[len(need)])
		}
		return nil
	}
}

// place are the flags that replace names of the pipeline file.
type place struct{ name, source, store string }

func (p *place) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.name, "name", "", "a `NAME` instead of that in the file ($SEMEL_NAME)")
	f.StringVar(&p.source, "source", "", "a `SOURCE` instead of that ($SEMEL_SOURCE)")
	f.StringVar(&p.store, "store", "", "a `STORE` instead of that ($SEMEL_STORE)")
}

// load reads the pipeline file: flag over environment over file.
func (a *app) load(path string, p place) (*config.File, error) {
	opt := adapters.Options()
	opt.Getenv = a.getenv
	opt.Name = first(p.name, a.getenv("SEMEL_NAME"))
	opt.Source = first(p.source, a.getenv("SEMEL_SOURCE"))
	opt.Store = first(p.store, a.getenv("SEMEL_STORE"))
	f, err := config.Load(path, opt)
	if err != nil {
		return nil, exit(exitUsage, err)
	}
	return f, nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// open opens the store of a pipeline for looking and deciding. A database that
// does not exist is not made: it would say that there is nothing.
func (a *app) open(ctx context.Context, f *config.File) (*adapters.Store, error) {
	if !adapters.StoreExists(f.Store) {
		return nil, usagef("%v does not exist: has the pipeline run yet? (semel run %s --once)", f.Store, f.Path)
	}
	st, err := adapters.OpenStore(ctx, f.Store)
	if err != nil {
		return nil, exit(exitFault, err)
	}
	pending, err := st.Schema.Pending(ctx)
	if err == nil && len(pending) > 0 {
		err = fmt.Errorf("%v does not have semel's tables in the version of this program: run semel schema apply %s", f.Store, f.Path)
	}
	if err != nil {
		st.Close()
		return nil, exit(exitFault, err)
	}
	return st, nil
}

// signals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP
// (the terminal is gone); the second one ends the program.
func (a *app) signals(first func(os.Signal)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // of nohup
		signal.Notify(c, syscall.SIGHUP)
	}
	go func() {
		select {
		case s := <-c:
			first(s)
			cancel()
		case <-ctx.Done():
			return
		}
		for s := range c {
			if s != syscall.SIGHUP { // it comes twice where a shell and its terminal end
				a.exit(exitFault)
			}
		}
	}()
	return ctx, func() { signal.Stop(c); cancel() }
}

// isTerminal reports whether somebody may answer on r.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminal returns the width of w if it is a terminal.
func terminal(w io.Writer) (width int, ok bool) {
	if o, ok := w.(*outlet); ok {
		w = o.Writer
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	return width, true
}
