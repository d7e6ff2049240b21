package filebroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/fault"
)

// Sidecar is the content of name.semel.json beside a file in error/.
type Sidecar struct {
	// File is the file's name in error/.
	File Name `json:"file"`
	// Origin is where the message came from: the file's scope and, for a
	// line, its position.
	Origin string `json:"origin"`
	// Letter is the reference of the dead letter; empty if there is none.
	Letter string `json:"letter,omitempty"`
	// Why says in one line what is wrong.
	Why string `json:"why"`
	// Consumer is Config.Consumer.
	Consumer string `json:"consumer,omitempty"`
	// Time is when it was moved, by this host's clock.
	Time time.Time `json:"time"`
}

// Name is a file name. In JSON it is a string, or {"bytes": base64} if it is
// not valid UTF-8.
type Name string

type rawName struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Name) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*n = Name(s)
		return nil
	}
	var raw rawName
	err := json.Unmarshal(b, &raw)
	*n = Name(raw.Bytes)
	return err
}

func readSidecar(path string) (Sidecar, error) {
	var s Sidecar
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// toError moves a file out of a claim to error/ under a free form of as. The
// sidecar waits inside the claim meanwhile, so whoever owns the claim after a
// crash can tell a file that was on its way from one that a person moved.
func (c *core) toError(dir, from, as string, s Sidecar) error {
	if s.Time.IsZero() {
		s.Consumer, s.Time = c.cfg.Consumer, time.Now().UTC().Truncate(time.Second)
	}
	intent := filepath.Join(dir, intentName(from))
	if target, arrived := c.hasArrived(dir, from); arrived {
		return c.show(dir, from, target)
	}
	target, err := c.moveFree(filepath.Join(dir, from), c.dirs.error, as, c.takenInError, func(name string) error {
		s.File = Name(name)
		return writeIntent(intent, s)
	})
	if err != nil {
		os.Remove(intent)
		return err
	}
	fault.Hit(Arrived)
	return c.show(dir, from, target)
}

// show brings everything after a file that has arrived in error/.
func (c *core) show(dir, from, target string) error {
	if c.sums.Load() {
		if err := c.followSums(dir, from, c.dirs.error, target); err != nil {
			return err
		}
	}
	return c.showSidecar(filepath.Join(dir, intentName(from)), target)
}

// hasArrived reports whether an earlier attempt moved the file and got no
// further.
func (c *core) hasArrived(dir, from string) (target string, arrived bool) {
	s, err := readSidecar(filepath.Join(dir, intentName(from)))
	return string(s.File), err == nil && !exists(filepath.Join(dir, from)) && c.arrived(string(s.File))
}

// takenInError: a sidecar without its file belongs to one that a person moved
// away, and may be on its way back.
func (c *core) takenInError(name string) bool {
	return exists(filepath.Join(c.dirs.error, name)) || exists(filepath.Join(c.dirs.error, sidecarName(name)))
}

func writeIntent(path string, s Sidecar) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o666); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	fault.Hit(Noted)
	return nil
}

// showSidecar puts a prepared sidecar beside its file.
func (c *core) showSidecar(intent, target string) error {
	shown := filepath.Join(c.dirs.error, sidecarName(target))
	err := c.moveNew(intent, shown)
	if errors.Is(err, fs.ErrExist) {
		if !c.sameFile(intent, shown) {
			c.cfg.Report(target, fmt.Errorf("its sidecar in error/ exists already and is kept: %w", err))
		}
		return os.Remove(intent)
	}
	return err
}

// isSidecar tells sidecars that were moved to inbox/ together with a file.
func isSidecar(name string) bool { return strings.HasSuffix(name, sidecarSuffix) }
