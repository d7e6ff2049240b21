package effect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
	"github.com/semel-dev/semel/store"
)

// Guard does effects. It is safe for concurrent use, by any number of
// processes on one store.
type Guard struct {
	cfg   Config
	store store.Effects
}

// New checks the configuration.
func New(s store.Effects, c Config) (*Guard, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("effect: a store that keeps effects is needed")
	}
	return &Guard{cfg: c.withDefaults(), store: s}, nil
}

// Do makes the effect happen, or says what became of it. print identifies the
// request: a key whose effect happened, or may have, with another one is refused
// with ErrMismatch.
//
// It returns the result with nil if the effect has happened, now or earlier.
// Its errors are: what do returned, if the effect is known not to have happened
// and may be tried again; ErrInDoubt, permanent, if a person has to find out;
// *BusyError if another worker is at it; and an unmarked error if what is
// unknown will be cleared up by the next attempt.
func (g *Guard) Do(ctx context.Context, key string, print store.Fingerprint, do Func) (Result, error) {
	a := attempt{g: g, key: key, print: print, do: do, holder: rand.Text(), began: time.Now()}
	var known store.Effect // nothing
	for {
		row, mine, err := a.intend(ctx, known)
		if err != nil {
			return Result{}, err
		}
		if mine {
			return a.perform(ctx, row, known.State == store.EffectIntended)
		}
		known = row
		again, result, err := a.meet(ctx, &known)
		if !again {
			return result, err
		}
	}
}

// attempt is one call of Do.
type attempt struct {
	g      *Guard
	key    string
	print  store.Fingerprint
	do     Func
	holder string
	began  time.Time // of Do
	intent time.Time // when the intent was sent
}

// intend commits the intent in place of what is known: nothing, a failure, or a
// doubt.
func (a *attempt) intend(ctx context.Context, known store.Effect) (row store.Effect, mine bool, err error) {
	a.intent = time.Now()
	return a.move(ctx, known.Token, store.Effect{State: store.EffectIntended, Attempts: known.Attempts + 1, Lease: a.g.cfg.Lease})
}

// meet says what follows from a row that was there: go on from it, or the end.
func (a *attempt) meet(ctx context.Context, row *store.Effect) (again bool, r Result, err error) {
	switch {
	case row.Token == 0, row.State == store.EffectFailed: // vanished meanwhile, or did not happen
		return true, r, nil
	case row.Fingerprint != a.print:
		return false, r, semel.Permanent(fmt.Errorf("%w; it %s", ErrMismatch, describe(row)))
	case row.State == store.EffectDone:
		return false, Result{Body: row.Result, Size: row.Size, Stored: true}, nil
	case !row.InDoubt():
		again, err = a.wait(ctx, row)
		return again, r, err
	case a.g.cfg.InDoubt == Park:
		return false, r, semel.Permanent(&DoubtError{a.key, row.Note})
	}
	return true, r, nil
}

func describe(row *store.Effect) string {
	switch {
	case row.State == store.EffectDone:
		return "has happened"
	case row.InDoubt():
		return "may have happened"
	}
	return "is under way"
}

// poll is how often a waiting worker looks whether the other one is done.
const poll = 500 * time.Millisecond

// wait lets the other worker go on for a while. Whoever waits looks at the row
// again by trying to be the first.
func (a *attempt) wait(ctx context.Context, row *store.Effect) (again bool, err error) {
	left := row.Lease
	if time.Since(a.began) >= a.g.cfg.Wait {
		return false, semel.RetryAfter(&BusyError{a.key, left}, left)
	}
	*row = store.Effect{}
	return true, pause(ctx, min(left, poll))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform does what was intended. doubt: somebody may have done it before.
func (a *attempt) perform(ctx context.Context, row store.Effect, doubt bool) (Result, error) {
	fault.Hit(fault.Intended)
	if doubt && a.g.cfg.InDoubt == Ask {
		if result, err := a.run(ctx, row, a.g.cfg.Query); !Known(err) {
			return a.record(ctx, row, result, err)
		}
	}
	result, err := a.run(ctx, row, a.do)
	fault.Hit(fault.Called)
	return a.record(ctx, row, result, err)
}

// errLate says that the time of the intent was over before anything was done.
var errLate = errors.New("this process was stopped or slow for so long that its intent is over; nothing was called")

// run calls fn within what is left of the lease. By the database's clock it
// began later than the intent was sent by ours, so that ours ends first.
func (a *attempt) run(ctx context.Context, row store.Effect, fn Func) (result []byte, err error) {
	end := a.intent.Add(a.g.cfg.Lease)
	if !time.Now().Before(end) {
		return nil, NotDone(errLate)
	}
	ctx, stop := context.WithDeadline(ctx, end)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, a.g.cfg.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			if _, staged := v.(fault.Crash); staged {
				panic(v)
			}
			err = fmt.Errorf("it panicked: %v", v)
		}
	}()
	return fn(ctx, Call{Key: a.key, Token: row.Token, Attempt: row.Attempts})
}

// record commits what is known of the effect. If somebody else took over
// meanwhile, what he does counts.
func (a *attempt) record(ctx context.Context, row store.Effect, result []byte, err error) (Result, error) {
	e := store.Effect{Attempts: row.Attempts}
	switch {
	case err == nil:
		e.State, e.Result, e.Size = store.EffectDone, result[:min(len(result), a.g.cfg.MaxResult)], int64(len(result))
	case Known(err):
		e.State, e.Note = store.EffectFailed, clip(err.Error())
	default:
		e.State, e.Note = store.EffectIntended, clip(err.Error()) // no lease: in doubt from now on
	}
	// What is known must not be lost because the caller has no more time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.g.cfg.Lease)
	defer cancel()
	now, moved, failed := a.move(ctx, row.Token, e)
	fault.Hit(fault.ResultKnown)
	switch {
	case failed != nil:
		return Result{}, fmt.Errorf("the result could not be stored, so it is in doubt: %w", errors.Join(failed, err))
	case !moved && now.State == store.EffectDone && now.Fingerprint == a.print:
		return Result{Body: now.Result, Size: now.Size, Stored: true}, nil
	case !moved:
		return Result{}, errors.New("another worker has taken over; its result counts, not this late one")
	case err == nil:
		return Result{Body: e.Result, Size: e.Size}, nil
	case Known(err):
		return Result{}, err
	case a.g.cfg.InDoubt == Park:
		return Result{}, semel.Permanent(&DoubtError{a.key, e.Note})
	}
	return Result{}, fmt.Errorf("it is not known whether it happened; the next attempt will clear it up: %w", err)
}

// tries bounds how often a move is repeated whose outcome is not known.
const tries = 6

// move makes one change of the row. A move may have been made although its
// answer was lost; the holder's name tells.
func (a *attempt) move(ctx context.Context, from int64, e store.Effect) (row store.Effect, moved bool, err error) {
	e.Key, e.Fingerprint, e.Holder = a.key, a.print, a.holder
	for i := range tries {
		row, moved, err = a.g.store.MoveEffect(ctx, a.g.cfg.Name, from, e)
		if err == nil {
			return row, moved || row.Holder == a.holder && row.Token == from+1, nil
		}
		if ctx.Err() != nil || pause(ctx, 10*time.Millisecond<<i) != nil {
			break
		}
	}
	return row, false, fmt.Errorf("effect: %w", err)
}

// maxNote bounds what is stored of an error.
const maxNote = 1000

func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxNote)], "\ufffd")
}

// Open returns effects that are under way or in doubt, by key; after continues
// a listing behind a key. An empty page is the end.
func (g *Guard) Open(ctx context.Context, after string) ([]store.Effect, error) {
	return g.store.Effects(ctx, g.cfg.Name, store.EffectQuery{After: after})
}

// ErrMoved says that an effect is not in doubt, or not any more.
var ErrMoved = errors.New("the effect is not in doubt")

// Settle ends a doubt by what a person found out: whether the effect happened.
// by says who that is. If it happened, the next attempt succeeds without doing
// anything; if it did not, the next attempt does it.
func Settle(ctx context.Context, s store.Effects, consumer, key string, happened bool, by string) error {
	rows, err := s.Effects(ctx, consumer, store.EffectQuery{Key: key})
	if err != nil {
		return err
	}
	if len(rows) == 0 || !rows[0].InDoubt() {
		return ErrMoved
	}
	e := rows[0]
	e.State, e.Note, e.Holder = store.EffectFailed, "did not happen, says "+by, "person"
	if happened {
		e.State, e.Note = store.EffectDone, "happened, says "+by
	}
	_, moved, err := s.MoveEffect(ctx, consumer, e.Token, e)
	if err == nil && !moved {
		err = ErrMoved
	}
	return err
}
