package fault

// Crash is what a hook panics with to stage the death of a process inside a
// test's own process. Nothing recovers it but the test.
type Crash struct{ Point Point }
