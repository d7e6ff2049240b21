// Command prepare makes examples/webhooks/payloads.ndjson.gz from the npm
// package @octokit/webhooks-examples. The file is committed; this program shows
// how it came about and makes it again:
//
//	npm pack @octokit/webhooks-examples@7.6.1
//	go run ./examples/webhooks/prepare octokit-webhooks-examples-7.6.1.tgz
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-dev/semel/examples/webhooks"
)

func main() {
	out := flag.String("o", "examples/webhooks/payloads.ndjson.gz", "the `file` to write")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: prepare [-o FILE] octokit-webhooks-examples-7.6.1.tgz")
		os.Exit(1)
	}
	if err := run(flag.Arg(0), *out); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func run(archive, out string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	var c collection
	if err := c.read(f); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	data, err := c.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, data, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d deliveries of %d payloads, %d bytes\n", out, c.deliveries, len(c.payloads), len(data))
	return nil
}

// collection are the payloads, each once, in the order of their first
// appearance.
type collection struct {
	payloads   []webhooks.Payload
	at         map[string]int // body → index
	people     map[string]string
	deliveries int
}

// read takes in every index.json of a gzipped tar. Folders are sorted, whatever
// their order in the archive.
func (c *collection) read(r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	lists := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return c.addAll(lists)
		}
		if err != nil {
			return err
		}
		if folder, file := path.Split(h.Name); file == "index.json" {
			if lists[path.Base(folder)], err = io.ReadAll(t); err != nil {
				return err
			}
		}
	}
}

func (c *collection) addAll(lists map[string][]byte) error {
	if len(lists) == 0 {
		return errors.New("there is no index.json in it")
	}
	c.at, c.people = map[string]int{}, map[string]string{}
	var folders []string
	for folder := range lists {
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	for _, folder := range folders {
		if err := c.add(server(folder), lists[folder]); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	return nil
}

// server shortens the name of a folder: api.github.com to api, ghes-34 to
// ghes34.
func server(folder string) string {
	first, _, _ := strings.Cut(folder, ".")
	return strings.ReplaceAll(first, "-", "")
}

func (c *collection) add(server string, list []byte) error {
	var events []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(list, &events); err != nil {
		return err
	}
	n := 0
	for _, e := range events {
		for _, x := range e.Examples {
			n++
			if err := c.addPayload(fmt.Sprintf("%s-%03d-%s", server, n, e.Name), x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collection) addPayload(id string, example []byte) error {
	var head struct{ Action string }
	if err := json.Unmarshal(example, &head); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if head.Action != "" {
		id += "-" + head.Action
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, example); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	body := address.ReplaceAllStringFunc(compact.String(), c.stranger)
	i, known := c.at[body]
	if !known {
		i = len(c.payloads)
		c.at[body] = i
		c.payloads = append(c.payloads, webhooks.Payload{Body: json.RawMessage(body)})
	}
	c.payloads[i].IDs = append(c.payloads[i].IDs, id)
	c.deliveries++
	return nil
}

var address = regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}`)

// stranger replaces a mail address by one that belongs to nobody, the same each
// time: payloads that differ go on to differ. Addresses of repositories,
// git@github.com, look like mail and stay.
func (c *collection) stranger(mail string) string {
	if strings.HasPrefix(mail, "git@") {
		return mail
	}
	if c.people[mail] == "" {
		c.people[mail] = fmt.Sprintf("person%d@example.com", len(c.people)+1)
	}
	return c.people[mail]
}

func (c *collection) encode() ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	lines := json.NewEncoder(z)
	lines.SetEscapeHTML(false)
	for _, p := range c.payloads {
		if err := lines.Encode(p); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
