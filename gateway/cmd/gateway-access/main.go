// Command gateway-access forwards the requests of engineers to the API servers of hosted clusters, with an audit.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("gateway-access", flag.ExitOnError)
	options.AddFlags(flags)
	// Libraries of Kubernetes would log the queries of requests that they cannot parse.
	klog.SetLogger(logr.Discard())
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("gateway-access", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}
