package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const head = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,carrier,flight,origin\n"

// sdist packs the table as the source distribution does.
func sdist(t *testing.T, table string) string {
	t.Helper()
	var zipped, out bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("flights.csv")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, table)
	z.Close()

	g := gzip.NewWriter(&out)
	a := tar.NewWriter(g)
	for name, body := range map[string]string{"x/README.md": "other", "x/" + member: zipped.String()} {
		if err := a.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(a, body)
	}
	a.Close()
	g.Close()
	path := filepath.Join(t.TempDir(), "sdist.tar.gz")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func prepared(t *testing.T, table string) (string, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.gz")
	if err := run(sdist(t, head+table), "2013-08-16", "2013-08-17", out); err != nil {
		return "", err
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(lines), nil
}

func TestTimesAcrossMidnight(t *testing.T) {
	got, err := prepared(t, strings.Join([]string{
		"2013,8,15,600,600,0,700,AA,1,JFK",    // another day: left out
		"2013,8,17,,1200,NA,,AA,5,LGA",        // cancelled
		"2013,8,16,10,2350,20,145,AA,2,EWR",   // leaves after midnight
		"2013,8,16,2400,2355,5,300,AA,3,EWR",  // at midnight exactly
		"2013,8,17,2358,5,-7,,AA,4,JFK",       // early, before midnight; never seen to arrive
		"2013,8,16,2000,2000,0,2330,AA,6,JFK", // on its day
		"2013,8,16,2000,2000,0,15,AA,2,JFK\n", // arrives on the next day
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"flight":"2013-08-16-AA-2-JFK","status":"scheduled","at":"2013-08-16T20:00","seq":1}
{"flight":"2013-08-16-AA-2-JFK","status":"departed","at":"2013-08-16T20:00","seq":2}
{"flight":"2013-08-16-AA-2-JFK","status":"arrived","at":"2013-08-17T00:15","seq":3}
{"flight":"2013-08-16-AA-6-JFK","status":"scheduled","at":"2013-08-16T20:00","seq":1}
{"flight":"2013-08-16-AA-6-JFK","status":"departed","at":"2013-08-16T20:00","seq":2}
{"flight":"2013-08-16-AA-6-JFK","status":"arrived","at":"2013-08-16T23:30","seq":3}
{"flight":"2013-08-16-AA-2-EWR","status":"scheduled","at":"2013-08-16T23:50","seq":1}
{"flight":"2013-08-16-AA-2-EWR","status":"departed","at":"2013-08-17T00:10","seq":2}
{"flight":"2013-08-16-AA-2-EWR","status":"arrived","at":"2013-08-17T01:45","seq":3}
{"flight":"2013-08-16-AA-3-EWR","status":"scheduled","at":"2013-08-16T23:55","seq":1}
{"flight":"2013-08-16-AA-3-EWR","status":"departed","at":"2013-08-17T00:00","seq":2}
{"flight":"2013-08-16-AA-3-EWR","status":"arrived","at":"2013-08-17T03:00","seq":3}
{"flight":"2013-08-17-AA-4-JFK","status":"scheduled","at":"2013-08-17T00:05","seq":1}
{"flight":"2013-08-17-AA-4-JFK","status":"departed","at":"2013-08-16T23:58","seq":2}
{"flight":"2013-08-17-AA-5-LGA","status":"scheduled","at":"2013-08-17T12:00","seq":1}
{"flight":"2013-08-17-AA-5-LGA","status":"cancelled","at":"2013-08-17T12:00","seq":2}
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestBadRowsAreNamed(t *testing.T) {
	for name, row := range map[string]string{
		"columns do not agree": "2013,8,16,610,600,5,700,AA,1,JFK\n",
		"no number":            "2013,8,16,600,noon,0,700,AA,1,JFK\n",
	} {
		if _, err := prepared(t, row); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: error is %v, want one that names line 2", name, err)
		}
	}
}
