// Package inputs lays real data out as directory queues for the tests of the
// binary. The README beside this file names sources and licences; the flights
// have a package of their own, examples/flights.
package inputs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// File is one file of an inbox.
type File struct {
	Name string
	Body []byte
}

// Deliver puts files into the inbox of the directory queue at root, each one
// complete before it can be seen. It replaces a file of the same name. One call
// at a time for one root.
func Deliver(root string, files []File) error {
	inbox := filepath.Join(root, "inbox")
	if err := os.MkdirAll(inbox, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		tmp := filepath.Join(inbox, ".delivering")
		if err := os.WriteFile(tmp, f.Body, 0o644); err != nil {
			return err
		}
		if err := os.Rename(tmp, filepath.Join(inbox, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

//go:embed earthquakes.ndjson.gz
var earthquakes []byte

// Earthquakes returns 1,707 files, one earthquake each, named so that they
// sort in the order of the feed: by the time of the event, newest first, while
// the field updated (in milliseconds) goes up and down. The other fields are
// id, status, place and mag.
func Earthquakes() ([]File, error) {
	z, err := gzip.NewReader(bytes.NewReader(earthquakes))
	if err != nil {
		return nil, err
	}
	var files []File
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		files = append(files, File{fmt.Sprintf("%04d.json", len(files)+1), bytes.Clone(lines.Bytes())})
	}
	return files, lines.Err()
}

// The module of Go vulnerability reports, and what its content hashes to.
const (
	vulndb    = "golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018"
	vulndbSum = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="
)

// Vulnerabilities returns 4,789 files as their publisher ships them in one
// directory, 0.8 to 32 KB each; the field id is the name without ".json". The
// first call on a machine downloads 25 MB through the go command.
func Vulnerabilities(ctx context.Context) ([]File, error) {
	dir, err := download(ctx, vulndb, vulndbSum)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", vulndb, err)
	}
	return readDir(filepath.Join(dir, "data", "osv"))
}

// download returns the directory of a module. Outside of the workspace, since
// none of our modules is to require it.
func download(ctx context.Context, module, sum string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var m struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr != nil && err == nil {
		err = jsonErr
	}
	switch {
	case m.Error != "":
		return "", fmt.Errorf("go mod download: %s", m.Error)
	case err != nil:
		return "", fmt.Errorf("go mod download: %w", err)
	case m.Sum != sum:
		return "", fmt.Errorf("content is %s, want %s", m.Sum, sum)
	}
	return m.Dir, nil
}

func readDir(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, 0, len(entries))
	for _, entry := range entries {
		body, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, File{entry.Name(), body})
	}
	return files, nil
}
