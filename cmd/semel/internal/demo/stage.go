package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlitestore"
)

// Options say what to show, and where.
type Options struct {
	// Incidents are names of them; empty: all, in order.
	Incidents []string
	// Keep leaves the directory.
	Keep bool
	// Program is the path of this binary: the children run it.
	Program string
	// Progress is told how it goes; Width is that of the terminal, 0 if it is
	// none, and Color whether it may be coloured.
	Progress io.Writer
	Width    int
	Color    bool

	// pipeline changes pipeline files before they are written; for tests of
	// whether wrong numbers are noticed.
	pipeline func(string) string
}

const (
	sideNaive = "naive"
	sideSemel = "semel"

	pipelineName = "pipeline.yaml"
	notesName    = "received.ndjson"
)

// side is one of the two consumers in the directory of an incident.
type side struct{ name, dir string }

func (s side) queue() string { return filepath.Join(s.dir, s.name, "queue") }
func (s side) db() string    { return filepath.Join(s.dir, s.name, "app.db") }
func (s side) notes() string { return filepath.Join(s.dir, s.name, notesName) }

// files counts those in a stage of the queue, claims included.
func (s side) files(stage string) (n int, err error) {
	err = filepath.WalkDir(filepath.Join(s.queue(), stage), func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			n++
		}
		return err
	})
	return n, err
}

// Run shows the incidents, one after the other, the two sides of each at the
// same time. If ctx ends, so do the children. What it made is gone when it
// returns, except with Keep.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	names := o.Incidents
	if len(names) == 0 {
		names = Names()
	}
	dir, err := os.MkdirTemp("", "semel-demo-")
	if err != nil {
		return nil, err
	}
	if !o.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	fmt.Fprintf(o.Progress, "The same messages and the same kill -9 for a consumer written by hand and for\nsemel: processes, queues and databases in %s\n\n", dir)
	began := time.Now()
	r = &Report{}
	if o.Keep {
		r.Dir = dir
	}
	for _, name := range names {
		inc, ok := byName(name)
		if !ok {
			return nil, fmt.Errorf("unknown incident %q: one of %s", name, strings.Join(Names(), ", "))
		}
		p := play{Options: o, inc: &inc, in: inc.input(), dir: filepath.Join(dir, name)}
		result, err := p.run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, errors.New("interrupted: nothing was shown")
		case err != nil:
			return nil, fmt.Errorf("%s: %w", strings.ToUpper(name), err)
		}
		r.Results = append(r.Results, result)
	}
	r.ElapsedMS = time.Since(began).Milliseconds()
	r.conclude()
	return r, nil
}

// play is one incident that is shown.
type play struct {
	Options
	inc *incident
	in  input
	dir string
}

// actor is one side while it plays.
type actor struct {
	side
	url   string
	kills atomic.Int64
	took  atomic.Int64 // nanoseconds, once it has ended
}

func (p *play) run(ctx context.Context) (*Result, error) {
	actors := [2]*actor{{side: side{sideNaive, p.dir}}, {side: side{sideSemel, p.dir}}}
	for _, a := range actors {
		if err := p.in.deliver(filepath.Join(a.queue(), "inbox")); err != nil {
			return nil, err
		}
		if p.inc.look != "" {
			continue
		}
		rcv, err := receive(a.notes(), p.in.slow)
		if err != nil {
			return nil, err
		}
		defer rcv.close()
		a.url = rcv.url
	}
	if err := p.writePipeline(); err != nil {
		return nil, err
	}
	if err := p.perform(ctx, actors); err != nil {
		return nil, err
	}
	return p.result(ctx, actors)
}

func (p *play) writePipeline() error {
	if p.inc.pipeline == "" {
		return nil
	}
	text := p.inc.file()
	if p.pipeline != nil {
		text = p.pipeline(text)
	}
	return os.WriteFile(filepath.Join(p.dir, pipelineName), []byte(text), 0o644)
}

// perform runs both sides at the same time; one that fails ends the other.
func (p *play) perform(ctx context.Context, actors [2]*actor) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := newScreen(p, actors).show()
	defer end()
	var wg sync.WaitGroup
	for _, a := range actors {
		wg.Go(func() {
			if err := p.live(ctx, a); err != nil {
				cancel(fmt.Errorf("%s: %w", a.name, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// live starts a side's process, again after each kill, until one comes to its
// end by itself.
func (p *play) live(ctx context.Context, a *actor) error {
	began := time.Now()
	for _, visit := range p.inc.visits {
		killed, err := p.child(ctx, a, fmt.Sprintf("SEMEL_FAULT=%s:%d", p.inc.point, visit))
		if err != nil {
			return err
		}
		if !killed {
			break
		}
		a.kills.Add(1)
	}
	killed, err := p.child(ctx, a)
	if err == nil && killed {
		err = errors.New("killed by somebody else")
	}
	a.took.Store(int64(time.Since(began)))
	return err
}

// child runs one process of a side.
func (p *play) child(ctx context.Context, a *actor, env ...string) (killed bool, err error) {
	args := []string{"demo", "child", a.name, p.inc.name}
	switch {
	case a.name == sideSemel && p.inc.pipeline != "":
		args = []string{"run", pipelineName, "--once"}
	case a.url != "":
		args = append(args, a.url)
	}
	said := &tail{}
	c := exec.CommandContext(ctx, p.Program, args...)
	c.Dir, c.Stderr, c.WaitDelay = p.dir, said, time.Second
	c.Env = append(environment(os.Environ()), env...)
	err = c.Run()
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil:
		return false, nil
	case died(err) && len(env) > 0:
		return true, nil
	}
	return false, fmt.Errorf("semel %s: %w\n%s", strings.Join(args, " "), err, said)
}

// died reports whether err says that a process was killed. Windows has no signals: there a
// killed process ends with 1. If it was an error all the same, the last
// process of the side, which nobody kills, says it.
func died(err error) bool {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return false
	}
	if runtime.GOOS == "windows" {
		return ended.ExitCode() == 1
	}
	ws, ok := ended.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// environment is env without what would change a child's pipeline or arm a
// fault of its own.
func environment(env []string) (clean []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, "SEMEL_") {
			clean = append(clean, e)
		}
	}
	return clean
}

// tail keeps the end of what a child says.
type tail struct{ b []byte }

const maxSaid = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxSaid):]
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }

// result reads back what became of everything.
func (p *play) result(ctx context.Context, actors [2]*actor) (*Result, error) {
	r := &Result{
		Incident: strings.ToUpper(p.inc.name), Title: p.inc.title, Counted: p.inc.counted, Broken: p.inc.broken,
		Messages: p.in.messages, Redelivered: p.in.redelivered(), Late: p.in.late, Slow: len(p.in.slow),
		KilledAt: string(p.inc.point), Kills: len(p.inc.visits), Expected: p.inc.total(p.in.want, p.in.want), inc: p.inc,
	}
	for i, out := range []*Side{&r.Naive, &r.Semel} {
		if err := p.read(ctx, actors[i], out); err != nil {
			return nil, err
		}
	}
	var err error
	r.Semel.Account, err = account(ctx, actors[1].side, p.inc.consumer)
	return r, err
}

func (p *play) read(ctx context.Context, a *actor, out *Side) error {
	got, err := p.inc.found(ctx, a.side)
	if err != nil {
		return err
	}
	done, err := a.files("done")
	out.Counted, out.Wrong = p.inc.total(got, p.in.want), wrong(got, p.in.want)
	out.Left = len(p.in.files) - done
	out.Kills = int(a.kills.Load())
	out.ElapsedMS = time.Duration(a.took.Load()).Milliseconds()
	return err
}

// account reads the ledger of a pipeline, and compares it with every row.
func account(ctx context.Context, s side, consumer string) (*Account, error) {
	st, err := sqlitestore.Open(ctx, s.db(), sqlitestore.Config{})
	if err != nil {
		return nil, err
	}
	defer st.Close(ctx)
	status, err := st.Status(ctx, consumer, true)
	if err != nil {
		return nil, err
	}
	a := &Account{Balanced: len(status.Imbalances) == 0}
	of := map[string]*int64{semel.Applied.String(): &a.Applied, semel.Superseded.String(): &a.Superseded,
		store.AccountOther + semel.Duplicate.String(): &a.Duplicates}
	for _, t := range status.Ledger {
		if n := of[t.Account]; n != nil {
			*n += t.N
		}
	}
	for state, n := range status.Letters {
		if state.Open() {
			a.Letters += n
		}
	}
	return a, nil
}
