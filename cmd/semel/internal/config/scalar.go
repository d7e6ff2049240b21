package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// maxDuration is the longest time that is taken, a hundred years.
const maxDuration = 100 * 365 * 24 * time.Hour

// ParseDuration reads a duration as Go writes it ("1h30m", "500ms"), with days
// ("30d", "1d12h") besides.
func ParseDuration(s string) (time.Duration, error) {
	if strings.ContainsAny(s, "+-") {
		return 0, durationError(s)
	}
	days, rest := "", s
	if i := strings.IndexByte(s, 'd'); i >= 0 {
		days, rest = s[:i], s[i+1:]
	}
	var d time.Duration
	if days != "" {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > uint64(maxDuration/(24*time.Hour)) {
			return 0, durationError(s)
		}
		d = time.Duration(n) * 24 * time.Hour
	}
	if rest != "" || days == "" {
		more, err := time.ParseDuration(rest)
		if err != nil {
			return 0, durationError(s)
		}
		d += more
	}
	if d < 0 || d > maxDuration {
		return 0, durationError(s)
	}
	return d, nil
}

func durationError(s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return errors.New("a duration needs a unit: 500ms, 30s, 10m, 12h or 30d")
	}
	return errors.New("not a duration: write 500ms, 30s, 10m, 12h, 1d12h or 30d")
}

func (r *reader) duration(n ast.Node, where string) time.Duration {
	if n == nil {
		return 0
	}
	s := ""
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		s = n.GetToken().Value
	default:
		if s = r.text(n, where); s == "" {
			return 0
		}
	}
	d, err := ParseDuration(s)
	if err != nil {
		r.problem(n, "", "%s: %v", where, err)
	}
	return d
}

// positive is a duration above zero.
func (r *reader) positive(n ast.Node, where string) time.Duration {
	before := len(r.problems)
	d := r.duration(n, where)
	if n != nil && d == 0 && len(r.problems) == before {
		r.problem(n, "write 1s or more, or remove the line", "%s must be above zero", where)
	}
	return d
}

var byteUnits = []struct {
	suffix string
	n      int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// maxBody is the largest limit that can be asked for: a body is in memory
// several times.
const maxBody = 1 << 30

// bytes reads a size: a number of bytes, or with KiB, MiB, GiB.
func (r *reader) bytes(n ast.Node, where string) int64 {
	if n == nil {
		return 0
	}
	s, unit := "", int64(1)
	if _, ok := n.(*ast.IntegerNode); ok {
		s = n.GetToken().Value
	} else if s = r.text(n, where); s == "" {
		return 0
	}
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimSpace(rest), u.n
		}
	}
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil || v < 1 || v > maxBody/unit {
		r.problem(n, "write 65536, 64KiB or 16MiB; at most 1GiB", "%s must be a size", where)
		return 0
	}
	return v * unit
}

// Location is where a source or a store is.
type Location struct {
	Scheme string
	// Path is absolute for schemes that name files.
	Path string
}

// String returns the URL as people may see it, without a password.
func (l Location) String() string {
	s := l.Scheme + ":" + l.Path
	if localSchemes[l.Scheme] {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		return l.Scheme + ":…"
	}
	if q := u.Query(); q.Has("password") || q.Has("sslpassword") { // libpq takes them there as well
		for _, key := range []string{"password", "sslpassword"} {
			if q.Has(key) {
				q.Set(key, "xxxxx")
			}
		}
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// localSchemes name files and directories.
var localSchemes = map[string]bool{"directory": true, "sqlite": true}

// ParseLocation reads a URL; relative paths are relative to the working
// directory. Its errors quote no more than the scheme: the rest may hold a
// password.
func ParseLocation(s string, known []string) (Location, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/. ") {
		return Location{}, fmt.Errorf("it has no scheme: write %s", forms(known))
	}
	if !slices.Contains(known, scheme) {
		return Location{}, fmt.Errorf("this build has no %q: write %s", scheme, forms(known))
	}
	if !localSchemes[scheme] {
		return Location{Scheme: scheme, Path: rest}, nil
	}
	path := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return Location{}, fmt.Errorf("what follows %s:// is a host: write %s:///%s for an absolute path or %s:%s for a relative one", scheme, scheme, after, scheme, after)
		}
		path = after
	}
	if path == "" {
		return Location{}, fmt.Errorf("the path is missing: write %s", forms([]string{scheme}))
	}
	path, err := filepath.Abs(path)
	return Location{scheme, path}, err
}

func forms(schemes []string) string {
	var f []string
	for _, s := range schemes {
		if localSchemes[s] {
			f = append(f, s+":PATH")
		} else {
			f = append(f, s+"://HOST/…")
		}
	}
	return strings.Join(f, " or ")
}
