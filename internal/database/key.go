package database

import (
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ResourceKey returns the key of an ARM resource: a cluster, a node pool or an external authentication. The casing of
// resourceID does not matter.
func ResourceKey(resourceID string) (Key, error) {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil {
		return Key{}, fmt.Errorf("parsing the resource ID %q: %w", resourceID, err)
	}
	if id.SubscriptionID == "" || id.ResourceType.String() == arm.SubscriptionResourceType.String() {
		return Key{}, fmt.Errorf("parsing the resource ID %q: it names no resource in a subscription", resourceID)
	}
	return Key{SubscriptionID: strings.ToLower(id.SubscriptionID), ResourceID: resourceID}, nil
}

// OperationKey returns the key of an operation. The subscription and the operation ID identify the document; the
// location only completes the ARM resource ID.
func OperationKey(subscriptionID, location, operationID string) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID: fmt.Sprintf("/subscriptions/%s/providers/%s/locations/%s/hcpOperationStatuses/%s",
			subscriptionID, hub.ProviderNamespace, location, operationID),
	}
}

// SubscriptionKey returns the key of a subscription.
func SubscriptionKey(subscriptionID string) Key {
	return Key{SubscriptionID: strings.ToLower(subscriptionID), ResourceID: "/subscriptions/" + subscriptionID}
}

// ReservationKey returns the key of a reservation. It is the same for every casing of the name.
func ReservationKey(subscriptionID, kind, name string) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID: fmt.Sprintf("/subscriptions/%s/providers/%s/reservations/%s/%s",
			subscriptionID, hub.ProviderNamespace, kind, strings.Trim(name, "/")),
	}
}

// fenceKey returns the key of one of a subscription's fences. The path has the name under which earlier releases stored
// fences.
func fenceKey(subscriptionID string, number int) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID:     fmt.Sprintf("/subscriptions/%s/providers/%s/gates/%d", subscriptionID, hub.ProviderNamespace, number),
	}
}

// lower returns the resource ID in the form that documents store and queries sort by.
func (k Key) lower() string { return hub.Key(k.ResourceID) }

// documentID returns the document ID of a key: the UUIDv5 of the lower-case ARM resource ID. The document ID of an
// operation is the operation ID, so that the location in the key does not matter.
func documentID(kind Kind, key Key) string {
	if kind == OperationKind {
		return key.lower()[strings.LastIndexByte(key.ResourceID, '/')+1:]
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(key.lower())).String()
}
