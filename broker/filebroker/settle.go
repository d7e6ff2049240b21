package filebroker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/broker"
	"github.com/semel-dev/semel/fault"
)

// Settle implements broker.Receiver. A move that fails for want of space or
// permission is Unknown: it stays with us and is tried again.
func (c *core) Settle(ctx context.Context, s []broker.Settlement, out []broker.Settled) error {
	c.set.Lock()
	defer c.set.Unlock()
	for i := range s {
		out[i] = c.settle(s[i])
	}
	return nil
}

func (c *core) settle(s broker.Settlement) broker.Settled {
	b, it, answer := c.begin(s)
	if it == nil {
		return answer
	}
	answer = c.mode.settle(it, s)
	c.end(b, it, s, answer)
	return answer
}

// begin finds what a settlement is about. The item is nil if the answer is
// known already.
func (c *core) begin(s broker.Settlement) (*batch, *item, broker.Settled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, it := c.ledger.find(s.Lease)
	switch {
	case it == nil || it.state == closed:
		return nil, nil, broker.Stale
	case it.state == settling:
		return nil, nil, broker.Unknown
	case s.Verb == broker.Retry:
		return nil, nil, broker.Unsupported
	case s.Verb == broker.Release:
		if it.state == stuck {
			c.stuck--
		}
		c.released = append(c.released, *it)
		c.ledger.close(b, it)
		c.rouse()
		return nil, nil, broker.Done
	}
	if it.state == stuck {
		c.stuck--
	}
	it.state = settling
	return b, it, broker.Done
}

func (c *core) end(b *batch, it *item, s broker.Settlement, answer broker.Settled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer == broker.Unknown {
		it.state, it.asked = stuck, &s
		c.stuck++
		return
	}
	c.ledger.close(b, it)
}

// retryStuck tries settlements again that failed, at most once per poll.
func (c *core) retryStuck() {
	now := time.Now()
	c.mu.Lock()
	due := c.stuck > 0 && !now.Before(c.nextTry)
	var again []broker.Settlement
	if due {
		c.ledger.each(func(_ *batch, it *item) {
			if it.state == stuck {
				again = append(again, *it.asked)
			}
		})
	}
	c.mu.Unlock()
	if due {
		c.nextTry = now.Add(c.cfg.Poll)
	}
	for _, s := range again {
		c.settle(s)
	}
}

// answer turns the result of finishing a file into the answer for the
// pipeline. That something is not found need not mean that the file is gone:
// done/ may be.
func (c *core) answer(f *file, err error) broker.Settled {
	switch {
	case err == nil:
		return broker.Done
	case errors.Is(err, fs.ErrNotExist) && !exists(f.path()):
		c.gone(f)
		return broker.Stale
	}
	c.reportOnce(f, err)
	return broker.Unknown
}

// reportOnce does not repeat itself while the same move is tried again.
func (c *core) reportOnce(f *file, err error) {
	c.mu.Lock()
	known := f.reported == err.Error()
	f.reported = err.Error()
	c.mu.Unlock()
	if !known {
		c.cfg.Report(f.name, err)
	}
}

// gone is called when a claimed file is not there: others took the claim
// over, or a person removed the file.
func (c *core) gone(f *file) {
	if exists(f.claim.dir) {
		c.cfg.Report(f.name, ErrGone)
		for _, ours := range []string{returnName(f.name), intentName(f.name)} {
			os.Remove(filepath.Join(f.claim.dir, ours))
		}
		if c.sums.Load() {
			_ = c.followSums(f.claim.dir, f.name, "", "")
		}
		c.dropClaim(f.claim)
		return
	}
	c.mu.Lock()
	me := c.me
	c.mu.Unlock()
	if filepath.Dir(f.claim.dir) == me.dir && me.lost.CompareAndSwap(false, true) {
		c.rouse()
	}
}

// finish moves a decided file out of its claim.
func (c *core) finish(f *file) error {
	if err := c.moveOut(f); err != nil {
		return err
	}
	fault.Hit(Moved)
	if f.back {
		os.Remove(filepath.Join(f.claim.dir, returnName(f.name)))
	}
	c.dropClaim(f.claim)
	return nil
}

func (c *core) moveOut(f *file) error {
	fi, err := os.Lstat(f.path())
	if err == nil && f.fate == nil && !identify(fi).same(f.id) {
		c.cfg.Report(f.name, ErrChanged)
		f.fate = ErrChanged
	}
	if f.fate != nil {
		return c.toError(f.claim.dir, f.name, f.name, Sidecar{Origin: f.scope.String(), Letter: f.deadLetter, Why: f.fate.Error()})
	}
	if err != nil {
		return err
	}
	if c.cfg.Done == Delete {
		if err = os.Remove(f.path()); err == nil {
			c.followDone(f, "", "")
		}
		return err
	}
	target, err := c.moveFree(f.path(), c.dirs.done, f.name, func(name string) bool { return exists(filepath.Join(c.dirs.done, name)) }, nil)
	if err == nil {
		c.followDone(f, c.dirs.done, target)
	}
	return err
}

// followDone brings the checksums of a file after it. It is in its place
// already, so they are not worth a settlement that fails; who takes the claim
// over tries again.
func (c *core) followDone(f *file, dir, target string) {
	if !c.sums.Load() {
		return
	}
	if err := c.followSums(f.claim.dir, f.name, dir, target); err != nil {
		c.cfg.Report(f.name, err)
	}
}
