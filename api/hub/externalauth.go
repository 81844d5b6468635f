package hub

// ExternalAuth is the ARM resource hcpOpenShiftClusters/externalAuths: an OpenID Connect provider whose tokens a cluster's
// Kubernetes API accepts. It is a proxy resource: its location, tags and identity stay empty.
type ExternalAuth struct {
	Resource
	Properties ExternalAuthProperties `json:"properties"`
}

// ExternalAuthProperties is what the customer can say of an external auth.
type ExternalAuthProperties struct {
	Issuer  TokenIssuer          `json:"issuer"`
	Clients []ExternalAuthClient `json:"clients,omitempty"`
	Claim   ExternalAuthClaim    `json:"claim"`
}

// TokenIssuer is who makes the tokens.
type TokenIssuer struct {
	// URL is an https URL, the tokens' claim `iss`.
	URL string `json:"url,omitempty"`
	// Audiences are 1 to 10; a token must be for one of them.
	Audiences []string `json:"audiences,omitempty"`
	// CA is PEM; the system's own when empty.
	CA string `json:"ca,omitempty"`
}

// ExternalAuthClient is a program that signs users in with the issuer.
type ExternalAuthClient struct {
	Component   ExternalAuthComponent `json:"component"`
	ClientID    string                `json:"clientId,omitempty"`
	ExtraScopes []string              `json:"extraScopes,omitempty"`
	// Type is Confidential (it keeps a secret) or Public.
	Type string `json:"type,omitempty"`
}

// ExternalAuthComponent names a component of the platform, such as console in openshift-console.
type ExternalAuthComponent struct {
	Name                string `json:"name,omitempty"`
	AuthClientNamespace string `json:"authClientNamespace,omitempty"`
}

// ExternalAuthClaim says what a token's claims mean to the cluster.
type ExternalAuthClaim struct {
	Mappings        TokenClaimMappings         `json:"mappings"`
	ValidationRules []TokenClaimValidationRule `json:"validationRules,omitempty"`
}

// TokenClaimMappings says which claims name the user and the groups.
type TokenClaimMappings struct {
	Username UsernameClaim `json:"username"`
	// Groups is nil when tokens name no groups.
	Groups *GroupClaim `json:"groups,omitempty"`
}

// UsernameClaim is the claim with the user's name.
type UsernameClaim struct {
	Claim string `json:"claim,omitempty"`
	// Prefix is put before the name when PrefixPolicy is Prefix.
	Prefix string `json:"prefix,omitempty"`
	// PrefixPolicy is None, Prefix, NoPrefix, or empty when the customer said nothing.
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

// RequiredClaim is a claim that must have one value.
type RequiredClaim struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
}

// ExternalAuthStatus is what the service reports of an external auth.
type ExternalAuthStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Progress   []Progress  `json:"progress,omitempty"`
}
