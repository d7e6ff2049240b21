package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/broker/filebroker"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/inbox"
	"github.com/semel-dev/semel/store/sqlstore"
)

// intake is one way to bring a directory's messages to where they go.
type intake struct {
	name  string
	files filebroker.Files
	n     int
	lay   func(root string, n int) error
	// dedup is "" for a consumer that only settles.
	dedup string
}

func intakes(p plan) []intake {
	return []intake{
		{"files, claimed and settled", filebroker.Whole, p.files, layFiles, ""},
		{"files into SQLite, `table`", filebroker.Whole, p.files, layFiles, "table"},
		{"lines, read and settled", filebroker.Lines, p.lines, layLines, ""},
		{"lines of gzip, read and settled", filebroker.Lines, p.lines, layGzip, ""},
		{"lines into SQLite, `position`", filebroker.Lines, p.lines, layLines, "position"},
		{"lines into SQLite, `table`", filebroker.Lines, p.lines, layLines, "table"},
		{"lines of gzip into SQLite, `table`", filebroker.Lines, p.lines, layGzip, "table"},
	}
}

// queue measures the directory queue from the claim to done/.
func queue(ctx context.Context, p plan, dir string) (section, error) {
	s := section{
		title: "The directory queue",
		text: fmt.Sprintf("%d files of one message each, and one file of %d lines; %d bytes a message, %d messages to a transaction. "+
			"From the claim until everything is in done/; median of %d runs, least and most in brackets. Row counts were checked.",
			p.files, p.lines, len(template), p.batch, p.runs),
		columns: []string{"", "messages/s", "CPU µs/message"},
	}
	for i, in := range intakes(p) {
		var costs []cost
		for run := range p.runs {
			root := filepath.Join(dir, fmt.Sprintf("queue%d-%d", i, run))
			c, err := in.run(ctx, p, root)
			if err != nil {
				return s, fmt.Errorf("%s: %w", in.name, err)
			}
			costs = append(costs, c)
			if err := os.RemoveAll(root); err != nil {
				return s, err
			}
		}
		s.row(in.name, ranged(each(costs, rateOf)), fmt.Sprintf("%.2f", each(costs, cpuOf).mid))
	}
	return s, nil
}

// run lays the directory out and measures from opening the queue to closing it.
func (in intake) run(ctx context.Context, p plan, root string) (cost, error) {
	inboxDir := filepath.Join(root, "inbox")
	if err := os.MkdirAll(inboxDir, 0o777); err != nil {
		return cost{}, err
	}
	if err := in.lay(inboxDir, in.n); err != nil {
		return cost{}, err
	}
	if in.dedup == "" {
		return in.through(ctx, root, func(q filebroker.Queue) error { return in.null(ctx, q, p.batch) })
	}
	return in.intoSQLite(ctx, p, root)
}

func (in intake) intoSQLite(ctx context.Context, p plan, root string) (cost, error) {
	dedup, err := inbox.Parse(in.dedup)
	if err != nil {
		return cost{}, err
	}
	d, err := openDatabase(ctx, filepath.Join(root, "effects.db"), checkpoint)
	if err != nil {
		return cost{}, err
	}
	defer d.close()
	st, err := d.store(ctx)
	if err != nil {
		return cost{}, err
	}
	defer st.Close(ctx)
	c, err := in.through(ctx, root, func(q filebroker.Queue) error {
		_, err := consume(ctx, config(dedup, p.batch), q, st, consumer.Each[sqlstore.Tx](applyEffect), in.n)
		return err
	})
	if err != nil {
		return c, err
	}
	return c, d.verify(ctx, in.n)
}

// through measures work on the queue, and what opening and closing it takes.
func (in intake) through(ctx context.Context, root string, work func(filebroker.Queue) error) (cost, error) {
	return measured(in.n, func() error {
		q, err := filebroker.Open(ctx, filebroker.Config{Root: root, Files: in.files, Worker: "bench"})
		if err != nil {
			return err
		}
		if err := work(q); err != nil {
			return err
		}
		if err := q.Close(ctx); err != nil {
			return err
		}
		return in.finished(root)
	})
}

// finished says whether everything went to done/.
func (in intake) finished(root string) error {
	want := in.n
	if in.files == filebroker.Lines {
		want = 1
	}
	entries, err := os.ReadDir(filepath.Join(root, "done"))
	if err == nil && len(entries) != want {
		err = fmt.Errorf("%d files in done/, want %d", len(entries), want)
	}
	return err
}

// null settles everything it receives.
func (in intake) null(ctx context.Context, q filebroker.Queue, batch int) error {
	seen := 0
	out := make([]broker.Settled, batch)
	if o, ok := q.(broker.Owned); ok {
		o.Bind(beginning{})
	}
	for seen < in.n {
		ds, err := q.Receive(ctx, broker.Budget{Messages: batch, Bytes: 16 << 20})
		if err != nil {
			return err
		}
		ss := make([]broker.Settlement, len(ds))
		for i := range ds {
			ss[i].Lease = ds[i].Lease
		}
		if err := q.Settle(ctx, ss, out[:len(ss)]); err != nil {
			return err
		}
		for i, o := range out[:len(ss)] {
			if o != broker.Done {
				return fmt.Errorf("%s was answered %d, not done", ds[i].Origin(), o)
			}
		}
		seen += len(ds)
	}
	return nil
}

// beginning owns files of lines and reads them from their first byte.
type beginning struct{ nobody }

// Assigned answers with offset zero for all.
func (beginning) Assigned(_ context.Context, a []broker.Assignment) ([]semel.Offset, error) {
	return make([]semel.Offset, len(a)), nil
}

// layFiles puts one message into each of n files, in no order of their names.
func layFiles(dir string, n int) error {
	body := []byte(template)
	for i := range n {
		idOf(body[idAt:idAt+32], i)
		if err := os.WriteFile(filepath.Join(dir, string(body[idAt:idAt+32])+".json"), body, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// layLines puts n messages into one file.
func layLines(dir string, n int) error {
	return layOne(filepath.Join(dir, "messages.ndjson"), func(w io.Writer) error { return writeLines(w, n) })
}

func layGzip(dir string, n int) error {
	return layOne(filepath.Join(dir, "messages.ndjson.gz"), func(w io.Writer) error {
		z := gzip.NewWriter(w)
		return errors.Join(writeLines(z, n), z.Close())
	})
}

func layOne(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func writeLines(w io.Writer, n int) error {
	b := bufio.NewWriterSize(w, 1<<16)
	line := []byte(template + "\n")
	for i := range n {
		idOf(line[idAt:idAt+32], i)
		if _, err := b.Write(line); err != nil {
			return err
		}
	}
	return b.Flush()
}
