// Command trace-store receives the spans of a region with OTLP over HTTP, stores those of recent traces in memory and serves them as
// JSON.
package main

import "github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/server"

func main() { server.Main() }
