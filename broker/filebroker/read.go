package filebroker

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
)

// Read hands over the messages of the file at path as a queue of this
// configuration would, without a queue: nothing is claimed or moved. Only
// Files, Delimiter and MaxBytes of cfg count, and Complete where it is Summed;
// deliveries have no lease and their scopes no incarnation. What cannot be read
// on is one last delivery that is malformed. An error of fn ends it and is
// returned.
func Read(ctx context.Context, cfg Config, path string, fn func(*semel.Delivery) error) error {
	give := func(at int64, body []byte, bad error) error {
		d := &semel.Delivery{Malformed: bad}
		d.Body = body
		d.Position.Scope.Name, d.Position.Lo = filepath.Base(path), at
		return fn(d)
	}
	f, err := openClaimed(path)
	if err != nil && unreadable(err) {
		return give(0, nil, semel.Invalid(err))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	wrong, err := checkLying(ctx, cfg, path, identify(fi))
	switch {
	case err != nil:
		return err
	case wrong != nil:
		return give(0, nil, semel.Invalid(wrong))
	case cfg.Files == Whole:
		w := whole{&core{cfg: cfg}}
		_, body, bad := w.read(f, fi)
		return give(0, body, bad)
	}
	return readParts(ctx, cfg, f, fi.Size(), give)
}

// checkLying compares a file with its checksum wherever it lies.
func checkLying(ctx context.Context, cfg Config, path string, id identity) (wrong, err error) {
	if cfg.Complete != Summed {
		return nil, nil
	}
	return checkClaimed(ctx, path, id, func(k sumKind) string {
		if in := filepath.Join(filepath.Dir(path), k.kept+filepath.Base(path)); exists(in) {
			return in // a claim
		}
		return path + k.suffix
	})
}

func readParts(ctx context.Context, cfg Config, f *os.File, size int64, give func(int64, []byte, error) error) error {
	var p packing
	src, chunk, err := p.open(f, size)
	if err != nil {
		return give(0, nil, semel.Invalid(err))
	}
	for r := newReader(src, cfg.splitter(), 0, cfg.MaxBytes, chunk); ; {
		rec, err := r.next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return give(rec.start, nil, semel.Invalid(err))
		}
		if err := give(rec.start, rec.body, rec.bad); err != nil {
			return err
		}
	}
}
