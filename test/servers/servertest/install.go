package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel/internal/printable"
)

// source is where the programs of a server come from.
type source struct {
	// programs are what is needed. The first one understands --version.
	programs []string
	// dirs are patterns of directories to look in, before those of PATH.
	dirs []string
	// packages of the distribution that carry them, nil if there are none.
	packages []string
	// tarball or suite carries them, if not nil; then dirs and PATH are not
	// looked at.
	tarball *tarball
	// artifacts are needed besides, if not nil.
	artifacts *artifacts
	suite     *suite
}

// programs says where each program is.
type programs map[string]string

// find looks for the programs, all in one directory if possible: two versions
// must not be mixed, but some packages divide theirs between bin and sbin.
func (s source) find() (programs, bool) {
	if s.artifacts != nil && !s.artifacts.installed() {
		return nil, false
	}
	places := s.places()
	scattered := programs{}
	for _, dir := range places {
		together := programs{}
		for _, name := range s.programs {
			path := filepath.Join(dir, name)
			if !executable(path) {
				continue
			}
			together[name] = path
			if scattered[name] == "" {
				scattered[name] = path
			}
		}
		if len(together) == len(s.programs) {
			return together, true
		}
	}
	return scattered, len(scattered) == len(s.programs)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// places lists the directories, the highest version first.
func (s source) places() (dirs []string) {
	if s.tarball != nil {
		return []string{s.tarball.programs()}
	}
	if s.suite != nil {
		return []string{s.suite.programs()}
	}
	for _, pattern := range s.dirs {
		found, _ := filepath.Glob(pattern) // the patterns are ours
		slices.Reverse(found)
		dirs = append(dirs, found...)
	}
	return append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
}

// Installed is what the program of the kind says of its version, or "" if it is
// not installed.
func (k Kind) Installed() string {
	s := k.recipe().source
	bin, ok := s.find()
	if !ok {
		return ""
	}
	out, err := exec.Command(bin[s.programs[0]], "--version").Output()
	if err != nil {
		return fmt.Sprintf("%s does not run: %v", bin[s.programs[0]], err)
	}
	return printable.Line(string(bytes.TrimSpace(out)), 72)
}

// What is the kind in words.
func (k Kind) What() string { return k.recipe().what }

func (k Kind) example() string { return k.Env() + "=" + k.scheme() + "://…#foreign" }

func (k Kind) scheme() string {
	scheme, _, _ := strings.Cut(k.recipe().url(&Server{}), ":")
	return scheme
}

// Install installs what the kind needs unless it is there, and tells out what
// it does.
func Install(ctx context.Context, k Kind, out io.Writer) error {
	_, err := k.obtain(ctx, out)
	return err
}

func (k Kind) obtain(ctx context.Context, out io.Writer) (programs, error) {
	bin, err := k.recipe().source.obtain(ctx, debian(out))
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nOr give the address of a server that runs already: %s", k, err, k.example())
	}
	return bin, nil
}

func (s source) obtain(ctx context.Context, i installer) (programs, error) {
	if found, ok := s.find(); ok {
		return found, nil
	}
	missing := strings.Join(s.programs, " or ")
	if err := s.install(ctx, i); err != nil {
		return nil, fmt.Errorf("%s is not there: %w", missing, err)
	}
	found, ok := s.find()
	if !ok {
		return nil, fmt.Errorf("%s is not there although its package was installed", missing)
	}
	return found, nil
}

func (s source) install(ctx context.Context, i installer) error {
	if s.tarball == nil && s.suite == nil && s.artifacts == nil && !i.can() {
		return fmt.Errorf("install it: %s (as root on Debian and its like this is done for you)", s.remedy())
	}
	unlock, err := oneInstaller(ctx, cache())
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := s.find(); ok {
		return nil // the one before us did it
	}
	if s.tarball != nil {
		return s.tarball.install(ctx, i)
	}
	if s.artifacts != nil {
		return s.artifacts.install(ctx, i)
	}
	if s.suite != nil {
		return s.suite.install(ctx, i)
	}
	return i.distribution(ctx, s.packages)
}

func (s source) remedy() string { return "apt-get install " + strings.Join(s.packages, " ") }

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// cache is where downloaded servers are kept. Root's is one that the user
// whom servers run as can read.
func cache() string {
	if os.Geteuid() == 0 {
		return "/var/cache/semel-test"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "semel-test")
}

// oneInstaller waits until no other process that uses the same cache installs.
func oneInstaller(ctx context.Context, cache string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := lock(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another process installs servers (lock %s): %w", f.Name(), ctx.Err())
		case <-tick.C:
		}
	}
}

// installer runs what downloads.
type installer struct {
	root   bool          // may use apt-get
	policy string        // the file that Debian's packages ask, see policy
	delay  time.Duration // the wait after a first failure
	out    io.Writer     // told what is done
}

func debian(out io.Writer) installer {
	return installer{root: os.Geteuid() == 0, policy: "/usr/sbin/policy-rc.d", delay: 2 * time.Second, out: out}
}

// can reports whether packages of the distribution can be installed.
func (i installer) can() bool { return i.root && has("apt-get") }

// distribution installs packages of the distribution without starting any
// service that they bring.
func (i installer) distribution(ctx context.Context, packages []string) error {
	allow, err := forbidServices(i.policy)
	if err != nil {
		return err
	}
	defer allow()
	if err := i.try(ctx, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=600", "update"); err != nil {
		return err
	}
	return i.try(ctx, "apt-get", append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=600",
		"--no-install-recommends", "install"}, packages...)...)
}

// policy is what Debian's packages ask whether they may start a service.
const policy = "#!/bin/sh\n# semel: no services while test servers are installed\nexit 101\n"

// forbidServices puts the policy in its place, unless there is one of somebody
// else's: a container mostly has its own, which says the same. One that a
// killed run left is ours.
func forbidServices(path string) (allow func(), err error) {
	switch old, err := os.ReadFile(path); {
	case err == nil && string(old) != policy:
		return func() {}, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	if err := os.WriteFile(path, []byte(policy), 0o755); err != nil { //nolint:gosec // dpkg runs it
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil
}

// try runs a command that uses the network, up to three times.
func (i installer) try(ctx context.Context, name string, args ...string) error {
	began := time.Now()
	line := name + " " + strings.Join(args, " ")
	fmt.Fprintln(i.out, "servers:", line)
	var text []byte
	var err error
	for attempt := range 3 {
		if err := wait(ctx, time.Duration(attempt)*i.delay); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err = cmd.CombinedOutput(); err == nil {
			fmt.Fprintf(i.out, "servers: done in %.0f s\n", time.Since(began).Seconds())
			return nil
		}
	}
	if len(text) > tail {
		text = text[len(text)-tail:]
	}
	return fmt.Errorf("%s: %w, three times; does this machine reach its package registry?\n%s", line, err,
		printable.Text(string(bytes.TrimSpace(text))))
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
