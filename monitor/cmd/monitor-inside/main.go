// Command monitor-inside probes the hosted API servers of one management cluster from inside it, and reports what it sees.
package main

import "github.com/hcpmesh/hcpmesh/monitor/pkg/inside"

func main() { inside.Main() }
