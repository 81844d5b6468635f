// Command eventgrid-emulator is an MQTT 5 broker with the rules of Azure Event Grid's, for local regions and tests.
package main

import "github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"

func main() { broker.Main() }
