package filebroker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/fault"
)

// Reasons given to Config.Report; test with errors.Is.
var (
	// ErrNotRegular: a directory, link, pipe or device in inbox/. It stays.
	ErrNotRegular = errors.New("not a regular file: left where it is")
	// ErrHardLink: the file has another name, through which it may change or
	// be handled twice. It stays.
	ErrHardLink = errors.New("the file has a second hard link: left where it is until that is removed")
	// ErrChanged: the file changed after it was claimed. It goes to error/;
	// what was decided stands.
	ErrChanged = errors.New("the file changed after it was claimed")
	// ErrGone: somebody removed a claimed file. What was decided stands.
	ErrGone = errors.New("the claimed file is gone")
	// ErrStopped: the pipeline refused to read the file. It stays in inbox/.
	ErrStopped = errors.New("the pipeline does not read this file")
	// ErrTaken: a claim could not be given back because inbox/ holds another
	// file of that name. It stays in processing/ for the next worker.
	ErrTaken = errors.New("cannot be given back: inbox holds another file of that name")
)

// errLost says that our directory in processing/ is gone: we were silent for
// too long and others took our claims.
var errLost = errors.New("this worker's claims were taken over")

// Names that begin with a dot are ours; files of others never do.
const (
	markerPrefix = ".m." // a completeness marker whose file is not claimed yet
	returnPrefix = ".r." // the sidecar of a file that came back from error/
	intentPrefix = ".e." // the sidecar of a file that is moving to error/
	linePrefix   = ".l." // a dead line on its way to error/

	sidecarSuffix = ".semel.json"
)

// leftSuffixes mark claims that a worker left behind when it ended in good
// order, by how it had come to them: a free lock proves nothing about those.
var leftSuffixes = [...]string{semel.Fresh: ".left", semel.Orphaned: ".left-orphaned", semel.Crashed: ".left-crashed"}

// fit builds prefix+name+suffix within the length of a file name; a name that
// has to be cut keeps its identity by a digest.
func fit(prefix, name, suffix string) string {
	room := maxName - len(prefix) - len(suffix)
	if len(name) > room {
		sum := sha256.Sum256([]byte(name))
		name = name[:room-17] + "~" + hex.EncodeToString(sum[:8])
	}
	return prefix + name + suffix
}

func sidecarName(name string) string { return fit("", name, sidecarSuffix) }
func intentName(name string) string  { return fit(intentPrefix, name, "") }
func returnName(name string) string  { return fit(returnPrefix, name, "") }

// claim is a directory below our own in processing/ with files that are ours.
// It vanishes with its last file.
type claim struct {
	dir      string
	old      bool // taken over, or left by another worker
	takeover semel.Takeover
	files    int  // not finished; guarded by core.mu
	left     bool // marked as left in good order
}

// identity tells whether a file is still the one that was claimed.
type identity struct {
	ino   uint64
	size  int64
	mtime time.Time
}

func identify(fi fs.FileInfo) identity {
	ino, _ := inode(fi)
	return identity{ino, fi.Size(), fi.ModTime()}
}

func (a identity) same(b identity) bool {
	return a.ino == b.ino && a.size == b.size && a.mtime.Equal(b.mtime)
}

// headBytes of the content go into the incarnation.
const headBytes = 4096

// incarnation names this content under this name. The modification time is in
// it because an inode number is soon used again, and two exports of one size
// with one header are not the same file.
func (a identity) incarnation(name string, head []byte) string {
	content := sha256.Sum256(head[:min(len(head), headBytes)])
	b := make([]byte, 0, 64+len(name))
	b = append(b, content[:]...)
	b = binary.LittleEndian.AppendUint64(b, a.ino)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.mtime.UnixNano()))
	sum := sha256.Sum256(append(b, name...))
	return hex.EncodeToString(sum[:8])
}

// file is a claimed file.
type file struct {
	claim *claim
	name  string
	id    identity
	scope semel.Scope
	// back: it came back from error/; letter is what its sidecar named.
	back   bool
	letter string
	told   bool // the letter went with a delivery
	// fate is why it goes to error/ when it is finished, and deadLetter the
	// letter that says more; nil: it goes to done/.
	fate       error
	deadLetter string

	// wrong: its checksum does not fit. proved: that was looked at, when the
	// file was proof.
	wrong  error
	proved bool
	proof  identity

	reported string // the last error that was reported; guarded by core.mu

	lines *lineFile // Lines only
}

func (f *file) path() string { return filepath.Join(f.claim.dir, f.name) }

// identified notes what was claimed; head is the beginning of its content.
func (f *file) identified(fi fs.FileInfo, head []byte) {
	f.id = identify(fi)
	if f.proof != (identity{}) && !f.proof.same(f.id) {
		f.wrong = ErrChanged // it is not what was compared with its checksum
	}
	f.scope = semel.Scope{Name: f.name, Incarnation: f.id.incarnation(f.name, head)}
}

// examine is identified for a file that is not open.
func (f *file) examine(head []byte) error {
	fi, err := os.Lstat(f.path())
	if err == nil {
		f.identified(fi, head)
	}
	return err
}

// take claims a file from inbox/ into cl. It returns fs.ErrNotExist if someone
// else was faster and fs.ErrExist if cl holds a file of that name.
func (c *core) take(cl *claim, cand candidate) (*file, error) {
	f := &file{claim: cl, name: cand.name}
	marker := filepath.Join(cl.dir, markerPrefix+f.name)
	var err error
	switch {
	case c.cfg.Complete == Marked:
		err = c.takeMarker(marker, f.name)
	case cand.sum != nil:
		err = c.takeSum(cl, f.name, cand.sum.kind)
	}
	if err != nil {
		return nil, c.orLost(err, cl.dir)
	}
	if err := c.claimRename(filepath.Join(c.dirs.inbox, f.name), f.path()); err != nil {
		switch {
		case c.cfg.Complete == Marked:
			err = errors.Join(err, c.moveNew(marker, c.markerOf(f.name)))
		case cand.sum != nil:
			err = errors.Join(err, c.returnSums(cl.dir, f.name))
		}
		return nil, c.orLost(err, cl.dir)
	}
	fault.Hit(Claimed)
	switch {
	case c.cfg.Complete == Marked:
		os.Remove(marker)
	case cand.sum != nil:
		if err := c.keepSums(cl.dir, f.name); err != nil {
			c.cfg.Report(f.name, err) // it is not proven, and goes back
		}
		c.fetchSums(cl.dir, f.name)
	}
	c.mu.Lock()
	cl.files++
	c.mu.Unlock()
	return f, nil
}

func (c *core) markerOf(name string) string {
	return filepath.Join(c.dirs.inbox, name+c.cfg.MarkerSuffix)
}

// takeMarker moves the marker first: once its file is gone from inbox/, a
// marker left behind would declare the next file of that name complete.
func (c *core) takeMarker(marker, name string) error {
	err := c.claimRename(c.markerOf(name), marker)
	if err == nil {
		fault.Hit(Marker)
	}
	return err
}

// claimRename moves a file into a claim. Only we write there, so looking
// before an ordinary rename is enough where there is no better one.
func (c *core) claimRename(old, new string) error {
	err := c.rename(old, new)
	if !errors.Is(err, errNoNative) {
		return err
	}
	if exists(new) {
		return &fs.PathError{Op: "claim", Path: new, Err: fs.ErrExist}
	}
	return os.Rename(old, new)
}

// orLost turns "not found" into errLost if it is our directory that is gone.
func (c *core) orLost(err error, dir string) error {
	if errors.Is(err, fs.ErrNotExist) && !exists(dir) {
		return errLost
	}
	return err
}

// cameBack moves the sidecar of a file that a person moved from error/ to
// inbox/ into the claim, where it stays with the file whoever takes it over.
func (c *core) cameBack(f *file) {
	kept := filepath.Join(f.claim.dir, returnName(f.name))
	switch shown := filepath.Join(c.dirs.error, sidecarName(f.name)); {
	case !f.claim.old || !exists(kept):
		if !c.fetchSidecar(f, kept) {
			return
		}
	case c.sameFile(kept, shown): // its owner was giving both back
		os.Remove(shown)
	}
	f.back = true
	if s, err := readSidecar(kept); err != nil {
		c.cfg.Report(f.name, err)
	} else {
		f.letter = s.Letter
	}
}

func (c *core) fetchSidecar(f *file, kept string) bool {
	name := sidecarName(f.name)
	for _, dir := range []string{c.dirs.error, c.dirs.inbox} {
		from := filepath.Join(dir, name)
		if !exists(from) || exists(filepath.Join(c.dirs.error, f.name)) {
			continue
		}
		if err := os.Rename(from, kept); err != nil {
			c.cfg.Report(f.name, err)
			return false
		}
		return true
	}
	return false
}

// dropClaim forgets one file of a claim and removes the directory after the
// last one.
func (c *core) dropClaim(cl *claim) {
	c.mu.Lock()
	cl.files--
	last := cl.files == 0 && cl != c.fresh
	c.mu.Unlock()
	if last {
		os.Remove(cl.dir)
	}
}

// parseClaim reads a claim's directory name: number, incarnation if its file
// was already assigned to a scope, and how it was left, if it was.
func parseClaim(name string) (incarnation string, how semel.Takeover, left bool) {
	for kind, suffix := range leftSuffixes {
		if cut, ok := strings.CutSuffix(name, suffix); ok {
			name, how, left = cut, semel.Takeover(kind), true
		}
	}
	_, incarnation, _ = strings.Cut(name, ".")
	return incarnation, how, left
}
