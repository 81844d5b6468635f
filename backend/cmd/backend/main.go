// Command backend brings every accepted operation to a terminal state.
package main

import "github.com/hcpmesh/hcpmesh/backend/pkg/app"

func main() { app.Main() }
