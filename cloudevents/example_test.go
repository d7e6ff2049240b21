package cloudevents_test

import (
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cloudevents"
)

// An event in structured mode becomes a message with the data as its body.
func ExampleDecode() {
	d := semel.Delivery{Message: semel.Message{Body: []byte(`{"specversion":"1.0","id":"4711","source":"/orders","type":"order.paid",
		"subject":"o-17","datacontenttype":"application/json","data":{"cents":1250}}`)}}
	if err := cloudevents.Decode(&d); err != nil {
		fmt.Println(err)
	}
	fmt.Println(d.ID)
	fmt.Println(d.Key)
	fmt.Printf("%s\n", d.Body)
	fmt.Println(cloudevents.Attributes(d.Header)["subject"])
	// Output:
	// /orders 4711
	// /orders o-17
	// {"cents":1250}
	// o-17
}
