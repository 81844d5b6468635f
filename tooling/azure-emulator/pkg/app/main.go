package app

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program azure-emulator. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("azure-emulator", flag.ExitOnError)
	var shared process.Options
	var options Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("azure-emulator", shared, options.Run)
}
