// Command cosmos-emulator serves the REST protocol of Azure Cosmos DB for NoSQL from a folder.
package main

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/app"
)

func main() {
	flags := flag.NewFlagSet("cosmos-emulator", flag.ExitOnError)
	var shared process.Options
	var options app.Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("cosmos-emulator", shared, options.Run)
}
