// Command cosmos-emulator serves the REST protocol of Azure Cosmos DB for NoSQL from a folder.
package main

import "github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"

func main() { emulator.Main() }
