// Package filebroker is the directory queue: files that others put into
// inbox/ are messages, or hold one message a line.
//
// A claim is an atomic rename into the worker's own directory below
// processing/; what is decided moves to done/, what is dead at intake to error/
// with a sidecar that names its letter. Several processes may work on one
// root. What a dead one held is taken over at once, what a silent one held
// after a lease. Files are never rewritten, and no move replaces one.
//
// With whole files the source has no positions and no owner: repeats are found
// by id (inbox.Table). With lines every file is an exclusive scope with stable
// positions, so inbox.Position works as well.
//
// DESIGN.md has the protocol, what happens after a crash at any point, and
// what was rejected.
package filebroker
