package servertest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is one that has nothing but an apt-get of the test's, a script.
func machine(t *testing.T, apt string) (installer, *strings.Builder) {
	t.Helper()
	bin := t.TempDir()
	if apt != "" {
		script(t, filepath.Join(bin, "apt-get"), apt)
	}
	t.Setenv("PATH", bin)
	var told strings.Builder
	return installer{root: true, policy: filepath.Join(t.TempDir(), "policy-rc.d"), out: &told}, &told
}

func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	s := source{programs: []string{"oracled"}, packages: []string{"oracle"}}
	i, _ := machine(t, "")
	_, err := s.obtain(t.Context(), i)
	wants(t, err, "oracled is not there", "apt-get install oracle")

	i, _ = machine(t, "exit 0")
	i.root = false
	_, err = s.obtain(t.Context(), i)
	wants(t, err, "oracled is not there", "apt-get install oracle", "as root")
}

func TestInstallFails(t *testing.T) {
	i, _ := machine(t, `echo try >> `+filepath.Join(t.TempDir(), "tries")+`; printf 'Temporary failure \033[1mresolving'; exit 100`)
	err := i.distribution(t.Context(), []string{"oracle"})
	wants(t, err, "apt-get", "exit status 100", "three times", "does this machine reach", `\x1b[1mresolving`)
	if _, err := os.Stat(i.policy); !errors.Is(err, os.ErrNotExist) {
		t.Error("the policy against services was left behind")
	}
}

// The second try succeeds; while packages are installed, none may start a
// service.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	i, told := machine(t, `
test "$DEBIAN_FRONTEND" = noninteractive || exit 1
case "$*" in
*update) test -e `+dir+`/tried || { : > `+dir+`/tried; exit 100; } ;;
*install*oracle) "$POLICY"; echo $? > `+dir+`/policy; echo '#!/bin/sh' > `+dir+`/oracled; /bin/chmod +x `+dir+`/oracled ;;
*) exit 1 ;;
esac`)
	t.Setenv("POLICY", i.policy)
	s := source{programs: []string{"oracled"}, dirs: []string{dir}, packages: []string{"oracle"}}
	if err := i.distribution(t.Context(), s.packages); err != nil {
		t.Fatal(err)
	}
	if bin, ok := s.find(); !ok || bin["oracled"] != filepath.Join(dir, "oracled") {
		t.Errorf("found %v, %v", bin, ok)
	}
	if code, _ := os.ReadFile(filepath.Join(dir, "policy")); strings.TrimSpace(string(code)) != "101" {
		t.Errorf("the policy that was asked for said %s", code)
	}
	if !strings.Contains(told.String(), "install oracle\nservers: done in") {
		t.Errorf("told: %s", told)
	}
}

func TestPolicyOfOthersStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy-rc.d")
	script(t, path, "exit 101")
	allow, err := forbidServices(path)
	if err != nil {
		t.Fatal(err)
	}
	allow()
	if text, err := os.ReadFile(path); string(text) != "#!/bin/sh\nexit 101\n" {
		t.Errorf("now: %q, %v", text, err)
	}
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil { // of a run that was killed
		t.Fatal(err)
	}
	if allow, err = forbidServices(path); err != nil {
		t.Fatal(err)
	}
	allow()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ours is still there: %v", err)
	}
}

func TestOneInstaller(t *testing.T) {
	dir := t.TempDir()
	unlock, err := oneInstaller(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = oneInstaller(ended, dir)
	wants(t, err, "another process installs")
	second := make(chan error, 1)
	go func() {
		unlock, err := oneInstaller(context.WithoutCancel(ended), dir)
		if err == nil {
			unlock()
		}
		second <- err
	}()
	unlock()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Two versions are not mixed as long as one is whole.
func TestFind(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"15/a", "15/b", "16/a", "bin/c", "sbin/d"} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		script(t, path, "")
	}
	t.Setenv("PATH", filepath.Join(base, "bin")+":"+filepath.Join(base, "sbin"))
	for programs, want := range map[string]string{"a b": "15/a", "a": "16/a", "c d": "bin/c", "a e": ""} {
		s := source{programs: strings.Fields(programs), dirs: []string{filepath.Join(base, "1*")}}
		bin, ok := s.find()
		got := strings.TrimPrefix(bin[s.programs[0]], base+"/")
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %v, %v, want %s", programs, bin, ok, want)
		}
	}
}

// pack makes a package with the files named.
func pack(t *testing.T, files map[string]string) *tarball {
	t.Helper()
	path := filepath.Join(t.TempDir(), "package.tgz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(data)
	return &tarball{name: path, version: "1", root: "package/native", bin: "bin", links: "links.json", sha512: base64.StdEncoding.EncodeToString(sum[:])}
}

func TestTarball(t *testing.T) {
	p := pack(t, map[string]string{
		"package/native/bin/server":  "program",
		"package/native/lib/a.so.1":  "library",
		"package/scripts/install.js": "not wanted",
		"package/native/links.json":  `[{"source": "native/lib/a.so.1", "target": "native/lib/a.so"}]`,
	})
	if err := p.verify(p.name); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "tree")
	if err := errors.Join(p.unpack(p.name, to), p.link(to)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "lib/a.so")); string(text) != "library" {
		t.Errorf("through the link: %q, %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(to, "bin/server")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the program: %v, %v", info, err)
	}
	if files, _ := filepath.Glob(filepath.Join(to, "*")); len(files) != 3 {
		t.Errorf("unpacked: %v", files)
	}
	p.sha512 = "other"
	wants(t, p.verify(p.name), "is not the file it was")
}

func TestHostileTarball(t *testing.T) {
	for _, name := range []string{"package/native/../../../outside", "package/native//etc/outside"} {
		p := pack(t, map[string]string{name: "x"})
		to := filepath.Join(t.TempDir(), "tree")
		err := p.unpack(p.name, to)
		if _, there := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(to)), "outside")); err == nil || there == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
