package access

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// Condition lists the claims that a token must have. The zero value requires none.
type Condition struct {
	// AuthenticationMethods are values that the claim amr must contain, for example mfa.
	AuthenticationMethods []string `yaml:"authenticationMethods"`
	// AuthenticationContext is the authentication context of Conditional Access that the claim acrs must contain, for example c1.
	AuthenticationContext string `yaml:"authenticationContext"`
	// Device requires the claim deviceid: the person signed in on a device that Entra knows. Whether the device is compliant is
	// decided by the Conditional Access policy of the authentication context.
	Device bool `yaml:"device"`
}

// entraAuthorizationURI is the default of Config.AuthorizationURI.
const entraAuthorizationURI = "https://login.microsoftonline.com/organizations/oauth2/v2.0/authorize"

// checkConditions returns an error that names the first invalid field.
func (c *Config) checkConditions() error {
	for role, condition := range c.Conditions {
		switch {
		case role == adminv1.Reader || !Known(role):
			return fmt.Errorf("conditions.%s: only roles to which one elevates have conditions: %v", role, roles[1:])
		case slices.Contains(condition.AuthenticationMethods, ""):
			return fmt.Errorf("conditions.%s.authenticationMethods: empty value", role)
		}
	}
	if u, err := url.Parse(cmp.Or(c.AuthorizationURI, entraAuthorizationURI)); err != nil || u.Scheme != "https" || u.Host == "" || strings.ContainsAny(c.AuthorizationURI, "\"\\") {
		return fmt.Errorf("authorizationURI: %q is not an https URL", c.AuthorizationURI)
	}
	return nil
}

// CheckClaims returns an error unless the token of a caller has the claims that a role requires. The chain of the error contains the
// challenge with which the caller's client requests a token that has them.
func (c *Config) CheckClaims(caller authn.Caller, role adminv1.Role) error {
	missing := c.Conditions[role].missing(caller)
	if len(missing) == 0 {
		return nil
	}
	var names []string
	for _, claim := range missing {
		names = append(names, claim.String())
	}
	return authn.InsufficientClaims(fmt.Sprintf("The role %s requires a token with the claims %s. Sign in again as your organization requires for this role, then repeat the request.",
		role, strings.Join(names, ", ")), cmp.Or(c.AuthorizationURI, entraAuthorizationURI), missing)
}

// missing returns the claims that a caller lacks.
func (c Condition) missing(caller authn.Caller) []authn.MissingClaim {
	var missing []authn.MissingClaim
	if c.AuthenticationContext != "" && !slices.Contains(caller.AuthenticationContexts, c.AuthenticationContext) {
		missing = append(missing, authn.MissingClaim{Name: authn.ClaimAuthenticationContexts, Value: c.AuthenticationContext})
	}
	for _, method := range c.AuthenticationMethods {
		if !slices.Contains(caller.AuthenticationMethods, method) {
			missing = append(missing, authn.MissingClaim{Name: authn.ClaimAuthenticationMethods, Value: method})
		}
	}
	if c.Device && caller.DeviceID == "" {
		missing = append(missing, authn.MissingClaim{Name: authn.ClaimDevice})
	}
	return missing
}

// Refusal returns the error for a caller whose groups and app roles do not give a role. It names the claim that may be the cause.
func (c *Config) Refusal(caller authn.Caller, role adminv1.Role) error {
	switch {
	case len(c.Groups) > 0 && caller.GroupsOverage:
		return apierror.New(apierror.PermissionDenied, "This requires the role %s. Your token does not contain your groups, because you are in too many (groups overage, claim _claim_names). "+
			"Use a token with app roles (claim roles), or with only the groups that are assigned to the application.", role)
	case len(caller.Groups)+len(caller.Roles) == 0:
		return apierror.New(apierror.PermissionDenied, "This requires the role %s. Your token has neither the claim groups nor the claim roles.", role)
	}
	return apierror.New(apierror.PermissionDenied, "This requires the role %s, which none of your groups gives.", role)
}

// Claims returns the claims that the configuration reads, besides those that identify the caller. A sidecar must return them.
func (c *Config) Claims() []string {
	claims := []string{"preferred_username", "unique_name"}
	if len(c.Groups) > 0 {
		claims = append(claims, authn.ClaimGroups, "_claim_names")
	}
	if len(c.AppRoles) > 0 {
		claims = append(claims, authn.ClaimRoles)
	}
	for _, condition := range c.Conditions {
		if len(condition.AuthenticationMethods) > 0 {
			claims = append(claims, authn.ClaimAuthenticationMethods)
		}
		if condition.AuthenticationContext != "" {
			claims = append(claims, authn.ClaimAuthenticationContexts)
		}
		if condition.Device {
			claims = append(claims, authn.ClaimDevice)
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims)
}
