package telemetry_test

import (
	"fmt"

	"go.opentelemetry.io/otel"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/consumer"
	"github.com/semel-dev/semel/observe"
	"github.com/semel-dev/semel/telemetry"
)

// Providers are set up by the program; here they are the global ones.
func Example() {
	mon := observe.NewMonitor(observe.Config{Pipeline: "orders"})
	tel, err := telemetry.New(telemetry.Config{
		Pipeline: "orders", System: "kafka", Destination: "orders",
		Tracer: otel.GetTracerProvider(), Meter: otel.GetMeterProvider(), Monitor: mon,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tel.Close()
	cfg := consumer.Config{Name: "orders", Observer: semel.Join(mon.Observer(), tel.Observer())}
	fmt.Println(cfg.Observer.Open != nil, cfg.Observer.Handle != nil)
	// Output: true false
}
