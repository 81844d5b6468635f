package database

import "time"

// ComponentAbsencesDocument holds which components of the region are away, as the replicas of admin observed them. There is one. It is
// written only when a component goes away or returns.
type ComponentAbsencesDocument struct {
	// Away holds an entry for each component that is away, by name.
	Away map[string]ComponentAbsence `json:"away"`
}

// ComponentAbsence is since when a component is away. LastReady is when it was last observed as ready; zero if that is unknown.
type ComponentAbsence struct {
	Since     time.Time `json:"since"`
	LastReady time.Time `json:"lastReady,omitzero"`
}

// ComponentAbsencesKey returns the key of the document.
func ComponentAbsencesKey() Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/componentAbsences"}
}
