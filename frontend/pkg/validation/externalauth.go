package validation

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

// ExternalAuthChange is a requested change of an external authentication.
type ExternalAuthChange struct {
	New *hub.ExternalAuth
	// Old is the stored external authentication; nil for a new one.
	Old *hub.ExternalAuth
	// Cluster is the cluster of the external authentication, and ClusterIssuer the issuer of its service accounts' tokens; empty before that is
	// known.
	Cluster       *hub.Cluster
	ClusterIssuer string
	Subscription  *hub.Subscription
}

// ExternalAuth returns all violations of a change. All properties of an external authentication can be changed.
func (r *Rules) ExternalAuth(change ExternalAuthChange) []apierror.Violation {
	now := func(report *report) { r.externalAuth(report, change.New, change.ClusterIssuer) }
	if change.Old == nil {
		return validate(now, nil).violations()
	}
	return validate(now, func(report *report) { r.externalAuth(report, change.Old, change.ClusterIssuer) }).violations()
}

// The limits of an external authentication.
const (
	maxIssuerURL = 512
	maxIssuerCA  = 64 << 10
	maxClaimName = 256
	maxNamespace = 63
)

func (r *Rules) externalAuth(report *report, auth *hub.ExternalAuth, clusterIssuer string) {
	p := &auth.Properties
	r.tokenIssuer(report, &p.Issuer)
	if p.Issuer.URL != "" && p.Issuer.URL == clusterIssuer {
		// The API server does not start with an issuer that it is itself.
		report.invalid("properties.issuer.url", p.Issuer.URL, "must not be the issuer of the cluster's service accounts")
	}
	oidcClients(report, p.Clients, p.Issuer.Audiences)
	claims(report, &p.Claim)
}

func (r *Rules) tokenIssuer(report *report, issuer *hub.TokenIssuer) {
	const field = "properties.issuer."
	r.issuerURL(report, field+"url", issuer.URL)
	audiences(report, field+"audiences", issuer.Audiences)
	certificates(report, field+"ca", issuer.CA)
}

func audiences(report *report, field string, audiences []string) {
	switch {
	case audiences == nil:
		report.required(field)
	case len(audiences) == 0:
		report.invalid(field, "[]", "must have at least one item")
	}
	if report.tooMany(field, len(audiences), hub.MaxAudiences) {
		return
	}
	seen := map[string]bool{}
	for i, audience := range audiences {
		item := fmt.Sprintf("%s[%d]", field, i)
		report.within(item, audience, maxShort)
		if audience != "" && seen[audience] {
			report.duplicate(item, audience)
		}
		seen[audience] = true
	}
}

// issuerURL validates the URL of an issuer. The URL must equal the claim `iss` of tokens and is the base of the discovery
// document's URL (OpenID Connect Discovery 1.0, section 4). Control planes connect only to public addresses at port 443. The
// addresses of a name are checked when they connect.
func (r *Rules) issuerURL(report *report, field, text string) {
	if text == "" {
		report.required(field)
		return
	}
	if len(text) > maxIssuerURL {
		report.tooLong(field, text, maxIssuerURL)
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || !u.IsAbs() || u.Hostname() == "" || !isURI(text) || strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()):
		report.invalid(field, text, "must be an absolute URL")
	case !strings.HasPrefix(text, "https://"):
		report.invalid(field, text, "must be an https URL")
	case strings.Contains(text, "@"):
		report.invalid(field, text, "must not contain a user")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		report.invalid(field, text, "must not contain a query or a fragment")
	case r.loopbackIssuers && u.Hostname() == "127.0.0.1":
	case u.Port() != "" && u.Port() != "443":
		report.invalid(field, text, "must have no port but 443")
	case !isPublicHost(strings.ToLower(u.Hostname())):
		report.invalid(field, text, "must have a public address or a DNS name with a domain as its host")
	}
}

// isPublicHost reports whether a host, in lower case, is a public address, or a name that can have one.
func isPublicHost(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return publicaddress.Kind(address) == ""
	}
	name := strings.TrimSuffix(host, ".")
	return strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost") && !strings.Contains(name, ":")
}

// certificates validates a possibly empty list of PEM certificates.
func certificates(report *report, field, text string) {
	if text == "" {
		return
	}
	if len(text) > maxIssuerCA {
		report.tooLong(field, text, maxIssuerCA)
		return
	}
	// The message does not repeat the value, which may be a secret.
	invalid := func(message string) { report.add(field, text, "Invalid value: "+message) }
	count := 0
	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			invalid("must be PEM of type CERTIFICATE")
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			invalid("must be X.509 certificates: " + err.Error())
			return
		}
		rest = []byte(strings.TrimSpace(string(rest)))
	}
	if count == 0 {
		invalid("must be PEM of type CERTIFICATE")
	}
}

// consoleComponent is the only component that can be a confidential client.
var consoleComponent = hub.ExternalAuthComponent{Name: "console", AuthClientNamespace: "openshift-console"}

func oidcClients(report *report, clients []hub.ExternalAuthClient, audiences []string) {
	const field = "properties.clients"
	if report.tooMany(field, len(clients), hub.MaxClients) {
		return
	}
	seen := map[hub.ExternalAuthComponent]bool{}
	for i, client := range clients {
		in := func(name string) string { return fmt.Sprintf("%s[%d].%s", field, i, name) }
		report.within(in("component.name"), client.Component.Name, maxShort)
		report.within(in("component.authClientNamespace"), client.Component.AuthClientNamespace, maxNamespace)
		if seen[client.Component] && client.Component != (hub.ExternalAuthComponent{}) {
			report.duplicate(fmt.Sprintf("%s[%d]", field, i), client.Component.AuthClientNamespace+"/"+client.Component.Name)
		}
		seen[client.Component] = true
		report.within(in("clientId"), client.ClientID, maxShort)
		if client.ClientID != "" && !slices.Contains(audiences, client.ClientID) {
			report.invalid(in("clientId"), client.ClientID, "must be one of the issuer's audiences")
		}
		oidcClientType(report, in("type"), client)
		if report.tooMany(in("extraScopes"), len(client.ExtraScopes), hub.MaxExtraScopes) {
			continue
		}
		for j, scope := range client.ExtraScopes {
			report.within(fmt.Sprintf("%s[%d]", in("extraScopes"), j), scope, maxShort)
			if scope != "" && slices.Contains(client.ExtraScopes[:j], scope) {
				report.duplicate(fmt.Sprintf("%s[%d]", in("extraScopes"), j), scope)
			}
		}
	}
}

func oidcClientType(report *report, field string, client hub.ExternalAuthClient) {
	console := client.Component == consoleComponent
	switch {
	case client.Type == "":
		report.required(field)
		report.unsupported(field, "", "Confidential", "Public")
	case console && client.Type != "Confidential":
		report.invalid(field, client.Type, "must be Confidential for the component console in openshift-console")
	case !console && client.Type == "Confidential":
		report.invalid(field, client.Type, "must be Public for all components but console in openshift-console")
	}
}

func claims(report *report, claim *hub.ExternalAuthClaim) {
	const mappings = "properties.claim.mappings."
	username := &claim.Mappings.Username
	report.within(mappings+"username.claim", username.Claim, maxClaimName)
	switch {
	case username.PrefixPolicy == "Prefix" && username.Prefix == "":
		report.invalid(mappings+"username.prefix", "", "must be given when prefixPolicy is Prefix")
	case username.PrefixPolicy != "Prefix" && username.Prefix != "":
		report.invalid(mappings+"username.prefix", username.Prefix, "must not be given unless prefixPolicy is Prefix")
	}
	report.text(mappings+"username.prefix", username.Prefix, maxShort)
	if groups := claim.Mappings.Groups; groups != nil {
		report.within(mappings+"groups.claim", groups.Claim, maxClaimName)
		report.text(mappings+"groups.prefix", groups.Prefix, maxShort)
	}
	const rules = "properties.claim.validationRules"
	if report.tooMany(rules, len(claim.ValidationRules), hub.MaxValidationRules) {
		return
	}
	seen := make(map[string]bool, len(claim.ValidationRules))
	for i, rule := range claim.ValidationRules {
		field, required := fmt.Sprintf("%s[%d].", rules, i), hub.RequiredClaim{}
		if rule.RequiredClaim != nil {
			required = *rule.RequiredClaim
		}
		if rule.Type == "" {
			report.unsupported(field+"type", "", "RequiredClaim")
		}
		switch given := required != (hub.RequiredClaim{}); {
		case given && rule.Type != "RequiredClaim":
			report.invalid(field+"requiredClaim", required.Claim, "must not be given unless type is RequiredClaim")
		case !given && rule.Type == "RequiredClaim":
			report.invalid(field+"requiredClaim", "", "must be given when type is RequiredClaim")
		}
		report.within(field+"requiredClaim.claim", required.Claim, maxClaimName)
		if required.Claim != "" && seen[required.Claim] {
			report.duplicate(field+"requiredClaim.claim", required.Claim)
		}
		seen[required.Claim] = true
		report.within(field+"requiredClaim.requiredValue", required.RequiredValue, maxShort)
	}
}
