package hub

// ExternalAuth is the ARM resource hcpOpenShiftClusters/externalAuths: an OpenID Connect provider. The cluster's Kubernetes
// API accepts its tokens. It is a proxy resource: its location, tags and identity are empty.
type ExternalAuth struct {
	Resource
	Properties ExternalAuthProperties `json:"properties"`
}

// ExternalAuthProperties holds the properties of an external authentication that the customer sets.
type ExternalAuthProperties struct {
	Issuer  TokenIssuer          `json:"issuer"`
	Clients []ExternalAuthClient `json:"clients,omitempty"`
	Claim   ExternalAuthClaim    `json:"claim"`
}

// TokenIssuer is the issuer of the tokens.
type TokenIssuer struct {
	// URL is an https URL and equals the claim `iss` of the tokens.
	URL string `json:"url,omitempty"`
	// Audiences has 1 to 10 entries; a token must name one of them.
	Audiences []string `json:"audiences,omitempty"`
	// CA is the PEM of the issuer's certificate authorities; empty means those of the system.
	CA string `json:"ca,omitempty"`
}

// ExternalAuthClient is a client that authenticates users with the issuer.
type ExternalAuthClient struct {
	Component   ExternalAuthComponent `json:"component"`
	ClientID    string                `json:"clientId,omitempty"`
	ExtraScopes []string              `json:"extraScopes,omitempty"`
	// Type is Confidential, for a client with a secret, or Public.
	Type string `json:"type,omitempty"`
}

// ExternalAuthComponent names a component of OpenShift, such as console in the namespace openshift-console.
type ExternalAuthComponent struct {
	Name                string `json:"name,omitempty"`
	AuthClientNamespace string `json:"authClientNamespace,omitempty"`
}

// ExternalAuthClaim configures how the cluster uses a token's claims.
type ExternalAuthClaim struct {
	Mappings        TokenClaimMappings         `json:"mappings"`
	ValidationRules []TokenClaimValidationRule `json:"validationRules,omitempty"`
}

// TokenClaimMappings names the claims that contain the user and the groups.
type TokenClaimMappings struct {
	Username UsernameClaim `json:"username"`
	// Groups is nil if tokens contain no groups.
	Groups *GroupClaim `json:"groups,omitempty"`
}

// UsernameClaim is the claim with the user's name.
type UsernameClaim struct {
	Claim string `json:"claim,omitempty"`
	// Prefix precedes the user's name if PrefixPolicy is Prefix.
	Prefix string `json:"prefix,omitempty"`
	// PrefixPolicy is None, Prefix or NoPrefix. It is empty, like None, in resources of releases without the default.
	PrefixPolicy string `json:"prefixPolicy,omitempty"`
}

// GroupClaim is the claim with the user's groups.
type GroupClaim struct {
	Claim  string `json:"claim,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// TokenClaimValidationRule is a condition that a token must meet.
type TokenClaimValidationRule struct {
	// Type is RequiredClaim.
	Type          string         `json:"type,omitempty"`
	RequiredClaim *RequiredClaim `json:"requiredClaim,omitempty"`
}

// RequiredClaim is a claim that must have the given value.
type RequiredClaim struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
}

// ExternalAuthStatus holds the values that the service reports for an external authentication.
type ExternalAuthStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Progress   []Progress  `json:"progress,omitempty"`
}
