package outside

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/effect"
	"github.com/semel-dev/semel/store"
)

// DefaultTimeout bounds a call where the file does not say.
const DefaultTimeout = 10 * time.Second

// Values appends the values of a message to out.
type Values interface {
	Values(m *semel.Message, out []any) ([]any, error)
}

// Step is an effect outside of the database, as a pipeline file states it.
type Step struct {
	// Target is where it goes; required.
	Target Target
	// Body gives one value, what is sent; nil: the message as it came.
	Body    Values
	InDoubt effect.Policy
	// Timeout bounds one call; 0: DefaultTimeout.
	Timeout time.Duration
	// Concurrency is how many calls a batch makes at the same time; 0: one.
	Concurrency int
}

// Target does an effect. Its errors are those of effect.Func.
type Target interface {
	Do(ctx context.Context, c Call) ([]byte, error)
	// Ask finds out whether it happened.
	Ask(ctx context.Context, c effect.Call) ([]byte, error)
	// Print identifies the request with a body, without secrets.
	Print(m *semel.Message, body []byte) store.Fingerprint
	// Check says what cannot work, without doing anything.
	Check() error
	// String says what it is, without secrets.
	String() string
}

// Call is one call for one message.
type Call struct {
	effect.Call
	Message *semel.Message
	Body    []byte
}

// Guarded is a step at work. It is safe for concurrent use.
type Guarded struct {
	step  *Step
	guard *effect.Guard
}

// Limit is how long Do takes at most, waiting for another worker included.
func (s *Step) Limit() time.Duration { return 7 * s.timeout() }

func (s *Step) timeout() time.Duration {
	if s.Timeout == 0 {
		return DefaultTimeout
	}
	return s.Timeout
}

// maxResult bounds what is stored of a result: what came back in one line.
const maxResult = 200

// Guard puts the step under guard, for a consumer.
func (s *Step) Guard(st store.Effects, consumer string) (*Guarded, error) {
	if st == nil {
		return nil, semel.Fault(errors.New("this store does not keep effects outside of the database"))
	}
	c := effect.Config{Name: consumer, InDoubt: s.InDoubt, Timeout: s.timeout(), MaxResult: maxResult}
	if s.InDoubt == effect.Ask {
		c.Query = s.Target.Ask
	}
	g, err := effect.New(st, c)
	return &Guarded{s, g}, err
}

// Do makes the effect of a message happen, or says what became of it.
func (g *Guarded) Do(ctx context.Context, m semel.Message) error {
	body, err := g.step.body(&m)
	if err != nil {
		return err
	}
	_, err = g.guard.Do(ctx, m.ID, g.step.Target.Print(&m, body), func(ctx context.Context, c effect.Call) ([]byte, error) {
		return g.step.Target.Do(ctx, Call{c, &m, body})
	})
	if errors.Is(err, effect.ErrInDoubt) {
		return &semel.Error{Stage: g.step.Target.String(), Err: err,
			Hint: "find out at the receiver, say what you found with semel effects settle, then replay the letter"}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", g.step.Target, err)
	}
	return nil
}

func (s *Step) body(m *semel.Message) ([]byte, error) {
	if s.Body == nil {
		return m.Body, nil
	}
	values, err := s.Body.Values(m, nil)
	if err != nil {
		return nil, err
	}
	return text(values[0])
}

// text is a value as it is sent: strings and bytes as they are, all else as
// JSON.
func text(v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
	}
	return nil, semel.Invalidf("the body to send is %T: the expression found nothing", v)
}

// Codes sort what came back by number. What no list has is unknown.
type Codes struct{ Done, Permanent, Transient []Range }

// Range is a range of codes, both ends included.
type Range struct{ Low, High int }

func (c Codes) in(list []Range, n int) bool {
	for _, r := range list {
		if n >= r.Low && n <= r.High {
			return true
		}
	}
	return false
}

// sort returns the error that a code stands for; nil: it happened.
func (c Codes) sort(n int, err error) error {
	switch {
	case c.in(c.Done, n):
		return nil
	case c.in(c.Permanent, n):
		return effect.NotDone(semel.Permanent(err))
	case c.in(c.Transient, n):
		return effect.NotDone(err)
	}
	return err
}
