// Command arm-frontdoor emulates Azure Resource Manager for one region, for local regions and tests.
package main

import (
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/app"
)

func main() {
	flags := flag.NewFlagSet("arm-frontdoor", flag.ExitOnError)
	var shared process.Options
	var options app.Options
	shared.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("arm-frontdoor", shared, options.Run)
}
