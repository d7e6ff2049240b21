// Package cloudevents reads CloudEvents 1.0 for pipelines: structured mode
// (a JSON envelope) and binary mode (the attributes in headers, the data as
// body), of whatever protocol the message came with.
//
//	consumer.Config{Decoder: broker.DecoderFunc(cloudevents.Decode), …}
//
// An event that is not one by the letter of the specification is refused as
// [semel.Invalid], which makes it a dead letter: a reader that guesses what was
// meant takes two events for one, sooner or later. So are JSON texts that two
// readers may understand differently: keys that are there twice, and halves of
// surrogate pairs. No error quotes the event.
package cloudevents
