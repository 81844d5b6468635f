package server

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestEveryActionIsHandled checks that each action with a route has a handler or a method of Cluster Service, and that each handler is that of a declared action.
func TestEveryActionIsHandled(t *testing.T) {
	handlers := (&Server{}).actionHandlers()
	var methods []string
	for _, m := range clusterservicev1.ClusterService_ServiceDesc.Methods {
		methods = append(methods, "/"+clusterservicev1.ClusterService_ServiceDesc.ServiceName+"/"+m.MethodName)
	}
	for _, a := range adminv1.Actions() {
		if a.Path != "" && handlers[a.Name] == nil && (a.RPC == nil || len(adminv1.Wildcards(a.Path)) == 0) {
			t.Errorf("%s cannot be forwarded and has no handler", a.Name)
		}
		if a.RPC != nil && !slices.Contains(methods, a.RPC.Method()) {
			t.Errorf("%s: Cluster Service has no method %s", a.Name, a.RPC.Method())
		}
		delete(handlers, a.Name)
	}
	for name := range handlers {
		t.Errorf("the handler of %s has no declared action", name)
	}
}
