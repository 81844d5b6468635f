package customererror

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

func TestFaultOf(t *testing.T) {
	waiting := func(layers ...hub.Progress) *database.OperationError {
		return DeadlineExceeded(time.Hour, &clusterservice.Report{Cluster: &hub.ClusterStatus{Progress: layers}})
	}
	several := func(codes ...string) *database.OperationError {
		failure := &database.OperationError{Code: codeMultipleErrors}
		for _, code := range codes {
			failure.Details = append(failure.Details, database.OperationError{Code: code})
		}
		return failure
	}
	for name, c := range map[string]struct {
		failure *database.OperationError
		want    Fault
	}{
		"success":                         {nil, FaultNone},
		"a deletion ended the operation":  {Canceled("The cluster was deleted."), FaultCustomer},
		"a change during the deletion":    {Deleting(), FaultCustomer},
		"a rejected property":             {FromRejection(violation("spec.version.id", "Unsupported value: 1")), FaultCustomer},
		"a rejected internal field":       {FromRejection(violation("spec.shard", "Invalid value: 1")), FaultService},
		"a missing secret":                {AwaitingSecret(time.Hour, nil), FaultCustomer},
		"a lost control plane":            {ControlPlaneLost(&clusterservice.Report{}), FaultService},
		"a failure without a condition":   {FromReport(&clusterservice.Report{}), FaultService},
		"a deadline without a report":     {DeadlineExceeded(time.Hour, nil), FaultService},
		"a deadline while Azure failed":   {waiting(hub.Progress{Layer: "placement", State: "Placed"}, hub.Progress{Layer: "azure", State: "RetryingNetwork"}), FaultAzure},
		"a deadline without a shard":      {waiting(hub.Progress{Layer: "placement", State: "WaitingForCapacity"}, hub.Progress{Layer: "azure", State: "Retrying"}), FaultService},
		"a deadline of the control plane": {waiting(hub.Progress{Layer: "azure", State: "Ready"}, hub.Progress{Layer: "control-plane", State: "Waiting"}), FaultService},
		"two errors of the customer":      {several(CodeIdentityNotFound, CodeIdentityNotFound), FaultCustomer},
		"one of two errors of the region": {several(CodeRevocationFailed, CodeIdentityNotFound), FaultService},
	} {
		t.Run(name, func(t *testing.T) {
			if got := FaultOf(c.failure); got != c.want {
				t.Errorf("the fault of %+v is %s, want %s", c.failure, got, c.want)
			}
		})
	}
}
