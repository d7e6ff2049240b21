package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/semel-dev/semel/internal/printable"
)

func opensearchPackages() *artifacts {
	return &artifacts{folder: "opensearch", version: "2.19.6", class: "TestNode"}
}

// opensearch has no password: that is a plugin of the distribution. Who is asked
// proves itself by its data directory and pid, as the others do.
func opensearch() recipe {
	packages := opensearchPackages()
	return recipe{
		what:    "OpenSearch 2.19, from Maven packages",
		source:  source{programs: []string{"java"}, artifacts: packages},
		dialect: dialect{identify: opensearchIdentity, database: opensearchDatabase},
		stop:    syscall.SIGTERM,
		create:  func(context.Context, *Server) error { return nil }, // it makes what it needs
		arguments: func(s *Server) []string {
			return []string{
				"-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
				"-Djava.io.tmpdir=" + s.dir, "-Dlog4j2.configurationFile=" + filepath.Join(packages.dir(), "log4j2.xml"),
				"-cp", packages.classpath(), packages.class, s.dir, s.data(), strconv.Itoa(s.port),
			}
		},
		url: func(s *Server) string { return fmt.Sprintf("http://127.0.0.1:%d", s.port) },
	}
}

// opensearchDo sends a request to a path of the server and decodes the answer
// into out, if that is not nil.
func opensearchDo(ctx context.Context, method, address, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", resp.Status, printable.Line(string(bytes.TrimSpace(text)), 200))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// opensearchServer is the address without the database.
func opensearchServer(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	u.Path = ""
	return u.String(), nil
}

func opensearchIdentity(ctx context.Context, address string) (id identity, err error) {
	server, err := opensearchServer(address)
	if err != nil {
		return id, err
	}
	var health struct{ Status string }
	if err := opensearchDo(ctx, http.MethodGet, server+"/_cluster/health?timeout=1s", "", &health); err != nil {
		return id, err
	}
	if health.Status == "red" {
		return id, fmt.Errorf("recovering: its health is red")
	}
	var all struct {
		Nodes map[string]struct {
			Version  string
			Process  struct{ ID int }
			Settings struct {
				Path struct{ Data json.RawMessage }
			}
		}
	}
	if err := opensearchDo(ctx, http.MethodGet, server+"/_nodes/_local/process,settings", "", &all); err != nil {
		return id, err
	}
	for _, n := range all.Nodes {
		id = identity{data: strings.Trim(string(n.Settings.Path.Data), `"[]`), pid: n.Process.ID, version: n.Version}
	}
	return id, nil
}

// opensearchDatabase is a name that no index of the server begins with: the
// path of the address. Tests name their indexes after it.
func opensearchDatabase(ctx context.Context, address string) (string, func(context.Context) error, error) {
	server, err := opensearchServer(address)
	if err != nil {
		return "", nil, err
	}
	// A node that has just started may not take indexes yet.
	if err := opensearchDo(ctx, http.MethodGet, server+"/_cluster/health?wait_for_status=yellow&timeout=60s", "", nil); err != nil {
		return "", nil, err
	}
	name := server + "/test-" + random()
	return name, func(ctx context.Context) error {
		return opensearchDo(ctx, http.MethodDelete, name+"*", "", nil)
	}, nil
}
