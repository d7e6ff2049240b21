package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/sqlstep"
)

// checked is the result of run --check.
type checked struct {
	File   string   `json:"file"`
	Name   string   `json:"name"`
	Source string   `json:"source"`
	Store  string   `json:"store"`
	Notes  []string `json:"notes"`
	OK     bool     `json:"ok"`
}

// check has read the file already; what is left is the world around it.
func (a *app) check(f *config.File) error {
	ctx := context.Background()
	c := checked{File: f.Path, Name: f.Name, Source: f.Source.String(), Store: f.Store.String(), Notes: []string{}}
	notes, sourceErr := adapters.Look(f).Check(ctx)
	c.Notes = append(c.Notes, notes...)
	notes, unfit, storeErr := adapters.Check(ctx, f, consumerConfig(f, nil, semel.Observer{}))
	c.Notes = append(c.Notes, notes...)
	if f.Index != nil {
		c.Notes = append(c.Notes, f.Index.Notes(ctx)...)
	}
	if f.Outside != nil {
		unfit = errors.Join(unfit, f.Outside.Target.Check())
	}
	err := errors.Join(sourceErr, storeErr, unfit)
	c.OK = err == nil
	err = remedied(f, "", err)
	if a.json {
		if jsonErr := writeJSON(a.out, c); jsonErr != nil {
			return exit(exitFault, jsonErr)
		}
	} else {
		a.printCheck(f, c, sourceErr, storeErr, unfit)
	}
	if err != nil {
		return exit(startCode(nil, err), err)
	}
	return nil
}

func (a *app) printCheck(f *config.File, c checked, sourceErr, storeErr, unfit error) {
	state := func(ok bool) string {
		if !ok {
			return "NOT usable"
		}
		return "usable"
	}
	var handlerErr *sqlstep.FailedError
	if errors.As(storeErr, &handlerErr) {
		storeErr = nil // it was there to be asked
	}
	t := table(a.out)
	fmt.Fprintf(t, "file\tvalid\t%s\n", printable(f.Path))
	fmt.Fprintf(t, "source\t%s\t%s\n", state(sourceErr == nil), printable(c.Source))
	fmt.Fprintf(t, "store\t%s\t%s\n", state(storeErr == nil), printable(c.Store))
	fmt.Fprintf(t, "messages\t%s\t%s\n", first(f.Files, "whole"), printable(f.Rules.Describe()))
	if handlerErr != nil || storeErr == nil {
		fmt.Fprintf(t, "handler\t%s\t%s\n", state(handlerErr == nil), does(f))
	}
	if storeErr == nil {
		fmt.Fprintf(t, "together\t%s\tinbox %s, kept %s\n", state(unfit == nil), f.Inbox, span(f.KeepOrDefault()))
	}
	t.Flush()
	for _, n := range c.Notes {
		fmt.Fprintln(a.out, "note:", printable(n))
	}
}

// does says what the pipeline does with a message.
func does(f *config.File) string {
	statements := counted(int64(len(f.Handler.Steps)), "statement")
	switch {
	case f.Outside == nil && f.Index == nil:
		return statements
	case len(f.Handler.Steps) == 0:
		return printable(outsideOf(f))
	}
	return printable(outsideOf(f)) + ", then " + statements
}

// outsideOf is the effect outside of the database.
func outsideOf(f *config.File) string {
	if f.Index != nil {
		return f.Index.String()
	}
	return f.Outside.Target.String()
}
