package servertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// prefix begins the names of all directories of servers, in os.TempDir.
const prefix = "semel-test-"

// watch is the program of a keeper: it waits until the one who started it is
// gone, whatever ended it, kills all that works in the server's directory and
// removes it. Processes are found by their working directory and not by a pid,
// so that it does not depend on having been told one, and nobody else is hit.
const watch = `read -r _
for _ in $(seq 100); do
	left=
	for p in /proc/[0-9]*; do
		case $(readlink "$p/cwd" 2>/dev/null) in
		"$1" | "$1"/*) kill -9 "${p#/proc/}" 2>/dev/null; left=1 ;;
		esac
	done
	test -z "$left" && rm -rf -- "$1" && exit 0
	sleep 0.1
done
exit 1`

// keeper is a process that outlives this one and cleans up after it. It also
// holds the note in the directory that says what runs there; the note is locked
// while its owner lives.
type keeper struct {
	cmd  *exec.Cmd
	pipe *os.File // closed by the end of this process
	note *os.File
}

// keep starts the keeper of a directory.
func keep(dir string, kind Kind) (*keeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	k := &keeper{pipe: w, cmd: exec.Command("/bin/sh", "-c", watch, "keeper", dir)}
	k.cmd.Stdin, k.cmd.Dir = r, "/"
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := k.cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the process that cleans up after a crash: %w", err)
	}
	if k.note, err = os.OpenFile(filepath.Join(dir, "note.new"), os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		k.dismiss()
		return nil, err
	}
	err = errors.Join(lock(k.note), k.tell(string(kind)+" is being started"),
		os.Rename(k.note.Name(), filepath.Join(dir, "note")))
	if err != nil {
		k.dismiss()
		return nil, err
	}
	return k, nil
}

// tell writes what runs in the directory, for "list".
func (k *keeper) tell(what string) error {
	if err := k.note.Truncate(0); err != nil {
		return err
	}
	_, err := k.note.WriteAt([]byte(what), 0)
	return err
}

// dismiss ends a keeper that is not needed any more.
func (k *keeper) dismiss() {
	if k == nil {
		return
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	k.pipe.Close()
	if k.note != nil {
		k.note.Close()
	}
}

func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// Running describes the servers of all processes of this user, one line each.
func Running() (lines []string) {
	for _, note := range notes() {
		data, err := os.ReadFile(note)
		if err == nil && !orphaned(note) {
			lines = append(lines, string(data))
		}
	}
	return lines
}

func notes() []string {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", "note")) // the pattern is well-formed
	return found
}

// orphaned reports whether the owner of a note is gone.
func orphaned(note string) bool {
	f, err := os.Open(note)
	if err != nil {
		return false
	}
	defer f.Close()
	return lock(f) == nil
}

// sweep removes what was left by processes whose keeper was killed too, as by
// the end of a container.
func sweep() {
	for _, note := range notes() {
		dir := filepath.Dir(note)
		if orphaned(note) && signalAll(dir, syscall.SIGKILL, true) == nil {
			_ = os.RemoveAll(dir) // the next one will try again
		}
	}
}

// signalAll sends a signal to every process that works in dir or below it. If
// wait is set, it repeats that until there are none.
func signalAll(dir string, sig syscall.Signal, wait bool) error {
	began := time.Now()
	for {
		pids := workingIn(dir)
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
		if !wait || len(pids) == 0 {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("processes %v of %s do not end", pids, dir)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func workingIn(dir string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is well-formed
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || cwd != dir && !strings.HasPrefix(cwd, dir+"/") {
			continue // ended, a zombie, or somebody else's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unprivileged is the user that servers run as if we are root, since some of
// them refuse that: nobody. Otherwise it is nil, and they run as we do.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("find the user to run servers as: %w", err)
	}
	uid, err1 := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(nobody.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}
