package sqlitestore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
	"github.com/semel-dev/semel/store/sqlstore"
)

// Tests that need another process run this binary again, with a role.
const roleVar, pathVar = "SQLITESTORE_TEST_ROLE", "SQLITESTORE_TEST_PATH"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role, os.Getenv(pathVar)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func play(role, path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path, Config{})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	switch role {
	case "hold":
		return hold(ctx, s)
	case "race":
		return race(ctx, s)
	}
	return work(ctx, s)
}

// hold claims an id and stays in the transaction until it reads a line.
func hold(ctx context.Context, s *Store) error {
	_, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		if _, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "a", Verdict: semel.Applied}}, nil); err != nil {
			return err
		}
		if err := put(ctx, tx, "by", "child"); err != nil {
			return err
		}
		fmt.Println("inside")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
	return err
}

// race claims ids that others claim too, and counts those that were new to it.
func race(ctx context.Context, s *Store) error {
	for i := range 50 {
		ids := []store.Record{{ID: fmt.Sprintf("id-%03d", 2*i)}, {ID: fmt.Sprintf("id-%03d", 2*i+1)}}
		if err := count(ctx, s, ids); err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

// work claims new ids for ever.
func work(ctx context.Context, s *Store) error {
	for i := 0; ; i++ {
		if err := count(ctx, s, []store.Record{{ID: strconv.Itoa(i)}}); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// count adds the number of new ids to a counter of the user's.
func count(ctx context.Context, s *Store, ids []store.Record) error {
	_, err := s.InTx(ctx, store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
		prior, err := s.Claim(ctx, tx, "c", ids, nil)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO effect VALUES (CAST('n' AS BLOB), ?) ON CONFLICT (key) DO UPDATE SET value = effect.value + excluded.value",
			len(ids)-len(prior))
		return err
	})
	return err
}

// child is a process with a role.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, role, path string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(self)}
	c.Env = append(os.Environ(), roleVar+"="+role, pathVar+"="+path)
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// line waits for the next line of output.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the process ended: %v", c.out.Err())
	}
	if l := c.out.Text(); !strings.HasPrefix(l, "failed") {
		return l
	}
	t.Fatal(c.out.Text())
	return ""
}

// TestProcessHolds claims an id that another process has claimed and not yet
// committed; it waits for what becomes of it.
func TestProcessHolds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*child) error
		want int
		by   string
	}{
		"commits": {func(c *child) error { _, err := io.WriteString(c.in, "\n"); return err }, 1, "child"},
		"killed":  {func(c *child) error { return c.Process.Kill() }, 0, "parent"},
	} {
		t.Run(name, func(t *testing.T) {
			s, path := fresh(t)
			other := start(t, "hold", path)
			other.line(t)
			prior, done := 0, make(chan error, 1)
			go func() {
				_, err := s.InTx(t.Context(), store.Mark{}, func(ctx context.Context, tx sqlstore.Tx) error {
					p, err := s.Claim(ctx, tx, "c", []store.Record{{ID: "a", Verdict: semel.Applied}}, nil)
					if prior = len(p); prior == 0 && err == nil {
						err = put(ctx, tx, "by", "parent")
					}
					return err
				})
				done <- err
			}()
			if _, there, err := get(t.Context(), path, "by"); there || err != nil {
				t.Errorf("what is not committed can be read: %v, %v", there, err)
			}
			if err := c.end(other); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			by, _, err := get(t.Context(), path, "by")
			if prior != c.want || by != c.by || err != nil {
				t.Errorf("%d rows were there, the effect is by %q, %v; want %d and %q", prior, by, err, c.want, c.by)
			}
		})
	}
}

// TestProcessesRace has three processes claim the same ids.
func TestProcessesRace(t *testing.T) {
	_, path := fresh(t)
	var all []*child
	for range 3 {
		all = append(all, start(t, "race", path))
	}
	for _, c := range all {
		c.line(t)
	}
	if n, _, err := get(t.Context(), path, "n"); n != "100" || err != nil {
		t.Errorf("100 ids were new %s times, %v", n, err)
	}
}

// TestProcessKilled kills a process in the middle of its work. Effects and
// records must agree.
func TestProcessKilled(t *testing.T) {
	s, path := fresh(t)
	other := start(t, "work", path)
	for other.line(t) != "25" {
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	n, _, err := get(t.Context(), path, "n")
	if err != nil {
		t.Fatal(err)
	}
	effects, err := strconv.Atoi(n)
	if err != nil || effects < 26 {
		t.Fatalf("%q effects after 26 commits were reported", n)
	}
	var ids []store.Record
	for i := range effects + 10 {
		ids = append(ids, store.Record{ID: strconv.Itoa(i)})
	}
	in(t, s, func(ctx context.Context, tx sqlstore.Tx) error {
		prior, err := s.Claim(ctx, tx, "c", ids, nil)
		if len(prior) != effects {
			t.Errorf("%d effects and %d records", effects, len(prior))
		}
		return err
	})
}
