package v20260901preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// ExternalAuth is the resource hcpOpenShiftClusters/externalAuths.
type ExternalAuth struct {
	ID         string                  `json:"id,omitempty"`
	Name       string                  `json:"name,omitempty"`
	Type       string                  `json:"type,omitempty"`
	SystemData *SystemData             `json:"systemData,omitempty"`
	Properties *ExternalAuthProperties `json:"properties,omitempty"`
}

// ExternalAuthProperties are the properties of an external auth.
type ExternalAuthProperties struct {
	ProvisioningState string               `json:"provisioningState,omitempty"`
	Status            *Status              `json:"status,omitempty"`
	Issuer            *TokenIssuer         `json:"issuer,omitempty"`
	Clients           []ExternalAuthClient `json:"clients,omitempty"`
	Claim             *ExternalAuthClaim   `json:"claim,omitempty"`
}

// TokenIssuer is who makes the tokens.
type TokenIssuer struct {
	URL       string   `json:"url,omitempty"`
	Audiences []string `json:"audiences,omitempty"`
	CA        string   `json:"ca,omitempty"`
}

// ExternalAuthClient is a program that signs users in.
type ExternalAuthClient struct {
	Component   *ExternalAuthComponent `json:"component,omitempty"`
	ClientID    string                 `json:"clientId,omitempty"`
	ExtraScopes []string               `json:"extraScopes,omitempty"`
	Type        string                 `json:"type,omitempty"`
}

// ExternalAuthComponent names a component of the platform.
type ExternalAuthComponent struct {
	Name                string `json:"name,omitempty"`
	AuthClientNamespace string `json:"authClientNamespace,omitempty"`
}

// ExternalAuthClaim says what a token's claims mean.
type ExternalAuthClaim struct {
	Mappings        *TokenClaimMappings        `json:"mappings,omitempty"`
	ValidationRules []TokenClaimValidationRule `json:"validationRules,omitempty"`
}

// TokenClaimMappings says which claims name the user and the groups.
type TokenClaimMappings struct {
	Username *UsernameClaim `json:"username,omitempty"`
	Groups   *GroupClaim    `json:"groups,omitempty"`
}

// UsernameClaim is the claim with the user's name.
type UsernameClaim struct {
	Claim        string `json:"claim,omitempty"`
	Prefix       string `json:"prefix,omitempty"`
	PrefixPolicy string `json:"prefixPolicy,omitempty"`
}

// GroupClaim is the claim with the user's groups.
type GroupClaim struct {
	Claim  string `json:"claim,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// TokenClaimValidationRule is a condition that a token must meet.
type TokenClaimValidationRule struct {
	Type          string         `json:"type,omitempty"`
	RequiredClaim *RequiredClaim `json:"requiredClaim,omitempty"`
}

// RequiredClaim is a claim that must have one value.
type RequiredClaim struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
}

// EncodeExternalAuth shows an external auth as this version has it.
func EncodeExternalAuth(auth *hub.ExternalAuth, state hub.ProvisioningState, status *hub.ExternalAuthStatus) *ExternalAuth {
	p := &auth.Properties
	encoded := &ExternalAuthProperties{ProvisioningState: string(state), Status: encodeStatus(status.Conditions)}
	if p.Issuer.URL != "" || p.Issuer.Audiences != nil || p.Issuer.CA != "" {
		encoded.Issuer = &TokenIssuer{URL: p.Issuer.URL, Audiences: p.Issuer.Audiences, CA: p.Issuer.CA}
	}
	for _, client := range p.Clients {
		encoded.Clients = append(encoded.Clients, ExternalAuthClient{
			Component: orNil(ExternalAuthComponent(client.Component)), ClientID: client.ClientID,
			ExtraScopes: client.ExtraScopes, Type: client.Type,
		})
	}
	mappings := TokenClaimMappings{Username: orNil(UsernameClaim(p.Claim.Mappings.Username))}
	if groups := p.Claim.Mappings.Groups; groups != nil {
		mappings.Groups = &GroupClaim{Claim: groups.Claim, Prefix: groups.Prefix}
	}
	claim := ExternalAuthClaim{Mappings: orNil(mappings)}
	for _, rule := range p.Claim.ValidationRules {
		shown := TokenClaimValidationRule{Type: rule.Type}
		if rule.RequiredClaim != nil {
			shown.RequiredClaim = &RequiredClaim{Claim: rule.RequiredClaim.Claim, RequiredValue: rule.RequiredClaim.RequiredValue}
		}
		claim.ValidationRules = append(claim.ValidationRules, shown)
	}
	if claim.Mappings != nil || claim.ValidationRules != nil {
		encoded.Claim = &claim
	}
	return &ExternalAuth{
		ID: auth.ID, Name: auth.Name, Type: auth.Type, SystemData: encodeSystemData(auth.SystemData), Properties: encoded,
	}
}

// DecodeExternalAuth reads a body over base, as DecodeCluster does.
func DecodeExternalAuth(body *wire.Body, base *hub.ExternalAuth, defaults Defaults) *hub.ExternalAuth {
	auth := &hub.ExternalAuth{Resource: base.Resource}
	properties := body.Child("properties")
	p := &auth.Properties

	issuer := properties.Child("issuer")
	p.Issuer = hub.TokenIssuer{URL: issuer.String("url", ""), Audiences: issuer.Strings("audiences"), CA: issuer.String("ca", "")}
	for _, o := range properties.Children("clients") {
		component := o.Child("component")
		p.Clients = append(p.Clients, hub.ExternalAuthClient{
			Component: hub.ExternalAuthComponent{
				Name: component.String("name", ""), AuthClientNamespace: component.String("authClientNamespace", ""),
			},
			ClientID:    o.String("clientId", ""),
			ExtraScopes: o.Strings("extraScopes"),
			Type:        o.Enum("type", "", "Confidential", "Public"),
		})
	}
	claim := properties.Child("claim")
	mappings := claim.Child("mappings")
	username := mappings.Child("username")
	p.Claim.Mappings.Username = hub.UsernameClaim{
		Claim: username.String("claim", ""), Prefix: username.String("prefix", ""),
		PrefixPolicy: username.Enum("prefixPolicy", "", "None", "Prefix", "NoPrefix"),
	}
	if groups := mappings.Child("groups"); groups != nil {
		p.Claim.Mappings.Groups = &hub.GroupClaim{Claim: groups.String("claim", ""), Prefix: groups.String("prefix", "")}
	}
	for _, o := range claim.Children("validationRules") {
		rule := hub.TokenClaimValidationRule{Type: o.Enum("type", defaults.text("RequiredClaim"), "RequiredClaim")}
		if required := o.Child("requiredClaim"); required != nil {
			rule.RequiredClaim = &hub.RequiredClaim{Claim: required.String("claim", ""), RequiredValue: required.String("requiredValue", "")}
		}
		p.Claim.ValidationRules = append(p.Claim.ValidationRules, rule)
	}
	return auth
}
