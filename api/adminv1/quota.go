package adminv1

import "time"

// Quota is the quota of a subscription in the region.
type Quota struct {
	SubscriptionID string `json:"subscriptionId"`
	// Clusters is the number of clusters that the subscription may have; absent if it has the default of the region.
	Clusters *int `json:"clusters,omitempty"`
	// Used is the number of clusters that count, including those that are being deleted.
	Used int `json:"used"`
	// OperationID is the admin operation that has set the quota, and RequestTime when it was requested.
	OperationID string     `json:"operationId,omitempty"`
	RequestTime *time.Time `json:"requestTime,omitempty"`
}

// SetQuotaRequest sets the quota of a subscription. Exactly one field is set. It is also the parameters of ActionQuotaSet.
type SetQuotaRequest struct {
	// Clusters is 0 to 5000. A number below the used one deletes nothing.
	Clusters *int `json:"clusters,omitempty"`
	// UseDefault removes the subscription's own quota.
	UseDefault bool `json:"useDefault,omitempty"`
}
