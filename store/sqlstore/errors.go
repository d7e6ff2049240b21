package sqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/store"
)

// failure is an error of this package that knows its class.
type failure struct {
	class semel.Class
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(c semel.Class, format string, args ...any) error {
	return &failure{class: c, err: fmt.Errorf(format, args...)}
}

// Failf makes an error that Classify sorts as c; for drivers' modules.
func Failf(c semel.Class, format string, args ...any) error { return failf(c, format, args...) }

// ClassOf is the class that Failf gave an error; ok is false for others.
func ClassOf(err error) (c semel.Class, ok bool) {
	var f *failure
	if errors.As(err, &f) {
		return f.class, true
	}
	return c, false
}

// Classify sorts an error of the database. Errors that neither this package
// nor the driver knows are transient.
func (s *Store) Classify(err error) semel.Class {
	var f *failure
	switch {
	case err == nil:
		return semel.ClassTransient
	case errors.Is(err, store.ErrEnded):
		return semel.ClassFault
	case errors.As(err, &f):
		return f.class
	}
	var taken *store.TakenError
	if errors.As(err, &taken) {
		return semel.ClassFault
	}
	if c, ok := s.driver.Classify(err); ok {
		return c
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return semel.ClassInfrastructure
	}
	return semel.ClassTransient
}
