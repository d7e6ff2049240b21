//go:build !race

package consumer_test

const mostBytes = 64
