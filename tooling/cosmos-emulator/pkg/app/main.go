package app

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program cosmos-emulator. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("cosmos-emulator", flag.ExitOnError)
	var shared process.Options
	var options Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("cosmos-emulator", shared, options.Run)
}
