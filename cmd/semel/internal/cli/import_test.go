package cli

import (
	"strings"
	"testing"
)

// TestLettersNamedByTheirFile: what $meta says of a message is kept with its
// letter, so that it can be repaired long after its delivery; names that are
// not UTF-8 come back from an export as JSON has them.
func TestLettersNamedByTheirFile(t *testing.T) {
	text := strings.NewReplacer("id: .id\n  key: .key\n", "id: $meta.file\n  key: .key\n", "id: .id,", "id: .key,").Replace(pipeline)
	b := newBench(t, text)
	b.deliver("a\xff.json", `{"key":"k1","n":200}`)
	b.deliver("b.json", `{"key":"k2","n":200}`)
	b.deliver("c.json", `{"key":"k3","n":20`)
	b.want(exitDead, "run FILE --once")
	out := b.want(exitDone, "letters export FILE")
	b.in = out
	b.want(exitDone, "letters import FILE", "0 proposed, 3 unchanged, 0 refused")
	b.in = strings.NewReplacer(`"n":200`, `"n":20`, `"text":"{\"key\":\"k3\",\"n\":20"`, `"json":{"key":"k3","n":20}`).Replace(out)
	b.want(exitDone, "letters import FILE --replay", "3 proposed, 0 unchanged, 0 refused, 3 replayed")
	b.want(exitDone, "run FILE --once", "applied                3")
	b.want(exitDone, "letters list FILE id=c.json state=applied", "c.json")
	b.in = strings.Replace(out, `"id":"b.json"`, `"id":"x.json"`, 1)
	b.want(exitDead, "letters import FILE")
}

// TestDryRunOfImport refuses what the real one would.
func TestDryRunOfImport(t *testing.T) {
	b := newBench(t, pipeline)
	b.deliver("a.json", `{"id":"a","key":"k","n":1}`)
	b.deliver("b.json", `{"id":"a","key":"k","n":2}`)
	b.deliver("c.json", `{"id":"c","key":"k","n":200}`)
	b.want(exitDead, "run FILE --once")
	b.want(exitDone, "letters replay FILE id=c --yes")
	b.in = strings.NewReplacer(`"n":2}`, `"n":3}`, `"n":200}`, `"n":20}`).Replace(b.want(exitDone, "letters export FILE state=open"))
	for _, line := range []string{"letters import FILE --dry-run", "letters import FILE"} {
		b.want(exitDead, line, "can only be discarded", "in state retry cannot be edited", "unchanged, 2 refused")
	}
}

// TestImportWithoutBody: a line whose body a tool has dropped is no tombstone.
func TestImportWithoutBody(t *testing.T) {
	b := newBench(t, strings.NewReplacer("id: .id\n  key: .key\n  filter: .test | not\n", "id: $meta.file\n", "arbitrate: {version: .v, missing: apply}\n", "").Replace(pipeline))
	b.deliver("a.json", `{"id":"a","n":200}`)
	b.want(exitDead, "run FILE --once")
	b.in = `{"ref":"` + b.ref("id=a.json") + `","version":1}`
	b.want(exitDead, "letters import FILE", "line 1", "none of json, text and base64", "0 proposed, 0 unchanged, 1 refused")
}
