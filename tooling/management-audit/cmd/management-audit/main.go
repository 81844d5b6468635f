// Command management-audit copies the audit events of a management cluster's API server to the audit chain of the region.
package main

import "github.com/hcpmesh/hcpmesh/tooling/management-audit/pkg/app"

func main() { app.Main() }
