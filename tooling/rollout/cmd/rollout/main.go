// Command rollout deploys a region with the pipelines of its service groups.
package main

import (
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/command"
)

func main() {
	root := command.New()
	root.SetOut(os.Stdout)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rollout: "+err.Error())
		os.Exit(1)
	}
}
