// Package e2e tests the binary from outside: real processes, real files, a
// real database, deaths at every named point.
//
// What is checked is only what is on disk: effects, letters, files. The
// checker is in package rig; it serves semel and the programs in broken, which
// make the well-known mistakes, alike. All tests run with "go test"; they need
// Linux or another Unix.
package e2e
