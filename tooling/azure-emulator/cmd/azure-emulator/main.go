// Command azure-emulator serves the parts of Azure that a region uses, from a folder.
package main

import "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"

func main() { emulator.Main() }
