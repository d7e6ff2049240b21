package cli

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var write = flag.Bool("write", false, "write docs/reference/cli.md from the commands")

const (
	reference = "../../../../docs/reference/cli.md"
	intro     = `# Commands and flags

<!-- Written from the commands by "make fmt". Do not edit. -->

What every verb takes and answers, as ` + "`--help`" + ` says it. [The command line](../operate/cli.md) explains how the verbs
belong together, [exit codes](exit-codes.md) has all codes in one table.

`
)

// TestReference keeps the reference page what the commands say of themselves.
// With -write it writes the page.
func TestReference(t *testing.T) {
	want := commandReference()
	got, err := os.ReadFile(reference)
	if err == nil && string(got) == want {
		return
	}
	if !*write {
		t.Fatalf("%s does not say what the commands say (%v); run: make fmt", reference, err)
	}
	if err := os.WriteFile(reference, []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestReferenceNoticesANewFlag: the page is made of what is there, not of a
// list of what should be.
func TestReferenceNoticesANewFlag(t *testing.T) {
	root := (&app{}).root()
	sub := &cobra.Command{Use: "weigh FILE", Short: "Weigh it", Long: "Weigh it.\n\nExit codes:\n  0  done", RunE: helpOnly}
	sub.Flags().Int("stones", 3, "how many `pieces`, one | two")
	root.AddCommand(sub)
	var b strings.Builder
	writeCommand(&b, sub, placeFlags())
	for _, want := range []string{"## semel weigh\n", "semel weigh FILE [flags]", "```text\nExit codes:\n  0  done\n```", "| `--stones pieces` | 3 | how many pieces, one \\| two |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func commandReference() string {
	root := (&app{}).root()
	root.InitDefaultVersionFlag()
	var b strings.Builder
	b.WriteString(intro)
	walk(root, func(c *cobra.Command) { writeCommand(&b, c, placeFlags()) })
	writePlace(&b)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			walk(sub, visit)
		}
	}
}

// placeFlags are the flags that most verbs share; they are told once.
func placeFlags() *pflag.FlagSet {
	c := &cobra.Command{}
	new(place).flags(c)
	return c.Flags()
}

func writeCommand(b *strings.Builder, c *cobra.Command, shared *pflag.FlagSet) {
	fmt.Fprintf(b, "## %s\n\n", c.CommandPath())
	if !c.HasAvailableSubCommands() {
		fmt.Fprintf(b, "```text\n%s\n```\n\n", c.UseLine())
	}
	writeHelp(b, c.Long)
	if c.HasAvailableSubCommands() {
		writeVerbs(b, c)
	}
	var own []*pflag.Flag
	hasShared := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch s := shared.Lookup(f.Name); {
		case s != nil && s.Usage == f.Usage: // init's are its own
			hasShared = true
		case !f.Hidden && f.Name != "help":
			own = append(own, f)
		}
	})
	writeFlags(b, own)
	if hasShared {
		b.WriteString("Also [the flags that replace what the file says](#the-place).\n\n")
	}
}

// writeHelp writes prose as prose, and what is laid out (examples, codes) as
// it is.
func writeHelp(b *strings.Builder, help string) {
	var laidOut []string
	flush := func() {
		if len(laidOut) > 0 {
			fmt.Fprintf(b, "```text\n%s\n```\n\n", strings.Join(laidOut, "\n\n"))
			laidOut = nil
		}
	}
	for block := range strings.SplitSeq(strings.TrimSpace(help), "\n\n") {
		if slices.ContainsFunc(strings.Split(block, "\n"), func(l string) bool { return strings.HasPrefix(l, "  ") }) {
			laidOut = append(laidOut, block)
			continue
		}
		flush()
		fmt.Fprintf(b, "%s\n\n", block)
	}
	flush()
}

func writeVerbs(b *strings.Builder, c *cobra.Command) {
	b.WriteString("| verb | |\n|---|---|\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			path := sub.CommandPath()
			fmt.Fprintf(b, "| [%s](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cell(sub.Short))
		}
	}
	b.WriteString("\n")
}

func writeFlags(b *strings.Builder, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	for _, f := range flags {
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+value), standard(f), cell(usage))
	}
	b.WriteString("\n")
}

// standard is a flag's default where there is one to tell.
func standard(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]":
		return ""
	}
	return cell(f.DefValue)
}

func writePlace(b *strings.Builder) {
	b.WriteString("## The place\n\nVerbs that take a pipeline file take these as well. The flag wins over the variable, and the variable over the file.\n\n")
	var flags []*pflag.Flag
	placeFlags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	writeFlags(b, flags)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// TestExitCodePage keeps the page of exit codes complete.
func TestExitCodePage(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/reference/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	for code := exitDone; code <= exitWaiting; code++ {
		if !strings.Contains(string(b), fmt.Sprintf("\n| %d |", code)) {
			t.Errorf("docs/reference/exit-codes.md has no row for %d", code)
		}
	}
}
