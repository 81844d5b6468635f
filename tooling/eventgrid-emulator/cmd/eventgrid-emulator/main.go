// Command eventgrid-emulator is an MQTT 5 broker with the rules of Azure Event Grid's, for local regions and tests.
package main

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/app"
)

func main() {
	flags := flag.NewFlagSet("eventgrid-emulator", flag.ExitOnError)
	var shared process.Options
	var options app.Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("eventgrid-emulator", shared, options.Run)
}
