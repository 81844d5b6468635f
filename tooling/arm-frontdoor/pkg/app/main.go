package app

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program arm-frontdoor. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("arm-frontdoor", flag.ExitOnError)
	var shared process.Options
	var options Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("arm-frontdoor", shared, options.Run)
}
