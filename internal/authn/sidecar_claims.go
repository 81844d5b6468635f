package authn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// callerOf returns the caller that the headers of a sidecar's response describe. A claim that was not requested, or that the token
// lacks, is empty.
func callerOf(headers http.Header) (Caller, error) {
	claim := func(name string) string { return headers.Get(claimHeader + name) }
	caller := Caller{TenantID: claim("tid"), AppID: claim("appid"), ObjectID: claim("oid"),
		Name: cmp.Or(claim("preferred_username"), claim("unique_name")), DeviceID: claim(ClaimDevice)}
	for name, list := range map[string]*[]string{ClaimGroups: &caller.Groups, ClaimRoles: &caller.Roles,
		ClaimAuthenticationMethods: &caller.AuthenticationMethods, ClaimAuthenticationContexts: &caller.AuthenticationContexts} {
		values, err := claimValues(headers.Values(claimHeader + name))
		if err != nil {
			return Caller{}, unavailable(fmt.Errorf("the sidecar returned the claim %s in an unknown form", name))
		}
		*list = values
	}
	// The claim names other claims; its form does not matter.
	caller.GroupsOverage = len(caller.Groups) == 0 && strings.Contains(claim("_claim_names"), `"`+ClaimGroups+`"`)
	return caller, nil
}

// claimHeader is the prefix of the headers of a sidecar's response.
const claimHeader = "Subject-Token-Claim-"

// claimValues returns the values of a claim that is a list: a header for each value, or one header with a JSON array.
func claimValues(headers []string) ([]string, error) {
	if len(headers) == 1 && strings.HasPrefix(headers[0], "[") {
		var values []string
		err := json.Unmarshal([]byte(headers[0]), &values)
		return values, err
	}
	return headers, nil
}
