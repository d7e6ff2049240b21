package letter

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// CauseOf tells what a failure has in common with others: class, reason, the
// kind of the error (see [Kind]), the top frames of the user's own code if
// there is a stack, and the error's text without what differs from message to
// message (see [Normal]). Failures with equal causes make one group. It is a
// pure function; err may be nil.
func CauseOf(class store.Class, reason string, err error, stack string) store.Cause {
	text := ""
	if err != nil {
		text = Normal(bare(err))
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q", class, reason, Kind(err), Frames(stack), text)
	return store.Cause{ID: strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5])), Text: text}
}

// bare is the text of an error without the name of the message that it is
// about.
func bare(err error) string {
	var e *semel.Error
	if errors.As(err, &e) && e.Message != "" && err == error(e) { //nolint:errorlint // only the outermost names it
		return (&semel.Error{Stage: e.Stage, Hint: e.Hint, Err: e.Err}).Error()
	}
	return err.Error()
}

// Kind names the innermost error that has a type of its own, and its code if it
// has one: "*sqlite.Error 275", "syscall.Errno". It is empty where there are
// only texts.
func Kind(err error) string {
	kind := ""
	for range maxDepth {
		if err == nil {
			break
		}
		if k := kindOf(err); k != "" {
			kind = k
		}
		err = inner(err)
	}
	return kind
}

// maxDepth bounds chains of errors that foreign code made.
const maxDepth = 100

func inner(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // one link of the chain
		if all := many.Unwrap(); len(all) > 0 {
			return all[0]
		}
		return nil
	}
	return errors.Unwrap(err)
}

// kindOf is the type of one link, empty for types that only carry text.
func kindOf(err error) string {
	kind := fmt.Sprintf("%T", err)
	for _, plain := range []string{"*errors.", "*fmt.", "*semel.", "semel."} {
		if strings.HasPrefix(kind, plain) {
			return ""
		}
	}
	switch e := err.(type) { //nolint:errorlint // one link of the chain
	case interface{ SQLState() string }:
		return kind + " " + e.SQLState()
	case interface{ Code() int }:
		return fmt.Sprintf("%s %d", kind, e.Code())
	case interface{ Code() string }:
		return kind + " " + e.Code()
	}
	return kind
}

// maxFrames is how many frames tell one failure from another: below them
// stands what is common to all calls of the handler.
const maxFrames = 3

// Frames returns the functions at the top of a stack as package runtime/debug
// writes it, the innermost first: without files, lines and arguments, and
// without what is not the user's own (the runtime, the standard library, and
// this module's pipeline).
func Frames(stack string) []string {
	var own []string
	for line := range strings.Lines(stack) {
		line = strings.TrimRight(line, "\n")
		name, ok := function(line)
		if !ok || foreign(name) {
			continue
		}
		if own = append(own, name); len(own) == maxFrames {
			break
		}
	}
	return own
}

// function is the name of the function in a line of a stack: its arguments
// stand in the last parentheses.
func function(line string) (string, bool) {
	at := strings.LastIndexByte(line, '(')
	if at <= 0 || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "created by ") {
		return "", false
	}
	return line[:at], true
}

// foreign tells by the first element of the import path: those of modules have
// a dot in it, package main has none, the rest is the standard library.
func foreign(name string) bool {
	if strings.HasPrefix(name, "github.com/semel-dev/semel/consumer.") {
		return true
	}
	first, _, deeper := strings.Cut(name, "/")
	if !deeper { // "main.f", "strings.Index", "panic"
		pkg, _, _ := strings.Cut(first, ".")
		return pkg != "main"
	}
	return !strings.Contains(first, ".")
}
