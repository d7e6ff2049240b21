package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// suite is a program from another suite of Debian than the one that is
// installed. Its packages, with all that they depend on, are downloaded by
// an apt of their own and unpacked beside each other: nothing of the machine's
// own changes. The program is run by the loader that came with it. A rolling
// suite has one version at a time, so the version is not ours to choose.
type suite struct {
	name     string
	packages []string
	program  string   // below the tree
	libs     []string // directories of libraries, below the tree
	args     []string // each time; TREE stands for the tree
}

const loader = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"

func (s *suite) dir() string { return filepath.Join(cache(), s.name+"-"+s.packages[0]) }

// programs is where the script is that has the program's name.
func (s *suite) programs() string { return filepath.Join(s.dir(), "run") }

func (s *suite) install(ctx context.Context, i installer) error {
	work, err := os.MkdirTemp(cache(), "suite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := s.download(ctx, i, work); err != nil {
		return err
	}
	if err := errors.Join(unpackDebs(ctx, work), s.script(work), os.Chmod(work, 0o755)); err != nil { //nolint:gosec // others run what is in it
		return err
	}
	return os.Rename(work, s.dir())
}

func (s *suite) download(ctx context.Context, i installer, work string) error {
	options, err := privateApt(work, s.name)
	if err != nil {
		return err
	}
	if err := i.try(ctx, "apt-get", append(options, "-q", "update")...); err != nil {
		return err
	}
	get := append(options, "-q", "-y", "--no-install-recommends", "--download-only", "install")
	return i.try(ctx, "apt-get", append(get, s.packages...)...)
}

// unpackDebs makes one tree of what was downloaded, and removes the rest.
func unpackDebs(ctx context.Context, work string) error {
	debs, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	if err != nil || len(debs) == 0 {
		return fmt.Errorf("apt-get downloaded nothing: %w", err)
	}
	for _, deb := range debs {
		if text, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, filepath.Join(work, "tree")).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb -x %s: %w\n%s", deb, err, bytes.TrimSpace(text))
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(work, "cache")), os.RemoveAll(filepath.Join(work, "state")))
}

// script writes what is called instead of the program.
func (s *suite) script(work string) error {
	tree := filepath.Join(s.dir(), "tree")
	var libs []string
	for _, l := range s.libs {
		libs = append(libs, filepath.Join(tree, l))
	}
	text := fmt.Sprintf("#!/bin/sh\nexec %s/%s --library-path %s %s/%s %s \"$@\"\n", tree, loader, strings.Join(libs, ":"), tree, s.program,
		strings.ReplaceAll(strings.Join(s.args, " "), "TREE", tree))
	if err := os.Mkdir(filepath.Join(work, "run"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, "run", filepath.Base(s.program)), []byte(text), 0o755) //nolint:gosec // it is a program
}

var debianURI = regexp.MustCompile(`(?m)^(?:URIs: *|deb (?:\[[^]]*\] )?)(https?://\S+/debian)/?(?:\s|$)`)

// debianMirror is the mirror of Debian that this machine uses.
func debianMirror() (string, error) {
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*") // the pattern is ours
	for _, f := range append(files, "/etc/apt/sources.list") {
		text, _ := os.ReadFile(f) // one that cannot be read has none
		if m := debianURI.FindSubmatch(text); m != nil {
			return string(m[1]), nil
		}
	}
	return "", errors.New("this is no Debian: /etc/apt names no mirror of it")
}

// privateApt makes folders for an apt that knows one suite, and returns the
// options that make apt-get use them.
func privateApt(dir, suite string) (options []string, err error) {
	mirror, err := debianMirror()
	if err != nil {
		return nil, err
	}
	list := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "state/lists/partial"), 0o755), os.MkdirAll(filepath.Join(dir, "cache/archives/partial"), 0o755),
		os.WriteFile(filepath.Join(dir, "sources.list"), []byte(list), 0o600), os.WriteFile(filepath.Join(dir, "state/status"), nil, 0o600))
	for _, o := range []string{"Dir::State=" + dir + "/state", "Dir::State::status=" + dir + "/state/status", "Dir::Cache=" + dir + "/cache",
		"Dir::Etc::sourcelist=" + dir + "/sources.list", "Dir::Etc::sourceparts=-", "APT::Sandbox::User=root"} {
		options = append(options, "-o", o)
	}
	return options, err
}
