// Command configure renders, validates and explains the configuration of deployments. It is the small program for pipelines; engineers
// have the same commands as `hcpctl config`.
package main

import (
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/command"
)

func main() {
	root := command.New("configure")
	root.SetOut(os.Stdout)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "configure: "+err.Error())
		os.Exit(1)
	}
}
