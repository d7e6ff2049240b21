package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store"
)

// Exec is a program for each message. No shell is involved.
type Exec struct {
	Argv []string
	// Env are variables besides the few that are passed on; NAME=value.
	Env    []string
	Expect Codes
	// AskArgv answers whether it happened: exit code 0 if so, 1 if not. nil:
	// it cannot be asked.
	AskArgv []string
}

// ExecCodes follow sysexits.h: EX_TEMPFAIL says that nothing was done and that
// it may work later, EX_USAGE to EX_DATAERR that it never will.
func ExecCodes() Codes {
	return Codes{Done: []Range{{0, 0}}, Permanent: []Range{{64, 65}}, Transient: []Range{{75, 75}}}
}

// passedOn are the variables that every program needs. Others may hold secrets
// that are none of its business.
func passedOn() []string {
	return []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"}
}

// String names the program.
func (x *Exec) String() string { return "exec " + x.Argv[0] }

// Check implements Target.
func (x *Exec) Check() error {
	for _, argv := range [][]string{x.Argv, x.AskArgv} {
		if len(argv) > 0 {
			if _, err := exec.LookPath(argv[0]); err != nil {
				return semel.Fault(fmt.Errorf("handle.exec: %w", err))
			}
		}
	}
	return nil
}

// Print implements Target.
func (x *Exec) Print(_ *semel.Message, body []byte) store.Fingerprint {
	return effect.Print([]byte("exec"), []byte(strings.Join(x.Argv, "\x00")), body)
}

// Do implements Target.
func (x *Exec) Do(ctx context.Context, c Call) ([]byte, error) {
	code, err := x.run(ctx, x.Argv, c)
	if code < 0 {
		return nil, err
	}
	if err == nil {
		err = errors.New("exit code 0")
	}
	return fmt.Appendf(nil, "exit code %d", code), x.Expect.sort(code, err)
}

// Ask implements Target.
func (x *Exec) Ask(ctx context.Context, c effect.Call) ([]byte, error) {
	code, err := x.run(ctx, x.AskArgv, Call{Call: c, Message: &semel.Message{ID: c.Key}})
	switch {
	case err == nil:
		return []byte("found"), nil
	case code == 1:
		return nil, effect.NotDone(err)
	}
	return nil, unknown(err)
}

// killDelay is how long a killed program's pipes may stay open, held by what it
// left behind.
const killDelay = 2 * time.Second

// run runs a program to its end. The code is -1 if it did not come to one; the
// error is then NotDone if it was not even started.
func (x *Exec) run(ctx context.Context, argv []string, c Call) (code int, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // that is what the pipeline file asks for
	cmd.Stdin = bytes.NewReader(c.Body)
	said := &lastLine{}
	cmd.Stderr = said
	cmd.Env = append(x.environment(c), x.Env...)
	cmd.WaitDelay = killDelay
	group(cmd)
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			err = semel.Fault(err)
		}
		return -1, effect.NotDone(err)
	}
	err = cmd.Wait()
	var exited *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // what it left behind holds its pipes; the code is 0
		return 0, nil
	case errors.As(err, &exited) && exited.Exited():
		return exited.ExitCode(), fmt.Errorf("exit code %d%s", exited.ExitCode(), said)
	case ctx.Err() != nil:
		return -1, fmt.Errorf("it was killed, its time was over: %w", ctx.Err())
	}
	return -1, err
}

func (x *Exec) environment(c Call) []string {
	var env []string
	for _, name := range passedOn() {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, v := range []struct{ name, value string }{
		{"ID", c.Key}, {"KEY", c.Message.Key}, {"TYPE", c.Message.Type},
		{"ATTEMPT", strconv.Itoa(c.Attempt)}, {"TOKEN", strconv.FormatInt(c.Token, 10)},
	} {
		if !strings.ContainsRune(v.value, 0) { // a variable cannot hold it
			env = append(env, "SEMEL_"+v.name+"="+v.value)
		}
	}
	return env
}

// maxSaid bounds what is kept of what a program says.
const maxSaid = 200

// lastLine keeps the last line that was written to it, as far as it fits.
type lastLine struct{ line, rest []byte }

// Write implements io.Writer.
func (l *lastLine) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), maxSaid-len(l.rest))]...)
		if ended && len(l.rest) > 0 {
			l.line, l.rest = l.rest, nil
		}
		rest = after
	}
	return len(p), nil
}

// String is that line, quoted; empty if there was none.
func (l *lastLine) String() string {
	s := l.rest
	if len(s) == 0 {
		s = l.line
	}
	if len(s) == 0 {
		return ""
	}
	return ": " + strconv.QuoteToASCII(string(s))
}
