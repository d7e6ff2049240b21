package filebroker

import (
	"context"
	"crypto/md5" //nolint:gosec // what others already use to find damage; it is no defence against anybody
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/semel-dev/semel/fault"
)

// sumKind is a kind of checksum sidecar. In a claim it is called taking until
// its file is there as well, and kept from then on.
type sumKind struct {
	name, suffix string
	taking, kept string
	hash         func() hash.Hash
}

// sums lists them, the strongest first: that is the one that counts.
var sums = [...]sumKind{
	{"sha512", ".sha512", ".t5.", ".k5.", sha512.New},
	{"sha256", ".sha256", ".t2.", ".k2.", sha256.New},
	{"md5", ".md5", ".t1.", ".k1.", md5.New},
}

// SumSuffixes are those of checksum sidecars.
func SumSuffixes() []string {
	var all []string
	for _, k := range sums {
		all = append(all, k.suffix)
	}
	return all
}

// SumOf tells a checksum sidecar by its name, and returns that of its file.
func SumOf(name string) (file string, ok bool) {
	for _, k := range sums {
		if file, ok := strings.CutSuffix(name, k.suffix); ok && file != "" {
			return file, true
		}
	}
	return "", false
}

// maxSum bounds a sidecar: a digest, and a path.
const maxSum = 8 << 10

// parse reads a sidecar: a digest alone, as sha256sum prints it (with * or
// a leading backslash), or as BSD does. The name that it gives is not compared:
// producers often compute it under a temporary one.
func (k sumKind) parse(text string) (string, error) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	if strings.ContainsAny(text, "\r\n") {
		return "", errors.New("more than one line")
	}
	digest, _, _ := strings.Cut(strings.TrimPrefix(text, `\`), " ")
	if i := strings.LastIndex(text, ") = "); i >= 0 && strings.HasPrefix(strings.ToLower(text), k.name+" (") {
		digest = text[i+len(") = "):]
	}
	digest = strings.ToLower(digest)
	if b, err := hex.DecodeString(digest); err != nil || len(b) != k.hash().Size() {
		return "", fmt.Errorf("no %s digest of %d hexadecimal digits", k.name, 2*k.hash().Size())
	}
	return digest, nil
}

// check compares a file with its sidecar at side, whose name is shown.
// wrong says that they do not fit, or that one of them cannot be read: a file
// that was never compared is not taken for one that fits. err says that this
// could not be found out, or that the file is not the one that id says.
func (k sumKind) check(ctx context.Context, path, side, shown string, id identity) (wrong, err error) {
	var want, got string
	text, err := readSum(side)
	if err == nil {
		var bad error
		if want, bad = k.parse(text); bad != nil {
			return fmt.Errorf("%s: %w", shown, bad), nil
		}
		got, err = k.digest(ctx, path, id)
	}
	switch {
	case err != nil && unreadable(err):
		return fmt.Errorf("the checksum cannot be compared: %w", err), nil
	case err != nil || got == want:
		return nil, err
	}
	return fmt.Errorf("the %s of the file is %s, and %s says %s", k.name, got, shown, want), nil
}

// checkClaimed compares a file that nobody writes any more with the strongest
// of the sidecars at the places that side says, if there is one.
func checkClaimed(ctx context.Context, path string, id identity, side func(sumKind) string) (wrong, err error) {
	for _, k := range sums {
		if at := side(k); exists(at) {
			wrong, err = k.check(ctx, path, at, filepath.Base(path)+k.suffix, id)
			break
		}
	}
	if errors.Is(err, ErrChanged) {
		return err, nil
	}
	return wrong, err
}

func readSum(path string) (string, error) {
	f, err := openClaimed(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSum))
	return string(b), err
}

// digest reads a file that is nobody's yet, perhaps.
func (k sumKind) digest(ctx context.Context, path string, id identity) (string, error) {
	f, err := openClaimed(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !before.Mode().IsRegular() || !identify(before).same(id) {
		return "", ErrChanged
	}
	h := k.hash()
	if _, err := io.Copy(h, stoppable{ctx, f}); err != nil {
		return "", err
	}
	after, err := f.Stat()
	if err == nil && !identify(after).same(id) {
		err = ErrChanged
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// stoppable is a file whose reader may be told to stop.
type stoppable struct {
	ctx context.Context //nolint:containedctx // of the one call that reads
	src io.Reader
}

func (s stoppable) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.src.Read(b)
}

// checked is what we know of a file with a sidecar.
type checked struct {
	sighting
	kind  int // into sums
	side  identity
	known bool
	wrong error
}

// beside finds the strongest sidecar of a file in inbox/.
func (s *scanner) beside(name string) (kind int, side identity, ok bool) {
	for i, k := range sums {
		if fi, err := os.Lstat(filepath.Join(s.inbox, name+k.suffix)); err == nil && unfit(fi) == nil {
			return i, identify(fi), true
		}
	}
	return 0, identity{}, false
}

// summed applies the rule Summed. The digest is computed when the file is seen
// first, and after that when it is the same for a second time, so that one that
// is being written is not read again at every look. One that does not fit may
// still be written, and is only complete when it has settled.
func (s *scanner) summed(ctx context.Context, name string, fi fs.FileInfo) (sum *checked, ok bool) {
	kind, side, ok := s.beside(name)
	if !ok {
		s.mu.Lock()
		delete(s.sums, name)
		s.mu.Unlock()
		return nil, false
	}
	now := time.Now()
	c, due := s.sight(name, checked{sighting: sighting{identity: identify(fi)}, kind: kind, side: side}, now)
	if due {
		k := sums[kind]
		path := filepath.Join(s.inbox, name)
		wrong, err := k.check(ctx, path, path+k.suffix, name+k.suffix, c.identity)
		if err == nil {
			s.mu.Lock()
			c.known, c.wrong = true, wrong
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return c, c != nil && s.isComplete(c, now)
}

func (s *scanner) isComplete(c *checked, now time.Time) bool {
	return c.known && (c.wrong == nil || s.isSettled(&c.sighting, now))
}

// sight notes another look; due: the digest is to be computed.
func (s *scanner) sight(name string, is checked, now time.Time) (c *checked, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.sums[name]
	switch {
	case seen == nil && len(s.sums) >= maxTracked:
		return nil, false
	case seen == nil || seen.kind != is.kind || !seen.same(is.identity) || !seen.side.same(is.side):
		is.sighting = sighting{identity: is.identity, first: now, last: now, scans: 1, pass: s.pass}
		s.sums[name] = &is
		return &is, seen == nil
	}
	if seen.pass = s.pass; now.Sub(seen.last) >= s.cfg.Poll/2 {
		seen.last = now
		seen.scans++
	}
	return seen, !seen.known && seen.scans > 1
}

// takeSum moves the sidecar that counts into the claim, before its file.
func (c *core) takeSum(cl *claim, name string, kind int) error {
	k := sums[kind]
	err := c.claimRename(filepath.Join(c.dirs.inbox, name+k.suffix), filepath.Join(cl.dir, k.taking+name))
	if err == nil {
		fault.Hit(Marker)
	}
	return err
}

// keepSums is called when the file is in the claim: so are its checksums.
func (c *core) keepSums(dir, name string) error {
	for _, k := range sums {
		if err := ignoreMissing(os.Rename(filepath.Join(dir, k.taking+name), filepath.Join(dir, k.kept+name))); err != nil {
			return err
		}
	}
	return nil
}

// fetchSums brings those along that do not count, as far as they are there.
func (c *core) fetchSums(dir, name string) {
	if c.cfg.Complete != Summed {
		return
	}
	for _, k := range sums {
		_ = c.claimRename(filepath.Join(c.dirs.inbox, name+k.suffix), filepath.Join(dir, k.kept+name))
	}
}

// returnSums moves sidecars that have no file in the claim to inbox/. One that
// is there is newer.
func (c *core) returnSums(dir, name string) error {
	for _, k := range sums {
		taking := filepath.Join(dir, k.taking+name)
		err := c.moveNew(taking, filepath.Join(c.dirs.inbox, name+k.suffix))
		if errors.Is(err, fs.ErrExist) {
			err = os.Remove(taking)
		}
		if err := ignoreMissing(err); err != nil {
			return err
		}
	}
	return nil
}

// parkSums makes sidecars those of a file that is about to leave the claim for
// inbox/.
func (c *core) parkSums(dir, name string) error {
	for _, k := range sums {
		if err := ignoreMissing(os.Rename(filepath.Join(dir, k.kept+name), filepath.Join(dir, k.taking+name))); err != nil {
			return err
		}
	}
	return nil
}

// followSums moves the sidecars of a file that went to dir under the name
// target after it; without a directory they are deleted.
func (c *core) followSums(claim, name, dir, target string) error {
	for _, k := range sums {
		kept := filepath.Join(claim, k.kept+name)
		if !exists(kept) {
			continue
		}
		fault.Hit(Parted)
		as := fit("", target, k.suffix)
		if dir == "" || c.sameFile(kept, filepath.Join(dir, as)) { // linked, not unlinked
			os.Remove(kept)
			continue
		}
		_, err := c.moveFree(kept, dir, as, func(name string) bool { return exists(filepath.Join(dir, name)) }, nil)
		if err := ignoreMissing(err); err != nil {
			return err
		}
	}
	return nil
}

// lastInDone is the name under which a file was moved to done/ last; "": none.
func (c *core) lastInDone(name string) string {
	taken := func(n int) bool { return exists(filepath.Join(c.dirs.done, numbered(name, n))) }
	if !taken(0) {
		return ""
	}
	return numbered(name, nextFree(0, taken)-1)
}

// proveSum compares a file that was taken over with the sidecar beside it.
func (c *core) proveSum(ctx context.Context, f *file) error {
	if f.proved || !c.sums.Load() {
		return nil
	}
	fi, err := os.Lstat(f.path())
	if err == nil {
		f.proof = identify(fi)
		f.wrong, err = checkClaimed(ctx, f.path(), f.proof, func(k sumKind) string { return filepath.Join(f.claim.dir, k.kept+f.name) })
	}
	f.proved = err == nil
	return ignoreMissing(err) // who reads it will miss it as well
}

// proven reports whether a file is still the one that was compared when it
// was in inbox/, and so is its sidecar.
func (f *file) proven(sum *checked) bool {
	file, err := os.Lstat(f.path())
	if err != nil || !identify(file).same(sum.identity) {
		return false
	}
	side, err := os.Lstat(filepath.Join(f.claim.dir, sums[sum.kind].kept+f.name))
	f.proved, f.proof, f.wrong = true, sum.identity, sum.wrong
	return err == nil && identify(side).same(sum.side)
}
