package cli

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	was := release
	release = "v1.2.3"
	t.Cleanup(func() { release = was })
	b := newBench(t, pipeline)
	b.want(exitDone, "version", "semel v1.2.3, "+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH)
	b.want(exitDone, "--version", "semel v1.2.3")
	var got built
	if err := json.Unmarshal([]byte(b.want(exitDone, "version --json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v1.2.3" || !strings.HasPrefix(got.Go, "go") {
		t.Errorf("%+v", got)
	}
	b.want(exitUsage, "version FILE", "unknown command")
	b.want(exitDone, "version --help", "Example:", "Exit codes:")
}
