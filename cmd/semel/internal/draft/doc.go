// Package draft writes pipeline files: with comments that say why, and SQL
// that works as it is. Names of fields are hostile input: whatever they are, the
// file is one that the reader of pipeline files takes.
package draft
