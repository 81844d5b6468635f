package refusals

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

func TestCall(t *testing.T) {
	denied := apierror.New(apierror.PermissionDenied, "no")
	for name, c := range map[string]struct {
		refusal mesh.Refusal
		want    audit.Record
	}{
		"Method": {mesh.Refusal{Client: mesh.Backend, Method: "/package.Service/Method", Engineer: "ada"},
			audit.Record{Peer: "backend", Person: audit.Person{Name: "ada"}, Action: "Method"}},
		"Path": {mesh.Refusal{Client: mesh.Admin, Method: "DELETE /bundles/{id}", Object: "/bundles/1"},
			audit.Record{Peer: "admin", Action: "DELETE /bundles/{id}", Object: audit.Object{ID: "/bundles/1"}}},
		"Topic": {mesh.Refusal{Client: mesh.MaestroAgent, Name: "mgmt-1", Method: "publish agentevents", Object: "a/b"},
			audit.Record{Peer: "maestro-agent/mgmt-1", Action: "publish agentevents", Object: audit.Object{ID: "a/b"}}},
		"Connection": {mesh.Refusal{Client: mesh.Frontend, Method: mesh.Connect}, audit.Record{Peer: "frontend", Action: "connect"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			c.refusal.Err, c.want.Outcome, c.want.Code = denied, audit.Refused, "Forbidden"
			New(m).Call(t.Context(), c.refusal)
			if diff := cmp.Diff([]audit.Record{c.want}, m.records); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}
