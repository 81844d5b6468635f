package hostedreport

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// CredentialAnnotation is the annotation of a HostedCluster with its CredentialReport.
const CredentialAnnotation = "breakglass.hcpmesh.io/uses"

// EngineerPrefix is the beginning of the user names of class sre-break-glass. The rest is the object ID of the engineer.
const EngineerPrefix = "system:sre-break-glass:"

const (
	// maxCredentialUses is the maximum number of credentials in a report. The ones that were used last are kept.
	maxCredentialUses = 64
	// maxUseAddresses is the maximum number of addresses of one credential.
	maxUseAddresses = 8
	// maxUseText is the maximum length of a user name and of a request.
	maxUseText = 128
	// maxEncodedCredentials is the maximum size of an annotation that is decoded.
	maxEncodedCredentials = 64 << 10
)

// CredentialUse describes the uses of one certificate.
type CredentialUse struct {
	// Fingerprint is the SHA-256 of the certificate (DER), in lower-case hex.
	Fingerprint string `json:"fingerprint"`
	// User is the user name that the API server authenticated.
	User string `json:"user"`
	// First is the time of the first use. Last is the time of the latest use, with the precision of Again.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Addresses are the clients' addresses in the order of their first use.
	Addresses []string `json:"addresses,omitempty"`
	// Request is the verb and resource of the first request, as in "list pods".
	Request string `json:"request,omitempty"`
}

// CredentialClass returns the signer class of a break-glass credential's user, and "" for all other users.
func CredentialClass(user string) string {
	for _, class := range []string{"customer-break-glass", "sre-break-glass"} {
		if strings.HasPrefix(user, "system:"+class+":") {
			return class
		}
	}
	return ""
}

// valid reports whether all fields of a use have valid values.
func (u *CredentialUse) valid() bool {
	if len(u.Fingerprint) != 64 || strings.Trim(u.Fingerprint, "0123456789abcdef") != "" {
		return false
	}
	for _, a := range u.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			return false
		}
	}
	return CredentialClass(u.User) != "" && plainText(u.User) && plainText(u.Request) && len(u.Addresses) <= maxUseAddresses &&
		u.First.Year() > 2000 && u.Last.Year() < 3000 && !u.Last.Before(u.First)
}

// plainText reports whether a text is printable ASCII of at most maxUseText bytes.
func plainText(text string) bool {
	return len(text) <= maxUseText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// CredentialReport has the uses of one cluster's break-glass credentials by fingerprint. The reader of the API server's audit log maintains it.
// Cluster Service knows the issued certificates by fingerprint and joins each use with the requester and the reason. Of a request it contains
// only the verb and the resource, and never a name, query, body, header or token.
type CredentialReport map[string]CredentialUse

// Note adds a use to the report. It returns true if the report must be written again: for a new credential, a new address, an
// earlier first use, or after the time Again. Invalid uses are ignored.
func (r CredentialReport) Note(u CredentialUse) (changed bool) {
	u.First, u.Last = u.First.UTC(), u.Last.UTC()
	if !u.valid() {
		return false
	}
	known, found := r[u.Fingerprint]
	if !found {
		u.Addresses = slices.Clone(u.Addresses)
		r[u.Fingerprint] = u
		return true
	}
	if u.First.Before(known.First) {
		known.First, known.Request = u.First, u.Request
		changed = true
	}
	if u.Last.Sub(known.Last) >= Again {
		changed = true
	}
	if u.Last.After(known.Last) {
		known.Last = u.Last
	}
	for _, a := range u.Addresses {
		if len(known.Addresses) < maxUseAddresses && !slices.Contains(known.Addresses, a) {
			known.Addresses = append(slices.Clip(known.Addresses), a)
			changed = true
		}
	}
	r[u.Fingerprint] = known
	return changed
}

// Forget removes uses that are older than Kept, and the oldest ones beyond the maximum number.
func (r CredentialReport) Forget(now time.Time) {
	for i, u := range r.Uses() {
		if i >= maxCredentialUses || now.Sub(u.Last) > Kept {
			delete(r, u.Fingerprint)
		}
	}
}

// Uses returns the uses of a report, latest first.
func (r CredentialReport) Uses() []CredentialUse {
	return latestFirst(r, func(u CredentialUse) time.Time { return u.Last })
}

// Encode returns the annotation's value.
func (r CredentialReport) Encode() (string, error) {
	return encode("the uses of credentials", r.Uses())
}

// DecodeCredentials reads the annotation's value. The value comes from outside, so invalid uses are ignored.
func DecodeCredentials(text string) CredentialReport {
	report := CredentialReport{}
	var uses []CredentialUse
	if !decode(text, maxEncodedCredentials, &uses) {
		return report
	}
	for _, u := range uses[:min(len(uses), maxCredentialUses)] {
		report.Note(u)
	}
	return report
}
