package hub

import "strings"

// SubscriptionState is how a subscription stands with the resource provider (ARM's subscription life cycle API).
type SubscriptionState string

// The states.
const (
	Registered   SubscriptionState = "Registered"
	Unregistered SubscriptionState = "Unregistered"
	Warned       SubscriptionState = "Warned"
	Suspended    SubscriptionState = "Suspended"
	Deleted      SubscriptionState = "Deleted"
)

// Subscription is what ARM told of a subscription.
type Subscription struct {
	State            SubscriptionState       `json:"state"`
	RegistrationDate string                  `json:"registrationDate"`
	Properties       *SubscriptionProperties `json:"properties,omitempty"`
}

// SubscriptionProperties are what ARM says of a subscription besides. The account's owner, whom ARM names too, is not
// kept: nothing here needs a person's address.
type SubscriptionProperties struct {
	TenantID            string      `json:"tenantId,omitempty"`
	LocationPlacementID string      `json:"locationPlacementId,omitempty"`
	QuotaID             string      `json:"quotaId,omitempty"`
	SpendingLimit       string      `json:"spendingLimit,omitempty"`
	RegisteredFeatures  []Feature   `json:"registeredFeatures,omitempty"`
	ManagedByTenants    []TenantRef `json:"managedByTenants,omitempty"`
	// AvailabilityZones and AdditionalProperties are kept as ARM sent them, which adds to them without another version.
	AvailabilityZones    any            `json:"availabilityZones,omitempty"`
	AdditionalProperties map[string]any `json:"additionalProperties,omitempty"`
}

// TenantRef names a tenant.
type TenantRef struct {
	TenantID string `json:"tenantId"`
}

// Feature is a preview feature of a subscription.
type Feature struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// HasFeature reports whether the named feature is registered. Names of features have no casing in Azure.
func (s Subscription) HasFeature(name string) bool {
	if s.Properties == nil {
		return false
	}
	for _, feature := range s.Properties.RegisteredFeatures {
		if strings.EqualFold(feature.Name, name) && strings.EqualFold(feature.State, "Registered") {
			return true
		}
	}
	return false
}
