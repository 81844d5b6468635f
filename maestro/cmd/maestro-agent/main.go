// Command maestro-agent is the agent of one management cluster. It applies the works that the Maestro server sends and reports
// their status.
package main

import "github.com/hcpmesh/hcpmesh/maestro/agent"

func main() { agent.Main() }
