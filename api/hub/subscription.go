package hub

import "strings"

// SubscriptionState is the state of a subscription, which ARM sets with its subscription lifecycle API.
type SubscriptionState string

// The subscription states.
const (
	Registered   SubscriptionState = "Registered"
	Unregistered SubscriptionState = "Unregistered"
	Warned       SubscriptionState = "Warned"
	Suspended    SubscriptionState = "Suspended"
	Deleted      SubscriptionState = "Deleted"
)

// Subscription is ARM's document about a subscription.
type Subscription struct {
	State            SubscriptionState       `json:"state"`
	RegistrationDate string                  `json:"registrationDate"`
	Properties       *SubscriptionProperties `json:"properties,omitempty"`
}

// SubscriptionProperties holds the further properties of a subscription. The account's owner, which ARM also sends, is
// not stored: no service needs the address of a person.
type SubscriptionProperties struct {
	TenantID            string      `json:"tenantId,omitempty"`
	LocationPlacementID string      `json:"locationPlacementId,omitempty"`
	QuotaID             string      `json:"quotaId,omitempty"`
	SpendingLimit       string      `json:"spendingLimit,omitempty"`
	RegisteredFeatures  []Feature   `json:"registeredFeatures,omitempty"`
	ManagedByTenants    []TenantRef `json:"managedByTenants,omitempty"`
	// AvailabilityZones and AdditionalProperties are stored as ARM sent them, because ARM adds fields without a new version.
	AvailabilityZones    any            `json:"availabilityZones,omitempty"`
	AdditionalProperties map[string]any `json:"additionalProperties,omitempty"`
}

// TenantRef refers to a tenant.
type TenantRef struct {
	TenantID string `json:"tenantId"`
}

// Feature is a preview feature of a subscription.
type Feature struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// HasFeature reports whether the named feature is registered. The name is compared without case, the state exactly.
func (s Subscription) HasFeature(name string) bool {
	if s.Properties == nil {
		return false
	}
	for _, feature := range s.Properties.RegisteredFeatures {
		if strings.EqualFold(feature.Name, name) && feature.State == "Registered" {
			return true
		}
	}
	return false
}
