package validation

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// maxIDLength bounds an ID in bytes; ARM's own limit is lower.
const maxIDLength = 2048

// ParseID parses the ID of a resource in a resource group, such as
// /subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Network/virtualNetworks/{v}/subnets/{n}. It rejects IDs of extension resources.
//
// It is a thin layer over arm.ParseResourceID, which splits IDs but accepts nearly any text: it skips empty segments, and
// checks neither names nor characters. Customers' IDs are stored and sent to systems behind the service, so malformed ones
// must be rejected here.
func ParseID(text string) (*arm.ResourceID, error) {
	if len(text) > maxIDLength {
		return nil, fmt.Errorf("must be no more than %d characters", maxIDLength)
	}
	if !strings.HasPrefix(text, "/") {
		return nil, errors.New("must start with /subscriptions/")
	}
	segments := strings.Split(text[1:], "/")
	for _, segment := range segments {
		if segment == "" || strings.TrimSpace(segment) != segment {
			return nil, errors.New("must not contain empty segments")
		}
	}
	if !hasAllowedCharacters(text) {
		return nil, fmt.Errorf("must not contain control characters or any of %s", forbiddenCharacters)
	}
	if strings.ContainsFunc(text, asciifold.Ambiguous) {
		return nil, errors.New("must not contain letters outside ASCII that are ASCII letters in another case")
	}
	id, err := arm.ParseResourceID(text)
	if err != nil || len(segments) < 8 || len(segments)%2 != 0 || id.ResourceGroupName == "" || !asciifold.Equal(segments[4], "providers") || isExtension(segments) {
		return nil, errors.New("must be of the form /subscriptions/{id}/resourceGroups/{name}/providers/{namespace}/{type}/{name}")
	}
	if !IsUUID(id.SubscriptionID) {
		return nil, errors.New("must name a subscription by its UUID")
	}
	if !IsResourceGroupName(id.ResourceGroupName) {
		return nil, errors.New("must name a valid resource group")
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
