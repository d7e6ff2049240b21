package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is a module of the workspace.
type module struct{ Path, Dir string }

// modules lists them, as everything else that needs the list does.
func modules(t *testing.T) []module {
	t.Helper()
	return decodeAll[module](t, goCommand(t, "list", "-m", "-json=Path,Dir"))
}

// goMod is what "go mod edit -json" says of one go.mod.
type goMod struct {
	dir     string // relative to the repository, with slashes
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

// checkModules checks all go.mod files of the repository against the
// workspace's list of directories.
func checkModules(mods []goMod, listed []string) (found []string) {
	for _, m := range mods {
		if !slices.Contains(listed, m.dir) {
			found = append(found, m.dir+"/go.mod is not in go.work, so nothing builds or tests it: go work use ./"+m.dir)
		}
		if want := path.Join(modulePath, m.dir); m.Module.Path != want {
			found = append(found, fmt.Sprintf("%s/go.mod names the module %s, want %s", m.dir, m.Module.Path, want))
		}
		// The go command writes 1.26 as 1.26.0 where a library does.
		if strings.TrimSuffix(m.Go, ".0") != strings.TrimSuffix(mods[0].Go, ".0") {
			found = append(found, fmt.Sprintf("%s/go.mod says go %s, the others %s", m.dir, m.Go, mods[0].Go))
		}
		if m.dir == "." && len(m.Require)+len(m.Replace) > 0 {
			found = append(found, "the core go.mod requires or replaces a module: code that needs one gets a module of its own")
		}
		found = append(found, m.unreplaced()...)
	}
	return found
}

// unreplaced checks that the modules of the repository see each other's work
// tree even where the workspace is switched off.
func (m goMod) unreplaced() (found []string) {
	for _, r := range m.Require {
		rel, ours := relative(r.Path)
		if !ours {
			continue
		}
		want, _ := filepath.Rel(filepath.FromSlash(m.dir), filepath.FromSlash(rel))
		if !slices.ContainsFunc(m.Replace, func(p struct {
			Old, New struct{ Path, Version string }
		}) bool {
			return p.Old.Path == r.Path && p.Old.Version == "" && path.Clean(p.New.Path) == filepath.ToSlash(want)
		}) {
			found = append(found, fmt.Sprintf("%s/go.mod requires %s without: replace %s => %s", m.dir, r.Path, r.Path, filepath.ToSlash(want)))
		}
	}
	return found
}

func goMods(t *testing.T, dir string) []goMod {
	t.Helper()
	var mods []goMod
	walk(t, dir, func(rel string) {
		if path.Base(rel) == "go.mod" {
			m := decodeAll[goMod](t, goCommand(t, "mod", "edit", "-json", filepath.Join(dir, filepath.FromSlash(rel))))[0]
			m.dir = path.Dir(rel)
			mods = append(mods, m)
		}
	})
	return mods
}

func TestModules(t *testing.T) {
	dir := root(t)
	var listed []string
	for _, m := range modules(t) {
		rel, err := filepath.Rel(dir, m.Dir)
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, filepath.ToSlash(rel))
	}
	for _, problem := range checkModules(goMods(t, dir), listed) {
		t.Error(problem)
	}
	if sums, err := os.ReadFile(filepath.Join(dir, "go.sum")); err == nil && len(sums) > 0 {
		t.Error("the core module has a go.sum: it requires nothing")
	}
}

func TestModulesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		".":                "module " + modulePath + "\n\ngo 1.26\n\nrequire example.com/x v1.0.0\n",
		"store/pgstore":    "module " + modulePath + "/pgstore\n\ngo 1.26\n",
		"store/mysqlstore": "module " + modulePath + "/store/mysqlstore\n\ngo 1.25\n",
		"cmd/semel": "module " + modulePath + "/cmd/semel\n\ngo 1.26\n\nrequire " + modulePath + " v0.0.0\n\nrequire " + modulePath +
			"/store/pgstore v0.0.0\n\nreplace " + modulePath + " => ../..\n\nreplace " + modulePath + "/store/pgstore => ../pgstore\n",
		"testdata/x": "module ignored\n",
	} {
		d := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "go.mod"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mods := goMods(t, dir)
	slices.SortFunc(mods, func(a, b goMod) int { return strings.Compare(a.dir, b.dir) })
	got := checkModules(mods, []string{".", "cmd/semel", "store/pgstore"})
	want := []string{
		"the core go.mod requires",
		"cmd/semel/go.mod requires " + modulePath + "/store/pgstore without",
		"store/mysqlstore/go.mod is not in go.work",
		"store/mysqlstore/go.mod says go 1.25",
		"store/pgstore/go.mod names the module",
	}
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("problem %d is %q, want %q", i, got[i], want[i])
		}
	}
}
