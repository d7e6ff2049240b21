// Package outside does what handle.http and handle.exec of a pipeline file
// state: a request, or a program, for each message, under the guard of package
// effect. It sorts what comes back into happened, did not happen, and unknown;
// in doubt it is unknown.
package outside
