//go:build !linux

package main

import "errors"

// confine: only Linux has a rename that refuses to replace.
func confine(_ bool, nospace uint32) error {
	if nospace > 0 {
		return errors.New("cannot take room away on this system")
	}
	return nil
}
