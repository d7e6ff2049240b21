package filebroker

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
)

// Queue is what Open returns. Unless files are Whole it is also a broker.Owned.
type Queue interface {
	broker.Receiver
	broker.Measurer
}

// Open registers this process as a worker of the directory queue and checks
// that the file system can do what the queue needs. Several processes, and
// several queues in one process, may share a root.
func Open(ctx context.Context, cfg Config) (Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := open(ctx, cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	if c.cfg.Files != Whole {
		l := &lines{core: c}
		c.mode = l
		return l, nil
	}
	w := &whole{core: c}
	c.mode = w
	return w, nil
}

// core is what whole files and files of lines have in common: claims, leases,
// moves. Locks are taken in the order recv, set, mu; owner calls hold recv.
type core struct {
	mover
	cfg  Config
	dirs layout
	mode mode
	scan *scanner
	sums atomic.Bool // there may be checksum sidecars in claims
	wake chan struct{}
	quit chan struct{}

	recv     sync.Mutex // one Receive, or Close
	adopted  []*claim   // taken over, not looked into
	todo     []*file    // claimed, not handed over
	nextReap time.Time
	nextTry  time.Time // of stuck settlements
	slab     slab
	lastSize int // deliveries of the last Receive

	set sync.Mutex // one Settle, or Close

	mu       sync.Mutex
	me       *worker
	fresh    *claim // receives new claims; not removed while it does
	ledger   ledger
	released []item
	stuck    int
	shut     bool
}

// mode is what differs between the two kinds of files.
type mode interface {
	// gather fills the basket with what can be had without waiting.
	gather(ctx context.Context, b *basket) error
	// tidy finishes what is complete and reports whether there was any.
	tidy(ctx context.Context) (bool, error)
	// settle carries out an Ack or Reject.
	settle(it *item, s broker.Settlement) broker.Settled
	// leave gives back everything; the worker is about to go.
	leave(ctx context.Context) error
	// lose forgets everything: others have it.
	lose()
}

func open(ctx context.Context, cfg Config) (*core, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dirs, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	c := &core{mover: mover{cfg.linkOnly}, cfg: cfg, dirs: dirs, scan: newScanner(cfg, dirs.inbox), wake: make(chan struct{}, 1), quit: make(chan struct{})}
	c.ledger.generation = 1
	c.sums.Store(cfg.Complete == Summed)
	if c.me, err = register(dirs, cfg, c.rouse); err != nil {
		return nil, openError(dirs.processing, err, "the directory must be writable by this user, and its file system not mounted read-only")
	}
	// Registered first, so that whoever takes over from a process that dies in
	// the middle knows the name of its probe.
	if err := dirs.probe(c.me.name); err != nil {
		c.me.halt()
		c.me.leave()
		return nil, err
	}
	return c, nil
}

// rouse makes a waiting Receive look again.
func (c *core) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Capabilities implements broker.Receiver.
func (c *core) Capabilities() broker.Capabilities {
	return broker.Capabilities{Name: "directory", Release: true, Reject: true, MaxBytes: c.cfg.MaxBytes}
}

// Receive implements broker.Receiver.
func (c *core) Receive(ctx context.Context, budget broker.Budget) ([]semel.Delivery, error) {
	c.recv.Lock()
	defer c.recv.Unlock()
	for {
		if err := c.ready(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		b := c.basket(budget)
		busy, err := c.round(ctx, b)
		switch {
		case len(b.ds) > 0:
			return c.enter(b), nil
		case errors.Is(err, errLost):
			c.me.lost.Store(true)
		case err != nil:
			return nil, err
		case !busy:
			c.pause(ctx, time.Since(began))
		}
	}
}

// basket has room for as much as the last one held.
func (c *core) basket(budget broker.Budget) *basket {
	n := min(c.lastSize+c.lastSize/8, max(budget.Messages, 1))
	return &basket{budget: budget, items: make([]item, 0, n), ds: make([]semel.Delivery, 0, n)}
}

// round does everything that can be done without waiting.
func (c *core) round(ctx context.Context, b *basket) (busy bool, err error) {
	c.retryStuck()
	if err := c.reapIfDue(); err != nil {
		return false, err
	}
	before, err := c.mode.tidy(ctx)
	if err != nil {
		return false, err
	}
	c.redeliver(b)
	if err := c.mode.gather(ctx, b); err != nil || len(b.ds) > 0 {
		return false, err
	}
	after, err := c.mode.tidy(ctx)
	return before || after, err
}

// ready returns why nothing more can be received, and registers anew if this
// process was silent for so long that others took its claims.
func (c *core) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-c.quit:
		return broker.ErrClosed
	default:
	}
	if !c.me.lost.Load() {
		return nil
	}
	c.me.halt()
	c.me.lock.Close()
	c.forget()
	c.mode.lose()
	me, err := register(c.dirs, c.cfg, c.rouse)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.me = me
	c.mu.Unlock()
	return nil
}

// forget drops everything in hand; its leases are stale from now on.
func (c *core) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.reset()
	c.released, c.fresh, c.stuck = nil, nil, 0
	c.adopted, c.todo = nil, nil
}

// pause waits for the next look at the inbox. A look that took long is not
// repeated at once.
func (c *core) pause(ctx context.Context, took time.Duration) {
	d := max(c.cfg.Poll, 4*took)
	d += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(d))
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.wake:
	case <-c.quit:
	case <-ctx.Done():
	}
}

// enter gives leases to what was gathered.
func (c *core) enter(b *basket) []semel.Delivery {
	c.lastSize = len(b.ds)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.enter(b.items, b.ds)
	return b.ds
}

// redeliver hands over again what was released, oldest first.
func (c *core) redeliver(b *basket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.released) && b.fits(int64(len(c.released[n].body))) {
		b.add(c.released[n])
		n++
	}
	c.released = append([]item(nil), c.released[n:]...)
}

// claimNew claims the next complete file of inbox/. It returns nil at the end
// of a pass over inbox/, and when the next file does not fit.
func (c *core) claimNew(ctx context.Context, fits func(int64) bool) (*file, error) {
	for {
		cand, ok, err := c.scan.next(ctx)
		if !ok || err != nil {
			return nil, err
		}
		if !fits(cand.size) {
			c.scan.unread(cand)
			return nil, nil
		}
		cl, err := c.freshClaim()
		if err != nil {
			c.scan.unread(cand)
			return nil, err
		}
		f, err := c.take(cl, cand)
		switch {
		case err == nil && cand.sum != nil && !f.proven(cand.sum):
			c.giveBack(f) // it was replaced meanwhile
		case err == nil:
			c.cameBack(f)
			return f, nil
		case errors.Is(err, fs.ErrNotExist):
			c.scan.missed()
		case errors.Is(err, fs.ErrExist):
			// The name came a second time while its first file is in hand.
			c.scan.unread(cand)
			c.retire()
		case errors.Is(err, fs.ErrPermission):
			c.scan.skip(cand.name, err) // this one; the others may be ours to move
		default:
			return nil, err
		}
	}
}

// freshClaim returns the claim that new files go into.
func (c *core) freshClaim() (*claim, error) {
	if c.fresh != nil {
		return c.fresh, nil
	}
	dir, err := c.me.claimDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errLost
	}
	if err != nil {
		return nil, err
	}
	cl := &claim{dir: dir}
	c.mu.Lock()
	c.fresh = cl
	c.mu.Unlock()
	return cl, nil
}

// retire ends a claim that has files: the next one gets its own directory.
func (c *core) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fresh != nil && c.fresh.files > 0 {
		c.fresh = nil
	}
}

// Close implements broker.Receiver: it gives back what is not settled. What
// cannot be given back stays in processing/ for the next worker.
func (c *core) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return nil
	}
	c.shut = true
	c.mu.Unlock()
	close(c.quit)

	c.recv.Lock()
	defer c.recv.Unlock()
	err := c.mode.leave(ctx)
	c.scan.close()
	c.keepAdopted()
	if c.fresh != nil {
		os.Remove(c.fresh.dir)
	}
	c.forget()
	c.me.halt()
	c.me.leave()
	return err
}

// giveBackAll gives back files that are not finished. A settlement that is
// still on its way finds its lease stale.
func (c *core) giveBackAll(files []*file) {
	c.set.Lock()
	defer c.set.Unlock()
	c.mu.Lock()
	c.ledger.reset()
	c.mu.Unlock()
	for _, f := range files {
		c.giveBack(f)
	}
}

// keepAdopted leaves what was taken over and never looked into as it was, so
// that the next worker still learns how its first owner ended.
func (c *core) keepAdopted() {
	for _, cl := range c.adopted {
		if err := os.Rename(cl.dir, cl.dir+leftSuffixes[cl.takeover]); err != nil {
			c.cfg.Report(filepath.Base(cl.dir), err)
		}
	}
}

// giveBack moves an unsettled file to inbox/, or leaves it in processing/ for
// the next worker.
func (c *core) giveBack(f *file) {
	err := c.restore(f)
	switch {
	case err == nil:
		c.dropClaim(f.claim)
		return
	case errors.Is(err, fs.ErrNotExist) && !exists(f.path()):
		return // taken over, or removed
	case errors.Is(err, fs.ErrExist):
		err = ErrTaken
	}
	c.cfg.Report(f.name, err)
	if left := f.claim.dir + leftSuffixes[semel.Fresh]; !f.claim.left && os.Rename(f.claim.dir, left) == nil {
		f.claim.dir, f.claim.left = left, true
		c.retire() // what is claimed from now on is not left
	}
}

func (c *core) restore(f *file) error {
	if exists(filepath.Join(c.dirs.inbox, f.name)) {
		return fs.ErrExist
	}
	if err := c.restoreSidecar(f); err != nil {
		return err
	}
	if c.sums.Load() {
		if err := c.parkSums(f.claim.dir, f.name); err != nil {
			return err
		}
	}
	marker := filepath.Join(f.claim.dir, markerPrefix+f.name)
	if c.cfg.Complete == Marked {
		if err := os.WriteFile(marker, nil, 0o666); err != nil {
			return err
		}
	}
	if err := c.moveNew(f.path(), filepath.Join(c.dirs.inbox, f.name)); err != nil {
		return err
	}
	fault.Hit(Returned)
	if c.sums.Load() {
		if err := c.returnSums(f.claim.dir, f.name); err != nil {
			return err
		}
	}
	if c.cfg.Complete == Marked {
		return c.moveNew(marker, filepath.Join(c.dirs.inbox, f.name+c.cfg.MarkerSuffix))
	}
	return nil
}

func (c *core) restoreSidecar(f *file) error {
	kept := filepath.Join(f.claim.dir, returnName(f.name))
	err := c.moveNew(kept, filepath.Join(c.dirs.error, sidecarName(f.name)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrExist):
		return os.Remove(kept)
	}
	return err
}
