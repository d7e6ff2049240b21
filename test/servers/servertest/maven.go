package servertest

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// artifacts are a server that comes as Java packages, and the class that starts
// it. They live in a folder of this package: pom.xml names the packages, whose
// checksums Maven compares.
type artifacts struct {
	folder  string // in files
	version string
	class   string // of the file that is compiled, which has main
}

//go:embed opensearch
var files embed.FS

// dir holds the packages in lib, the class in classes, and what lies in folder.
func (a *artifacts) dir() string { return filepath.Join(cache(), a.folder+"-"+a.version) }

func (a *artifacts) installed() bool {
	_, err := os.Stat(a.dir()) // it is moved there when it is whole
	return err == nil
}

// classpath is what java is told.
func (a *artifacts) classpath() string {
	return filepath.Join(a.dir(), "classes") + string(os.PathListSeparator) + filepath.Join(a.dir(), "lib", "*")
}

func (a *artifacts) install(ctx context.Context, i installer) error {
	if !has("mvn") || !has("javac") {
		if !i.can() {
			return errors.New("install a JDK of version 17 and Maven, which downloads its packages (as root on Debian and its like this is done for you)")
		}
		if err := i.distribution(ctx, []string{"default-jdk-headless", "maven"}); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp(cache(), "maven-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := errors.Join(os.Chmod(work, 0o755), a.copy(work)); err != nil { //nolint:gosec // the server runs as somebody else
		return err
	}
	lib, classes := filepath.Join(work, "lib"), filepath.Join(work, "classes")
	if err := i.try(ctx, "mvn", "-q", "-B", "-C", "-f", filepath.Join(work, "pom.xml"), "dependency:copy-dependencies",
		"-DoutputDirectory="+lib, "-DincludeScope=runtime"); err != nil {
		return err
	}
	if err := i.try(ctx, "javac", "-cp", filepath.Join(lib, "*"), "-d", classes, filepath.Join(work, a.class+".java")); err != nil {
		return err
	}
	return os.Rename(work, a.dir())
}

func (a *artifacts) copy(to string) error {
	entries, err := fs.ReadDir(files, a.folder)
	for _, e := range entries {
		text, readErr := files.ReadFile(path.Join(a.folder, e.Name()))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, e.Name()), text, 0o644)) //nolint:gosec // nothing of it is secret
	}
	return err
}
