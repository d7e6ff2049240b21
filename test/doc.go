// Package test is the module of tests that need a whole program, real servers
// or third-party test libraries. Nothing imports it.
package test
