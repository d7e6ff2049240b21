package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strings"
)

// suite is one table of the report.
type suite struct {
	name string
	run  func(ctx context.Context, p plan, dir string) (section, error)
}

func suites() []suite {
	return []suite{{"ladder", ladder}, {"path", path}, {"queue", queue}, {"replay", replay}}
}

// suites are those of a run: PostgreSQL only where a server is named.
func (o options) suites() []suite {
	all := suites()
	if o.postgres != "" {
		all = append(all, suite{"postgres", postgres(o.postgres)})
	}
	return all
}

type options struct {
	postgres string
	only     *regexp.Regexp
	scale    float64
	rounds   int
	noisy    bool
	dir      string
	page     string
	profile  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string, usage io.Writer) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	only := f.String("only", "", "run the tables whose `name` matches: ladder, path, queue, replay, postgres")
	f.StringVar(&o.postgres, "postgres", "", "`URL` of a PostgreSQL server for the table postgres; a place to make and remove schemas")
	f.Float64Var(&o.scale, "scale", 1, "`part` of the messages; other than 1 is not recorded")
	f.IntVar(&o.rounds, "rounds", full().rounds, "of interleaved slices; fewer are not recorded")
	f.BoolVar(&o.noisy, "noisy", false, "run although others use the machine; not recorded")
	f.StringVar(&o.dir, "dir", ".work/bench", "where databases and queues are made; on the disk that is to be measured")
	f.StringVar(&o.page, "page", "docs/benchmarks.md", "the page to write the tables into; empty: none")
	f.StringVar(&o.profile, "cpuprofile", "", "`file` for a CPU profile; not recorded")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if o.scale <= 0 || o.rounds < 2 {
		return o, errors.New("scale must be above 0 and rounds at least 2")
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// recorded says why this run is not written to the page; nil: it is.
func (o options) recorded() error {
	switch {
	case o.page == "":
		return errors.New("no page is named")
	case o.noisy, o.scale != 1, o.rounds < full().rounds, o.profile != "", o.only.String() != "":
		return errors.New("only a whole run with default flags, on a quiet machine, is")
	}
	return nil
}

func run(ctx context.Context, o options, out io.Writer) error {
	p := full().scaled(o.scale)
	p.rounds = o.rounds
	if o.noisy {
		p.idle /= 10
	}
	free, err := idle(p.idle)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "idle CPU before the run: %.0f %%\n\n", 100*free)
	if free < quiet && !o.noisy {
		return fmt.Errorf("others use this machine: %.0f %% of the CPU is idle, %.0f %% is needed; wait, or use -noisy, which records nothing", 100*free, 100*quiet)
	}
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "run")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // make clean does it too
	begin, err := ticksNow()
	if err != nil {
		return err
	}
	own := cpuTime()
	text, err := measure(ctx, o, p, dir, free, out)
	if err != nil {
		return err
	}
	end, err := ticksNow()
	if err != nil {
		return err
	}
	return conclude(o, out, text, end.othersSince(begin, cpuTime()-own))
}

// conclude records the tables, or says why not.
func conclude(o options, out io.Writer, text string, others float64) error {
	fmt.Fprintf(out, "\nothers used %.0f %% of the CPU during the run\n", 100*others)
	if why := o.recorded(); why != nil {
		fmt.Fprintf(out, "not written to a page: %v\n", why)
		return nil
	}
	if others > most {
		return fmt.Errorf("others used %.0f %% of the CPU during the run, at most %.0f %% may be: not written to %s", 100*others, 100*most, o.page)
	}
	return record(o.page, text)
}

// measure runs the suites, prints each as it is done, and returns the whole.
func measure(ctx context.Context, o options, p plan, dir string, free float64, out io.Writer) (string, error) {
	var text strings.Builder
	both := io.MultiWriter(out, &text)
	facts, err := machine(dir, free)
	if err != nil {
		return "", err
	}
	for _, f := range facts {
		fmt.Fprintln(both, "* "+f)
	}
	stop, err := profile(o.profile)
	if err != nil {
		return "", err
	}
	defer stop()
	for _, s := range o.suites() {
		if !o.only.MatchString(s.name) {
			continue
		}
		at := filepath.Join(dir, s.name)
		if err := os.Mkdir(at, 0o777); err != nil {
			return "", err
		}
		fmt.Fprintf(os.Stderr, "measuring %s\n", s.name)
		sec, err := s.run(ctx, p, at)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(both, "\n%s", sec.markdown())
		if err := os.RemoveAll(at); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// record writes the tables into the page.
func record(path, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if page, err = replaceMeasured(page, text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o666)
}
