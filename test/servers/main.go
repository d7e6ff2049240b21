// Servers starts the real servers that tests need. See the package servertest.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/test/servers/servertest"
)

const usage = `Starts the real servers that the tests need: %s.

  go run ./test/servers run [SERVER ...] -- COMMAND [ARG ...]
        runs the command; a test below it that needs a server gets it, started
        when the first one asks and shared by all; stops them at the end.
        What is missing is installed first: all servers, or those named.
  eval "$(go run ./test/servers up [SERVER ...])"
        starts servers in the background, for work by hand, and prints their
        addresses as lines for the shell; all of them, or those named
  go run ./test/servers down
        stops what "up" started here
  go run ./test/servers list
        what can be started, what is installed, what runs

Plain "go test" works without any of this: a test process then starts servers of
its own. An address in the environment replaces a start:
  SEMEL_TEST_POSTGRES='postgres://user:password@host:5432/postgres#foreign'
#foreign says that any server there will do. "up" prints the data directory
there instead: only the server that has it will do.

As root on Debian, missing servers are installed by apt-get and npm, and servers
run as the user nobody. Others are told what to install.

Exit codes: 0 done, 1 failed, 2 wrong usage; run: that of the command.
`

// idle is how long "run" keeps a server that no test process uses.
const idle = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(code(dispatch(ctx, os.Args[1:], os.Stdout), os.Stderr))
}

// errUsage is a command line that makes no sense.
var errUsage = errors.New("see go run ./test/servers -h")

// commandError is how the command of "run" ended, which has said why itself.
type commandError struct{ *exec.ExitError }

func code(err error, to io.Writer) int {
	var command commandError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &command) && command.ExitCode() > 0:
		return command.ExitCode()
	}
	fmt.Fprintln(to, "servers:", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("servers", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, usage, names(servertest.Kinds()))
		return nil
	case err != nil || f.NArg() == 0:
		return fmt.Errorf("%w: run, up, down or list", errUsage)
	}
	rest := f.Args()[1:]
	switch f.Arg(0) {
	case "run":
		return run(ctx, rest)
	case "up":
		return up(ctx, rest, out)
	case "host":
		return host(ctx, rest, out)
	case "down":
		return down(ctx)
	case "list":
		return list(out)
	}
	return fmt.Errorf("%w: there is no %q", errUsage, f.Arg(0))
}

func names(kinds []servertest.Kind) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(kinds), " ", ", "), "[]")
}

// parse reads names of servers; none means all.
func parse(args []string) (kinds []servertest.Kind, err error) {
	if len(args) == 0 {
		return servertest.Kinds(), nil
	}
	for _, arg := range args {
		k, err := servertest.ParseKind(arg)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// install gets what is missing, except for servers whose address is given.
func install(ctx context.Context, kinds []servertest.Kind) error {
	for _, k := range kinds {
		if os.Getenv(k.Env()) != "" {
			fmt.Fprintf(os.Stderr, "servers: %s is the one of %s\n", k, k.Env())
			continue
		}
		if err := servertest.Install(ctx, k, os.Stderr); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "servers: %s: %s\n", k, k.Installed())
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	at := slices.Index(args, "--")
	if at < 0 || at == len(args)-1 {
		return fmt.Errorf("%w: run wants -- and a command", errUsage)
	}
	kinds, err := parse(args[:at])
	if err != nil {
		return err
	}
	if err := install(ctx, kinds); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "semel-host-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := servertest.Listen(filepath.Join(dir, "host"), idle, os.Stderr)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[at+1], args[at+2:]...)
	cmd.Env = append(os.Environ(), h.Env())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// At a Ctrl-C the terminal tells the command too; give it time to end.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	err = cmd.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		err = commandError{ended}
	}
	return errors.Join(err, h.Close())
}

// place is where the servers of "up" are found again: one for each user and
// working directory.
func place() (string, error) {
	wd, err := os.Getwd()
	return filepath.Join(os.TempDir(), fmt.Sprintf("semel-up-%d-%08x", os.Getuid(), crc32.ChecksumIEEE([]byte(wd)))), err
}

// up starts a host that outlives it and copies what it prints.
func up(ctx context.Context, args []string, out io.Writer) error {
	kinds, err := parse(args)
	if err != nil {
		return err
	}
	if err := install(ctx, kinds); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"host"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	lines, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lines.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	for scan := bufio.NewScanner(lines); scan.Scan(); {
		switch line := scan.Text(); {
		case line == ready:
			return cmd.Process.Release()
		case strings.HasPrefix(line, "export "):
			fmt.Fprintln(out, line)
		default:
			fmt.Fprintln(os.Stderr, line)
		}
	}
	return errors.Join(errors.New("the servers did not start"), cmd.Wait())
}

// ready is what a host prints last.
const ready = "# ready"

// host is what "up" leaves running.
func host(ctx context.Context, args []string, out io.Writer) (err error) {
	kinds, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := place()
	if err != nil {
		return err
	}
	h, err := servertest.Listen(dir, 0, os.Stderr)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: servers are up already; first: go run ./test/servers down", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for _, k := range kinds {
		line, err := h.Export(ctx, k)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out, ready)
	select {
	case <-ctx.Done():
	case <-h.Down():
	}
	return nil
}

func down(ctx context.Context) error {
	dir, err := place()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "servers: none are up")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := servertest.Down(ctx, dir); err != nil {
		// The host was killed, and its servers with it; what is left is a name.
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

func list(out io.Writer) error {
	for _, k := range servertest.All() {
		installed := k.Installed()
		if installed == "" {
			installed = "not installed"
		}
		fmt.Fprintf(out, "%-10s  %s: %s\n            %s=…\n", k, k.What(), installed, k.Env())
	}
	running := servertest.Running()
	fmt.Fprintf(out, "%d running\n", len(running))
	for _, line := range running {
		fmt.Fprintln(out, "  "+line)
	}
	return nil
}
