package intenttest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// EgressLink returns a link with the signed intent of alice for its ID, its cluster and its hosts. She requested it at the link's RequestTime, or now. The link gets a
// new operation unless it has one.
func (a *Admin) EgressLink(t testing.TB, l database.EgressLinkDocument) database.EgressLinkDocument {
	t.Helper()
	if l.OperationID == "" {
		l.OperationID = uuid.NewString()
	}
	if l.RequestTime.IsZero() {
		l.RequestTime = time.Now().UTC()
	}
	parameters, err := json.Marshal(adminv1.EgressLinkParameters{LinkID: l.LinkID, Hosts: append([]string{}, l.Hosts...)})
	if err != nil {
		t.Fatal(err)
	}
	o := database.AdminOperationDocument{OperationID: l.OperationID, Action: adminv1.ActionEgressLinkSet, Parameters: parameters, StartTime: l.RequestTime,
		Target: database.AdminTarget{Kind: "cluster", ID: l.ClusterUID, ClusterUID: l.ClusterUID, ResourceID: l.ResourceID},
		Actor:  database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: string(adminv1.Operator), Reason: "nodes pull images", Ticket: "INC-1"}}
	elevation := Elevation(&o, 2*time.Hour)
	o.Actor.ElevationID = elevation.ElevationID
	i, err := adminaction.NewIntent(&o, []string{o.Actor.Role}, &elevation, l.RequestTime)
	if err != nil {
		t.Fatal(err)
	}
	if l.Intent, err = a.Signer.Sign(i); err != nil {
		t.Fatal(err)
	}
	return l
}
