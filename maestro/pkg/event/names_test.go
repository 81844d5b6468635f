package event

import (
	"testing"

	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/common"
	workpayload "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/payload"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/types"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// TestNamesAreThoseOfTheSDK compares the names of the wire contract with those of the Open Cluster Management SDK.
func TestNamesAreThoseOfTheSDK(t *testing.T) {
	eventType := func(resource types.EventSubResource, action types.EventAction) string {
		return types.CloudEventsType{CloudEventsDataType: workpayload.ManifestBundleEventDataType, SubResource: resource, Action: action}.String()
	}
	for got, want := range map[string]string{
		maestroapi.DataType:                   workpayload.ManifestBundleEventDataType.String(),
		maestroapi.TypeCreate:                 eventType(types.SubResourceSpec, types.CreateRequestAction),
		maestroapi.TypeUpdate:                 eventType(types.SubResourceSpec, types.UpdateRequestAction),
		maestroapi.TypeDelete:                 eventType(types.SubResourceSpec, types.DeleteRequestAction),
		maestroapi.TypeSpecResync:             eventType(types.SubResourceSpec, types.ResyncRequestAction),
		maestroapi.TypeSpecResyncResponse:     eventType(types.SubResourceSpec, types.ResyncResponseAction),
		maestroapi.TypeStatusUpdate:           eventType(types.SubResourceStatus, types.UpdateRequestAction),
		maestroapi.TypeStatusResync:           eventType(types.SubResourceStatus, types.ResyncRequestAction),
		maestroapi.TypeStatusResyncResponse:   eventType(types.SubResourceStatus, types.ResyncResponseAction),
		maestroapi.TypeHeartbeat:              types.HeartbeatCloudEventsType,
		maestroapi.ExtensionResourceID:        types.ExtensionResourceID,
		maestroapi.ExtensionResourceVersion:   types.ExtensionResourceVersion,
		maestroapi.ExtensionClusterName:       types.ExtensionClusterName,
		maestroapi.ExtensionOriginalSource:    types.ExtensionOriginalSource,
		maestroapi.ExtensionSequenceID:        types.ExtensionStatusUpdateSequenceID,
		maestroapi.ExtensionStatusHash:        types.ExtensionStatusHash,
		maestroapi.ExtensionMetadata:          types.ExtensionWorkMeta,
		maestroapi.ExtensionDeletionTimestamp: types.ExtensionDeletionTimestamp,
		maestroapi.ConditionDeleted:           common.ResourceDeleted,
	} {
		if got != want {
			t.Errorf("%q, the SDK has %q", got, want)
		}
	}
}
