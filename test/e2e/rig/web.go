package rig

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var served = regexp.MustCompile(`http://[^ "]+/metrics`)

// Site is where a process answers questions about itself.
type Site struct {
	p    *Process
	base string
}

// Site waits until the process says where it answers.
func (p *Process) Site() *Site {
	p.t.Helper()
	var url string
	Until(p.t, "it says where it answers", func() bool {
		url = served.FindString(p.Stderr())
		return url != "" || !p.Alive()
	})
	if url == "" {
		p.t.Fatalf("it ended without saying where it answers: %v", p.Wait())
	}
	return &Site{p: p, base: strings.TrimSuffix(url, "/metrics")}
}

// Get asks for a path. A process that does not answer fails the test.
func (s *Site) Get(path string) (code int, body string) {
	s.p.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	a, err := client.Get(s.base + path)
	if err != nil {
		s.p.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		s.p.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// Metrics are the samples of /metrics by name and labels, as they are written
// there.
func (s *Site) Metrics() map[string]float64 {
	s.p.t.Helper()
	_, body := s.Get("/metrics")
	all := map[string]float64{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.p.t.Fatalf("%q: %v", line, err)
		}
		all[name+"}"] = v
	}
	return all
}

// Conditions are the reasons that /livez or /readyz gives; none: all is well.
func (s *Site) Conditions(path string) []string {
	s.p.t.Helper()
	code, body := s.Get(path)
	var a struct {
		OK      bool
		Reasons []struct{ Condition string }
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		s.p.t.Fatalf("%s: %v", body, err)
	}
	if want := map[bool]int{true: 200, false: 503}[a.OK]; code != want || a.OK != (len(a.Reasons) == 0) {
		s.p.t.Errorf("%s: status %d with %s", path, code, body)
	}
	names := []string{}
	for _, r := range a.Reasons {
		names = append(names, r.Condition)
	}
	return names
}

// UntilConditions waits until /readyz gives exactly these reasons.
func (s *Site) UntilConditions(want ...string) {
	s.p.t.Helper()
	all := strings.Join(want, " ")
	Until(s.p.t, "/readyz says ["+all+"]", func() bool { return strings.Join(s.Conditions("/readyz"), " ") == all })
}
