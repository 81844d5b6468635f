package database

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ResourceKey is the key of an ARM resource (a cluster, a node pool, an external auth) by its ARM id in any casing.
func ResourceKey(resourceID string) (Key, error) {
	parts := strings.SplitN(strings.TrimPrefix(resourceID, "/"), "/", 3)
	if len(parts) < 3 || !strings.EqualFold(parts[0], "subscriptions") || parts[1] == "" || !strings.HasPrefix(resourceID, "/") {
		return Key{}, fmt.Errorf("%q is not the ARM id of a resource in a subscription", resourceID)
	}
	return Key{SubscriptionID: strings.ToLower(parts[1]), ResourceID: resourceID}, nil
}

// OperationKey is the key of an operation. Its document is found by the subscription and operation id alone; the
// location only completes the ARM id.
func OperationKey(subscriptionID, location, operationID string) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID: fmt.Sprintf("/subscriptions/%s/providers/%s/locations/%s/hcpOperationStatuses/%s",
			subscriptionID, hub.ProviderNamespace, location, operationID),
	}
}

// SubscriptionKey is the key of a subscription.
func SubscriptionKey(subscriptionID string) Key {
	return Key{SubscriptionID: strings.ToLower(subscriptionID), ResourceID: "/subscriptions/" + subscriptionID}
}

// ReservationKey is the key of a reservation: the same for every casing of the same name.
func ReservationKey(subscriptionID, kind, name string) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID: fmt.Sprintf("/subscriptions/%s/providers/%s/reservations/%s/%s",
			subscriptionID, hub.ProviderNamespace, kind, strings.Trim(name, "/")),
	}
}

// fenceKey is the key of one of a subscription's gates.
func fenceKey(subscriptionID string, number int) Key {
	return Key{
		SubscriptionID: strings.ToLower(subscriptionID),
		ResourceID:     fmt.Sprintf("/subscriptions/%s/providers/%s/gates/%d", subscriptionID, hub.ProviderNamespace, number),
	}
}

// lower is the key in the form that documents keep and are ordered by.
func (k Key) lower() string { return hub.Key(k.ResourceID) }

// documentID is the UUIDv5 of the lower-case ARM id. An operation's is its own id, so that it is found whatever location
// the caller wrote.
func documentID(kind Kind, key Key) string {
	if kind == OperationKind {
		return key.lower()[strings.LastIndexByte(key.ResourceID, '/')+1:]
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(key.lower())).String()
}
