// Package armid reads and makes Azure Resource Manager ids: the path-like names of everything in Azure, as in
// /subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Network/virtualNetworks/{v}/subnets/{n}.
//
// Ids are compared without regard to case and shown in the casing of whoever wrote them.
package armid

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ID is a parsed id of a resource in a resource group.
type ID struct {
	SubscriptionID string
	ResourceGroup  string
	// Type is namespace/type[/type…] as written.
	Type string
	// Names are those of the resource and its parents, outermost first.
	Names []string
}

// maxLength bounds an id; ARM's own limit is lower.
const maxLength = 2048

// Parse reads an id.
func Parse(text string) (ID, error) {
	if len(text) > maxLength {
		return ID{}, fmt.Errorf("must be no more than %d characters", maxLength)
	}
	if !strings.HasPrefix(text, "/") {
		return ID{}, fmt.Errorf("must start with /subscriptions/")
	}
	parts := strings.Split(text[1:], "/")
	for _, part := range parts {
		if part == "" || strings.TrimSpace(part) != part {
			return ID{}, fmt.Errorf("must not contain empty segments")
		}
	}
	if !allowed(text) {
		return ID{}, fmt.Errorf("must not contain control characters or any of %s", forbiddenCharacters)
	}
	if len(parts) < 8 || !strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourceGroups") ||
		!strings.EqualFold(parts[4], "providers") || len(parts)%2 != 0 {
		return ID{}, fmt.Errorf("must be of the form /subscriptions/{id}/resourceGroups/{name}/providers/{namespace}/{type}/{name}")
	}
	if !IsUUID(parts[1]) {
		return ID{}, fmt.Errorf("must name a subscription by its UUID")
	}
	if !IsResourceGroupName(parts[3]) {
		return ID{}, fmt.Errorf("must name a valid resource group")
	}
	id := ID{SubscriptionID: parts[1], ResourceGroup: parts[3], Names: make([]string, 0, (len(parts)-6)/2)}
	var kind strings.Builder
	kind.Grow(len(text))
	kind.WriteString(parts[5])
	for i := 6; i < len(parts); i += 2 {
		kind.WriteByte('/')
		kind.WriteString(parts[i])
		id.Names = append(id.Names, parts[i+1])
	}
	id.Type = kind.String()
	return id, nil
}

// forbiddenCharacters stand in no name that Azure gives.
const forbiddenCharacters = `<>%&\?#`

func allowed(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < 0x20, c == 0x7f, c == '<', c == '>', c == '%', c == '&', c == '\\', c == '?', c == '#':
			return false
		case c >= utf8.RuneSelf:
			return !strings.ContainsFunc(text, func(c rune) bool {
				return unicode.IsControl(c) || c == utf8.RuneError || strings.ContainsRune(forbiddenCharacters, c)
			})
		}
	}
	return true
}

// Subscription is the subscription that an id of any kind names; empty when it names none.
func Subscription(text string) string {
	const prefix = "/subscriptions/"
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return ""
	}
	subscription, _, _ := strings.Cut(text[len(prefix):], "/")
	return subscription
}

// Parent is the key of the id that text is within, and text's key itself when it has none: in lower case.
func Parent(text string) string {
	text = strings.ToLower(text)
	for range 2 {
		if i := strings.LastIndexByte(text, '/'); i > 0 {
			text = text[:i]
		}
	}
	return text
}

// IsUUID reports whether text is a UUID in its usual form, of any casing.
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

// IsResourceGroupName reports whether name follows ARM's rule: 1 to 90 letters, digits, and _ - . ( ), no period last.
// Letters outside ASCII, which ARM allows too, count.
func IsResourceGroupName(name string) bool {
	if name == "" || len(name) > 90 || name[len(name)-1] == '.' {
		return false
	}
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '.', c == '(', c == ')':
		case c >= 0x80 && c != utf8.RuneError && (unicode.IsLetter(c) || unicode.IsDigit(c)):
		default:
			return false
		}
	}
	return true
}
