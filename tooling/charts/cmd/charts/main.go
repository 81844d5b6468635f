// Command charts prints the values of the charts, and what the charts render, for a region or stamp of the configuration. It checks rendered
// objects against the rules of a deployment: images by digest, restricted pods, requests, probes, graceful ends, disruption budgets and
// default-deny networks. A chart that breaks one is not installed.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := newCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "charts: "+err.Error())
		os.Exit(1)
	}
}
