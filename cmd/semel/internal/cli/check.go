package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"

	"github.com/semel-dev/semel/cmd/semel/internal/adapters"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
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
	err := errors.Join(sourceErr, storeErr, unfit)
	c.OK = err == nil
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
	state := func(err error) string {
		if err != nil {
			return "NOT usable"
		}
		return "usable"
	}
	t := table(a.out)
	fmt.Fprintf(t, "file\tvalid\t%s\n", printable(f.Path))
	fmt.Fprintf(t, "source\t%s\t%s\n", state(sourceErr), printable(c.Source))
	fmt.Fprintf(t, "store\t%s\t%s\n", state(storeErr), printable(c.Store))
	fmt.Fprintf(t, "messages\t%s\t%s\n", first(f.Files, "whole"), printable(f.Rules.Describe()))
	if storeErr == nil {
		fmt.Fprintf(t, "handler\tusable\t%s\n", counted(int64(len(f.Handler.Steps)), "statement"))
		fmt.Fprintf(t, "together\t%s\tinbox %s, kept %s\n", state(unfit), f.Inbox, span(f.KeepOrDefault()))
	}
	t.Flush()
	for _, n := range c.Notes {
		fmt.Fprintln(a.out, "note:", printable(n))
	}
}
