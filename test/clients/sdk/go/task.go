package main

import "encoding/json"

// task is what to do, and where.
type task struct {
	ARM string `json:"arm"`
	// Authority is the file of the authority of ARM's certificate.
	Authority string `json:"authority"`
	Client    struct {
		TenantID     string `json:"tenantId"`
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
	} `json:"client"`
	Location      string `json:"location"`
	APIVersion    string `json:"apiVersion"`
	Subscription  string `json:"subscription"`
	ResourceGroup string `json:"resourceGroup"`
	// Clusters are by their names.
	Clusters       map[string]json.RawMessage `json:"clusters"`
	NodePool       json.RawMessage            `json:"nodePool"`
	ExternalAuth   json.RawMessage            `json:"externalAuth"`
	SigningRequest string                     `json:"signingRequest"`
	// Poller is a poller that another process has left, for -resume.
	Poller string `json:"poller,omitempty"`
}
