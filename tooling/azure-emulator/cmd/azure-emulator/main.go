// Command azure-emulator serves the parts of Azure that a region uses, from a folder.
package main

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/app"
)

func main() {
	flags := flag.NewFlagSet("azure-emulator", flag.ExitOnError)
	var shared process.Options
	var options app.Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("azure-emulator", shared, options.Run)
}
