package consumer

import (
	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// ledger adds up the counters that a transaction writes beside its rows.
type ledger struct{ lines []store.Tally }

func (l *ledger) reset() { l.lines = l.lines[:0] }

func (l *ledger) add(account string, bucket, n int64, sum uint64) {
	for i := range l.lines {
		if t := &l.lines[i]; t.Account == account && t.Bucket == bucket {
			t.N += n
			t.Sum += sum
			return
		}
	}
	l.lines = append(l.lines, store.Tally{Account: account, Bucket: bucket, N: n, Sum: sum})
}

// record books n = +1 or -1 rows with the record's verdict.
func (l *ledger) record(r store.Record, n int64) {
	l.add(r.Verdict.String(), r.Bucket, n, uint64(n)*r.Hash)
}

// count books an outcome that leaves the rows as they are.
func (l *ledger) count(v semel.Verdict) { l.add(other[v], 0, 1, 0) }

// other has the accounts of count, since making the names anew would allocate.
var other = func() (names [semel.Discarded + 1]string) {
	for v := range names {
		names[v] = store.AccountOther + semel.Verdict(v).String()
	}
	return names
}()
