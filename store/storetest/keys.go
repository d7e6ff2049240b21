package storetest

import (
	"cmp"
	"math"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

func versionTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Values":      versionValues[Tx],
		"AwkwardKeys": versionKeys[Tx],
		"Replace":     versionReplace[Tx],
		"Conflict":    versionConflict[Tx],
	}
}

// versions sets vs after asking for their keys, as the contract wants.
func (s *suite[Tx]) setVersions(vs ...store.Versioned) {
	s.Helper()
	slices.SortFunc(vs, func(a, b store.Versioned) int { return cmp.Compare(a.Key, b.Key) })
	s.in(func(tx Tx) error {
		if _, err := s.b.Versions(s.ctx, tx, consumer, versionedKeys(vs), nil); err != nil {
			return err
		}
		return s.b.SetVersions(s.ctx, tx, consumer, vs)
	})
}

func versionedKeys(vs []store.Versioned) (keys []string) {
	for _, v := range vs {
		keys = append(keys, v.Key)
	}
	slices.Sort(keys)
	return keys
}

func (s *suite[Tx]) versions(of string, keys ...string) (out []store.Versioned) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		out, err = s.b.Versions(s.ctx, tx, of, keys, nil)
		return err
	})
	slices.SortFunc(out, func(a, b store.Versioned) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func versionValues[Tx any](s *suite[Tx]) {
	vs := []store.Versioned{
		{Key: "a", ID: "1", Version: semel.Version{N: math.MinInt64, Set: true}, Fingerprint: store.Fingerprint{7}},
		{Key: "b", ID: "2", Version: semel.Version{N: math.MaxInt64, Tie: "\x00\xff", Set: true}},
		{Key: "c", ID: "3", Version: semel.Version{Set: true}}, // version 0
		{Key: "d", ID: "\x00"}, // no version
	}
	equal(s, "versions of keys without rows", s.versions(consumer, "a", "b"), []store.Versioned(nil))
	s.setVersions(slices.Clone(vs)...)
	equal(s, "versions", s.versions(consumer, "a", "b", "bb", "c", "d", "e"), vs)
	equal(s, "versions of another consumer", s.versions(stranger, "a"), []store.Versioned(nil))
	s.in(func(tx Tx) error {
		out, err := s.b.Versions(s.ctx, tx, consumer, []string{"a"}, []store.Versioned{{Key: "kept"}})
		equal(s, "versions, appended", versionedKeys(out), []string{"a", "kept"})
		return err
	})
}

func versionKeys[Tx any](s *suite[Tx]) {
	var vs []store.Versioned
	for i, key := range awkward() {
		vs = append(vs, store.Versioned{Key: key, ID: key, Version: semel.Version{N: int64(i), Tie: key, Set: true}})
	}
	for i := range 500 {
		key := "k" + string(rune('0'+i%10)) + string(rune('a'+i/10))
		vs = append(vs, store.Versioned{Key: key, ID: "id", Version: semel.Version{N: int64(i), Set: true}})
	}
	s.setVersions(vs...) // which sorts them
	equal(s, "versions", s.versions(consumer, versionedKeys(vs)...), vs)
}

func versionReplace[Tx any](s *suite[Tx]) {
	s.setVersions(store.Versioned{Key: "a", ID: "1", Version: semel.Version{N: 1, Tie: "x", Set: true}, Fingerprint: store.Fingerprint{1}})
	next := store.Versioned{Key: "a", ID: "2", Version: semel.Version{N: 2, Set: true}, Fingerprint: store.Fingerprint{2}}
	s.abort(func(tx Tx) error {
		if _, err := s.b.Versions(s.ctx, tx, consumer, []string{"a"}, nil); err != nil {
			return err
		}
		return s.b.SetVersions(s.ctx, tx, consumer, []store.Versioned{next})
	})
	if vs := s.versions(consumer, "a"); len(vs) != 1 || vs[0].ID != "1" {
		s.Errorf("after a rollback the version is %+v", vs)
	}
	for _, v := range []store.Versioned{next, {Key: "a", ID: "3", Version: semel.Version{N: 2}}, next} {
		s.setVersions(v)
		equal(s, "the version after it was replaced", s.versions(consumer, "a"), []store.Versioned{v})
	}
}

// versionConflict has two processes raise one key's version; both read before
// either writes, unless the store makes the second wait. Whatever happens, the
// second must have seen what the first wrote when it commits.
func versionConflict[Tx any](s *suite[Tx]) {
	raise := func(b store.Backend[Tx], tx Tx) error {
		vs, err := b.Versions(s.ctx, tx, consumer, []string{"a"}, nil)
		if err != nil {
			return err
		}
		next := store.Versioned{Key: "a", ID: "id", Version: semel.Version{N: 1, Set: true}}
		if len(vs) > 0 {
			next.Version.N = vs[0].Version.N + 1
		}
		return b.SetVersions(s.ctx, tx, consumer, []store.Versioned{next})
	}
	s.meeting(func(tx Tx) error { return raise(s.b, tx) }, nil, func(b store.Backend[Tx]) error {
		return s.alone(b, func(tx Tx) error { return raise(b, tx) })
	})
	if vs := s.versions(consumer, "a"); len(vs) != 1 || vs[0].Version.N != 2 {
		s.Errorf("two raises of one version gave %+v", vs)
	}
}

func holdTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){
		"Numbers":     holdNumbers[Tx],
		"AwkwardKeys": holdKeys[Tx],
		"AppendWaits": appendWaits[Tx],
	}
}

// behind adds letters behind a key.
func (s *suite[Tx]) behind(key string, n int64) (h store.Hold) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		h, err = s.b.Append(s.ctx, tx, consumer, key, n)
		return err
	})
	return h
}

func (s *suite[Tx]) release(key string, n int64) {
	s.Helper()
	s.in(func(tx Tx) error { return s.b.Release(s.ctx, tx, consumer, key, n) })
}

func (s *suite[Tx]) locked(of string, keys ...string) (out []store.Hold) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		out, err = s.b.Lock(s.ctx, tx, of, keys, nil)
		return err
	})
	slices.SortFunc(out, func(a, b store.Hold) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func holdNumbers[Tx any](s *suite[Tx]) {
	equal(s, "holds of free keys", s.locked(consumer, "a", "b"), []store.Hold(nil))
	equal(s, "first", s.behind("a", 1), store.Hold{Key: "a", Size: 1, Tail: 1})
	equal(s, "second and third", s.behind("a", 2), store.Hold{Key: "a", Size: 3, Tail: 3})
	s.release("a", 2)
	equal(s, "numbers are not used again", s.behind("a", 1), store.Hold{Key: "a", Size: 2, Tail: 4})
	s.abort(func(tx Tx) error {
		_, err := s.b.Append(s.ctx, tx, consumer, "a", 5)
		if err == nil {
			err = s.b.Release(s.ctx, tx, consumer, "a", 7)
		}
		return err
	})
	s.behind("b", 1)
	equal(s, "holds", s.locked(consumer, "a", "aa", "b"), []store.Hold{{Key: "a", Size: 2, Tail: 4}, {Key: "b", Size: 1, Tail: 1}})
	equal(s, "holds of another consumer", s.locked(stranger, "a"), []store.Hold(nil))
	s.release("a", 2)
	equal(s, "holds", s.locked(consumer, "a", "b"), []store.Hold{{Key: "b", Size: 1, Tail: 1}})
	equal(s, "a key that was free again", s.behind("a", 1), store.Hold{Key: "a", Size: 1, Tail: 1})
}

func holdKeys[Tx any](s *suite[Tx]) {
	keys := awkward()
	slices.Sort(keys)
	var want []store.Hold
	for i, key := range keys {
		want = append(want, s.behind(key, int64(i+1)))
	}
	equal(s, "holds", s.locked(consumer, keys...), want)
	for i, h := range want {
		if h != (store.Hold{Key: keys[i], Size: int64(i + 1), Tail: int64(i + 1)}) {
			s.Errorf("hold of %q is %+v", keys[i], h)
		}
	}
}

// appendWaits has two processes number letters of one key.
func appendWaits[Tx any](s *suite[Tx]) {
	appending := func(b store.Backend[Tx], h *store.Hold) func(tx Tx) error {
		return func(tx Tx) (err error) {
			if _, err = b.Lock(s.ctx, tx, consumer, []string{"a"}, nil); err == nil {
				*h, err = b.Append(s.ctx, tx, consumer, "a", 1)
			}
			return err
		}
	}
	var first, second store.Hold
	s.meeting(appending(s.b, &first), nil, func(b store.Backend[Tx]) error { return s.alone(b, appending(b, &second)) })
	equal(s, "the numbers given", []int64{first.Tail, second.Tail}, []int64{1, 2})
}

func suspectTests[Tx any]() map[string]func(*suite[Tx]) {
	return map[string]func(*suite[Tx]){"Rows": suspects[Tx]}
}

func (s *suite[Tx]) suspects(units ...string) (out []store.Suspect) {
	s.Helper()
	s.in(func(tx Tx) (err error) {
		out, err = s.b.Suspects(s.ctx, tx, consumer, units, nil)
		return err
	})
	slices.SortFunc(out, func(a, b store.Suspect) int { return cmp.Compare(a.Unit, b.Unit) })
	return out
}

func suspects[Tx any](s *suite[Tx]) {
	write := func(us ...store.Suspect) {
		s.Helper()
		s.in(func(tx Tx) error { return s.b.Suspect(s.ctx, tx, consumer, us) })
	}
	a := store.Suspect{Unit: "a", Limit: 8, Started: 4, Left: math.MaxInt64, At: semel.Offset{Hi: math.MinInt64, Lo: math.MaxInt64}, Charged: 3}
	odd := store.Suspect{Unit: "\x00\xff'", Limit: 1}
	write(a, odd)
	equal(s, "suspects", s.suspects("\x00\xff'", "A", "a"), []store.Suspect{odd, a})
	a = store.Suspect{Unit: "a", Limit: 1}
	write(a, store.Suspect{Unit: "\x00\xff'"}, store.Suspect{Unit: "unknown"})
	equal(s, "suspects after a change and a removal", s.suspects("\x00\xff'", "a", "unknown"), []store.Suspect{a})
	st, err := s.b.Status(s.ctx, consumer, false)
	must(s, err)
	equal(s, "suspects in the status", st.Suspects, []store.Suspect{a})
}
