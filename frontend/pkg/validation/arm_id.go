package validation

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// maxIDLength bounds an ID in bytes; ARM's own limit is lower.
const maxIDLength = 2048

// ID is the parsed ID of an Azure resource. Its parts keep their casing.
type ID struct {
	SubscriptionID, ResourceGroup string
	// Type has the form Microsoft.Network/virtualNetworks/subnets.
	Type string
	Name string
	// Parent is the ID without the last type and the name: for a subnet, the ID of its virtual network.
	Parent string
}

// parentOf returns an ID without its last type and name.
func parentOf(id string) string {
	for range 2 {
		id = id[:max(0, strings.LastIndexByte(id, '/'))]
	}
	return id
}

// ParseID parses the ID of a resource in a resource group, such as
// /subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Network/virtualNetworks/{v}/subnets/{n}. It rejects IDs of extension resources.
//
// arm.ParseResourceID of the Azure SDK accepts nearly any text: it skips empty segments, and checks neither names nor characters.
// Customers' IDs are stored and sent to systems behind the service, which parse them with it, so malformed ones must be rejected here.
func ParseID(text string) (ID, error) {
	if len(text) > maxIDLength {
		return ID{}, fmt.Errorf("must be no more than %d characters", maxIDLength)
	}
	if !strings.HasPrefix(text, "/") {
		return ID{}, errors.New("must start with /subscriptions/")
	}
	segments := strings.Split(text[1:], "/")
	for _, segment := range segments {
		if segment == "" || strings.TrimSpace(segment) != segment {
			return ID{}, errors.New("must not contain empty segments")
		}
	}
	if !hasAllowedCharacters(text) {
		return ID{}, fmt.Errorf("must not contain control characters or any of %s", forbiddenCharacters)
	}
	if !isASCII(text) && strings.ContainsFunc(text, asciifold.Ambiguous) {
		return ID{}, errors.New("must not contain letters outside ASCII that are ASCII letters in another case")
	}
	if len(segments) < 8 || len(segments)%2 != 0 || !asciifold.Equal(segments[0], "subscriptions") || !asciifold.Equal(segments[2], "resourceGroups") ||
		!asciifold.Equal(segments[4], "providers") || isExtension(segments) {
		return ID{}, errors.New("must be of the form /subscriptions/{id}/resourceGroups/{name}/providers/{namespace}/{type}/{name}")
	}
	id := ID{SubscriptionID: segments[1], ResourceGroup: segments[3], Type: segments[5], Name: segments[len(segments)-1], Parent: parentOf(text)}
	for i := 6; i < len(segments); i += 2 {
		id.Type += "/" + segments[i]
	}
	if !IsUUID(id.SubscriptionID) {
		return ID{}, errors.New("must name a subscription by its UUID")
	}
	if !IsResourceGroupName(id.ResourceGroup) {
		return ID{}, errors.New("must name a valid resource group")
	}
	return id, nil
}

// isExtension reports whether an ID has a second provider: then its resource extends another one.
func isExtension(segments []string) bool {
	for i := 6; i < len(segments); i += 2 {
		if asciifold.Equal(segments[i], "providers") {
			return true
		}
	}
	return false
}

// forbiddenCharacters do not occur in names of Azure resources.
const forbiddenCharacters = `<>%&\?#`

func hasAllowedCharacters(text string) bool {
	return !strings.ContainsAny(text, forbiddenCharacters) && !strings.ContainsFunc(text, func(c rune) bool {
		return unicode.IsControl(c) || c == utf8.RuneError
	})
}

// IsUUID reports whether text is a UUID in its usual form, in any casing.
func IsUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}

// IsResourceGroupName reports whether name complies with ARM's rule: 1 to 90 letters, digits, and _ - . ( ), not ending
// with a period. ARM allows letters outside ASCII too. Ambiguous ones are rejected: the store finds resources by the lower case of
// their IDs, so a group with such a letter would have the resources of another group.
func IsResourceGroupName(name string) bool {
	if name == "" || len(name) > 90 || name[len(name)-1] == '.' {
		return false
	}
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '.', c == '(', c == ')':
		case c >= 0x80 && c != utf8.RuneError && !asciifold.Ambiguous(c) && (unicode.IsLetter(c) || unicode.IsDigit(c)):
		default:
			return false
		}
	}
	return true
}
