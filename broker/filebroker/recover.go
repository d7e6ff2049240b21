package filebroker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// debris is what a claim holds that is taken over.
type debris struct {
	dir     string
	files   []string          // as they came from inbox/
	ours    map[string]bool   // intents, returned sidecars
	lines   []string          // dead lines on their way
	markers map[string]string // marker: its file
	taking  []string          // files whose checksums have no file yet, or were parked
	kept    []string          // files with checksums
}

func readDebris(dir string) (debris, error) {
	d := debris{dir: dir, ours: map[string]bool{}, markers: map[string]string{}}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, linePrefix):
			d.lines = append(d.lines, name)
		case d.isSum(name):
		case strings.HasPrefix(name, markerPrefix):
			d.markers[name] = strings.TrimPrefix(name, markerPrefix)
		case name[0] == '.':
			d.ours[name] = true
		default:
			d.files = append(d.files, name)
		}
	}
	return d, err
}

func (d *debris) isSum(name string) bool {
	for _, k := range sums {
		if file, ok := strings.CutPrefix(name, k.taking); ok {
			d.taking = append(d.taking, file)
			return true
		}
		if file, ok := strings.CutPrefix(name, k.kept); ok {
			d.kept = append(d.kept, file)
			return true
		}
	}
	return false
}

func (d *debris) path(name string) string { return filepath.Join(d.dir, name) }

func (d *debris) discard(name string) {
	if d.ours[name] {
		delete(d.ours, name)
		os.Remove(d.path(name))
	}
}

// recover completes or undoes what the earlier owner of a claim was about to
// do, and returns the files that are to be handed over.
func (c *core) recover(cl *claim) ([]string, error) {
	d, err := readDebris(cl.dir)
	if err != nil {
		return nil, err
	}
	if err := c.recoverMarkers(&d); err != nil {
		return nil, err
	}
	if err := c.recoverTaking(&d); err != nil {
		return nil, err
	}
	var files []string
	for _, name := range d.files {
		if c.finishMove(&d, name) {
			continue
		}
		if err := c.finishReject(&d, name); err == nil {
			continue
		}
		files = append(files, name)
		d.discard(intentName(name))
	}
	for _, name := range d.lines {
		if c.finishMove(&d, name) {
			continue
		}
		if err := c.finishReject(&d, name); err != nil {
			os.Remove(d.path(name))
			d.discard(intentName(name))
		}
	}
	if err := c.recoverSidecars(&d, files); err != nil {
		return nil, err
	}
	return files, c.recoverKept(&d, files)
}

// recoverTaking keeps checksums whose file is here, and gives back the others:
// a file that is in inbox/ now may be another one.
func (c *core) recoverTaking(d *debris) error {
	if len(d.taking)+len(d.kept) > 0 {
		c.sums.Store(true)
	}
	for _, name := range slices.Concat(d.taking, d.kept) {
		if exists(d.path(name)) {
			if err := c.keepSums(d.dir, name); err != nil {
				return err
			}
			if !exists(filepath.Join(c.dirs.inbox, name)) { // else they are of the one there
				c.fetchSums(d.dir, name)
			}
			continue
		}
		if err := c.returnSums(d.dir, name); err != nil {
			return err
		}
	}
	return nil
}

// recoverKept moves checksums after files that went to done/ without them.
func (c *core) recoverKept(d *debris, files []string) error {
	for _, name := range slices.Concat(d.taking, d.kept) {
		if slices.Contains(files, name) {
			continue
		}
		dir, target := c.dirs.done, c.lastInDone(name)
		if target == "" {
			dir = ""
		}
		if err := c.followSums(d.dir, name, dir, target); err != nil {
			return err
		}
	}
	return nil
}

// finishReject moves a file to error/ whose sidecar was prepared already: the
// pipeline had committed its dead letter before it asked for that.
func (c *core) finishReject(d *debris, name string) error {
	s, err := readSidecar(d.path(intentName(name)))
	if err != nil {
		return err
	}
	delete(d.ours, intentName(name))
	return c.toError(d.dir, name, string(s.File), s)
}

// recoverMarkers claims files whose marker was taken and nothing else. A
// marker whose file is here already is only in the way, and one that has its
// name in inbox/ again as well was given back.
func (c *core) recoverMarkers(d *debris) error {
	for marker, name := range d.markers {
		if !exists(d.path(name)) && !c.sameFile(d.path(marker), c.markerOf(name)) {
			switch err := c.claimRename(filepath.Join(c.dirs.inbox, name), d.path(name)); {
			case err == nil:
				d.files = append(d.files, name)
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		os.Remove(d.path(marker))
	}
	return nil
}

func (c *core) sameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

// finishMove recognises a move by link and unlink that stopped in between, by
// the file's other name, and reports whether the file has left the claim.
func (c *core) finishMove(d *debris, name string) bool {
	fi, err := os.Lstat(d.path(name))
	if err != nil {
		return true
	}
	if _, links := inode(fi); links < 2 {
		return false
	}
	same := func(path string) bool {
		other, err := os.Lstat(path)
		return err == nil && os.SameFile(fi, other)
	}
	if given := filepath.Join(c.dirs.inbox, name); same(given) {
		// It was being given back. While it has two names nobody claims it.
		return os.Remove(given) != nil
	}
	if !same(c.intended(d, name)) && !c.anyNumber(c.dirs.done, name, same) {
		return false
	}
	return os.Remove(d.path(name)) == nil
}

// intended is where in error/ a prepared sidecar says that name was to go.
func (c *core) intended(d *debris, name string) string {
	s, err := readSidecar(d.path(intentName(name)))
	if err != nil {
		return ""
	}
	return filepath.Join(c.dirs.error, string(s.File))
}

func (c *core) anyNumber(dir, name string, is func(path string) bool) bool {
	for n := 0; ; n++ {
		path := filepath.Join(dir, numbered(name, n))
		if is(path) {
			return true
		}
		if !exists(path) {
			return false
		}
	}
}

// recoverSidecars puts sidecars beside files that arrived in error/, keeps
// those of returned files that are still here, and drops the rest.
func (c *core) recoverSidecars(d *debris, files []string) error {
	keep := map[string]bool{}
	for _, name := range files {
		keep[returnName(name)] = true
	}
	for name := range d.ours {
		if keep[name] {
			continue
		}
		if s, err := readSidecar(d.path(name)); err == nil && strings.HasPrefix(name, intentPrefix) && c.arrived(string(s.File)) {
			if err := c.show(d.dir, strings.TrimPrefix(name, intentPrefix), string(s.File)); err != nil {
				return err
			}
			continue
		}
		d.discard(name)
	}
	return nil
}

// arrived reports whether a file reached error/; a person may have moved it
// on to inbox/ already.
func (c *core) arrived(name string) bool {
	return exists(filepath.Join(c.dirs.error, name)) || exists(filepath.Join(c.dirs.inbox, name))
}
