package observe

import (
	"io"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel"
)

// mostReasons bounds the values of the label reason; they are words of the
// pipeline, so there is no way to more of them than a dozen.
const mostReasons = 32

// totals are what was told and is not in the consumer's account.
type totals struct {
	batches, rollbacks, panics, unsettled int64
	failures                              [semel.ClassFault + 1]int64
	dead                                  map[string]int64 // by reason
	size, took, handled, age              *histogram
}

// deadReasons are the words of the pipeline. They have a sample before there is
// a dead letter: the first one would be no increase otherwise.
func deadReasons() []string {
	return []string{"conflict", "crash", "exhausted", "invalid", "malformed", "no version", "permanent", "tie"}
}

func newTotals() totals {
	dead := map[string]int64{}
	for _, reason := range deadReasons() {
		dead[reason] = 0
	}
	seconds := []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	return totals{
		dead:    dead,
		size:    newHistogram(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000),
		took:    newHistogram(seconds...),
		handled: newHistogram(seconds...),
		age:     newHistogram(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6*3600, 86400, 7*86400),
	}
}

func (t *totals) batch(b semel.Batch) {
	t.batches++
	t.size.observe(float64(b.Messages))
	t.took.observe(b.Took.Seconds())
	t.handled.observe(b.Handled.Seconds())
	if !b.Letters && !b.Oldest.IsZero() {
		t.age.observe(max(0, time.Since(b.Oldest).Seconds()))
	}
}

func (t *totals) failure(f semel.Failure) {
	t.failures[min(f.Class, semel.ClassFault)]++
	if f.Panic {
		t.panics++
	}
	if f.Verdict != semel.Dead {
		return
	}
	reason := f.Reason
	if _, known := t.dead[reason]; !known && len(t.dead) >= mostReasons {
		reason = "other"
	}
	t.dead[reason]++
}

// WriteMetrics writes all metrics in the text format of Prometheus. Names and
// labels are in docs/reference/metrics.md.
func (m *Monitor) WriteMetrics(w io.Writer) error {
	_, err := w.Write(m.metrics())
	return err
}

func (m *Monitor) metrics() []byte {
	health := m.Health()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := newPage("pipeline", m.cfg.Pipeline)
	m.writeAccount(p)
	m.writeTotals(p)
	m.writeScopes(p)
	m.writeSight(p)
	m.writeHealth(p, health)
	return p.Bytes()
}

func (m *Monitor) writeAccount(p *page) {
	var a semel.Account
	if m.target.Account != nil {
		a = m.target.Account()
	}
	p.family("semel_messages_received_total", "counter", "Deliveries that the source handed over.")
	p.sample(float64(a.Received))
	p.family("semel_letters_taken_total", "counter", "Parked messages that were taken up again.")
	p.sample(float64(a.Taken))
	p.family("semel_messages_decided_total", "counter", "What became of deliveries and of parked messages taken up again.")
	for v := semel.Applied; v <= semel.Discarded; v++ {
		p.sample(float64(a.Of[v]), "verdict", v.String())
	}
	p.family("semel_ties_total", "counter", "Equal versions with other content that a tie-break decided.")
	p.sample(float64(a.Ties))
}

func (m *Monitor) writeTotals(p *page) {
	t := &m.totals
	p.family("semel_failures_total", "counter", "Failed attempts and messages set aside, by the class of the error.")
	for c, n := range t.failures {
		p.sample(float64(n), "class", semel.Class(c).String())
	}
	p.family("semel_panics_total", "counter", "Failed attempts in which the handler or the decoder panicked.")
	p.sample(float64(t.panics))
	p.family("semel_dead_letters_total", "counter", "Messages that became dead letters in this process, by reason.")
	for _, reason := range slices.Sorted(maps.Keys(t.dead)) {
		p.sample(float64(t.dead[reason]), "reason", reason)
	}
	p.family("semel_batches_total", "counter", "Transactions that committed.")
	p.sample(float64(t.batches))
	p.family("semel_rollbacks_total", "counter", "Transactions that did not commit; their messages are tried again in smaller parts.")
	p.sample(float64(t.rollbacks))
	p.family("semel_unsettled_total", "counter", "Settlements that did not reach the source; the deliveries come again.")
	p.sample(float64(t.unsettled))
	p.family("semel_batch_messages", "histogram", "Messages in a transaction that committed.")
	p.histogram(t.size)
	p.family("semel_batch_duration_seconds", "histogram", "From opening a transaction to the end of its commit.")
	p.histogram(t.took)
	p.family("semel_handler_duration_seconds", "histogram", "The part of a transaction that was spent in handlers.")
	p.histogram(t.handled)
	p.family("semel_message_age_seconds", "histogram", "Age of the oldest delivery of a transaction at its commit, by the time in the message.")
	p.histogram(t.age)
}

func (m *Monitor) writeScopes(p *page) {
	p.family("semel_scopes", "gauge", "Scopes (partitions, streams, files of lines) that this process owns, or that were stopped.")
	p.sample(float64(len(m.scopes)), "state", "assigned")
	p.sample(float64(len(m.stopped)), "state", "stopped")
	p.family("semel_transactions_open", "gauge", "Transactions that are open now.")
	p.sample(float64(len(m.open)))
}

// writeSight writes what was seen at the last look; what was not seen has no
// sample.
func (m *Monitor) writeSight(p *page) {
	s := &m.sight
	p.family("semel_letters", "gauge", "Open letters of the pipeline, all processes together, by state.")
	p.ifRead(s, func() {
		for _, state := range openStates() {
			p.sample(float64(s.status.Letters[state]), "state", string(state))
		}
	})
	p.family("semel_letters_overdue_seconds", "gauge", "How long the letter that is due first has been due; 0 if none is.")
	p.ifRead(s, func() { p.sample(overdue(s.status.NextDue)) })
	p.family("semel_held_keys", "gauge", "Keys with messages held behind one that failed.")
	p.ifRead(s, func() { p.sample(float64(s.status.HoldKeys)) })
	p.family("semel_suspects", "gauge", "Units of work under suspicion after a crash.")
	p.ifRead(s, func() { p.sample(float64(len(s.status.Suspects))) })
	p.family("semel_imbalances", "gauge", "Accounts whose ledger and letters differ; anything but 0 is a fault.")
	p.ifRead(s, func() { p.sample(float64(len(s.status.Imbalances))) })
	p.family("semel_source_messages", "gauge", "What the source holds (files, where it counts files), by stage.")
	if s.measured {
		for _, stage := range []struct {
			name string
			n    int64
		}{{"waiting", s.depth.Waiting}, {"claimed", s.depth.Claimed}, {"settling", s.depth.Settling}} {
			if stage.n >= 0 { // below it is not known
				p.sample(float64(stage.n), "stage", stage.name)
			}
		}
	}
	p.family("semel_store_read_timestamp_seconds", "gauge", "When the store was last read for the metrics above.")
	p.ifRead(s, func() { p.sample(float64(s.read.UnixMilli()) / 1000) })
}

func (p *page) ifRead(s *sight, fn func()) {
	if !s.read.IsZero() {
		fn()
	}
}

func overdue(due time.Time) float64 {
	if due.IsZero() {
		return 0
	}
	return max(0, time.Since(due).Seconds())
}

func (m *Monitor) writeHealth(p *page, h Health) {
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	p.family("semel_live", "gauge", "1 unless only another start can help.")
	p.sample(flag(h.Live))
	p.family("semel_ready", "gauge", "1 if nothing keeps the pipeline from working.")
	p.sample(flag(h.Ready))
	p.family("semel_condition", "gauge", "1 for every reason for not being ready.")
	for _, c := range conditions() {
		p.sample(flag(slices.ContainsFunc(h.Reasons, func(r Reason) bool { return r.Condition == c })), "condition", string(c))
	}
}
