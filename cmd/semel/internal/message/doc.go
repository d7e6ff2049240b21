// Package message reads messages for pipeline files: it checks that a body is
// JSON that every reader understands alike, and evaluates the pipeline's jq
// expressions over it.
//
// Bodies are hostile. Two keys of one name, a lone surrogate, a number that
// two parsers round differently: each would let two readers see two different
// messages, so each is refused. Nothing of a body ever appears in an error.
//
// Most expressions are plain paths (.order.id). They are answered by one pass
// over the body that checks it and notes where the wanted values stand; a tree
// is only built for expressions that need jq, and for JSON Schema.
package message
