// Package search tests what is written to a search server, on a real one.
package search
