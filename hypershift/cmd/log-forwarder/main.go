// Command log-forwarder delivers the logs of the hosted control planes of a management cluster to the storage accounts of customers.
// See package logforwarder.
package main

import "github.com/hcpmesh/hcpmesh/hypershift/pkg/logforwarder"

func main() { logforwarder.Main() }
