package main

import "encoding/json"

// task is the input of the program.
type task struct {
	ARM string `json:"arm"`
	// Authority is the file of the certificate authority of ARM.
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
	// Clusters maps names to clusters.
	Clusters       map[string]json.RawMessage `json:"clusters"`
	NodePool       json.RawMessage            `json:"nodePool"`
	ExternalAuth   json.RawMessage            `json:"externalAuth"`
	SigningRequest string                     `json:"signingRequest"`
	// Poller is the resume token of another process, for -resume.
	Poller string `json:"poller,omitempty"`
}
