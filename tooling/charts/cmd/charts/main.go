// Command charts prints the values of the charts, and what the charts render, for a region or stamp of the configuration.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/command"
)

func main() {
	if err := command.New().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "charts: "+err.Error())
		os.Exit(1)
	}
}
