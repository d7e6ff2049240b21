// Package archtest holds the rules that keep the repository in shape, as plain
// tests. They need nothing but the go command.
//
//   - table_test.go: which package may import which. A new package needs a
//     line there. The depguard section of .golangci.yml is written from the
//     same table.
//   - modules_test.go: the core module requires nothing, every module belongs
//     to the workspace.
//   - source_test.go: no init, no mutable package variables, bounds on the
//     length of files and functions and on the width of interfaces, a comment
//     on every exported name.
//
// Every rule is also run against a small example that breaks it.
package archtest
