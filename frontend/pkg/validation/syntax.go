package validation

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isResourceName reports whether name starts with a letter, ends with a letter or digit, and contains only letters, digits
// and hyphens.
func isResourceName(name string) bool {
	if name == "" || !isLetter(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if !isAlphanumeric(name[i]) && name[i] != '-' {
			return false
		}
	}
	return true
}

// The limits of names, in characters.
const (
	maxClusterName  = 54
	maxNodePoolName = 15
)

// ClusterName returns the violations of a cluster's name, at id.
func ClusterName(name string) []apierror.Violation {
	return resourceName(name, maxClusterName)
}

// NodePoolName returns the violations of the name of a node pool or an external authentication, at id.
func NodePoolName(name string) []apierror.Violation {
	return resourceName(name, maxNodePoolName)
}

func resourceName(name string, most int) []apierror.Violation {
	var found report
	if len(name) > most {
		found.tooLong("id", name, most)
	}
	if !isResourceName(name) {
		found.invalid("id", name, "the name must consist of letters, digits and '-', start with a letter and end with a letter or digit")
	}
	return found.violations()
}

// isNetworkName reports whether name consists of the characters that Azure allows in names of networks and subnets.
func isNetworkName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return name != "" && name[len(name)-1] != '-' && name[len(name)-1] != '.'
}

// isEncryptionSetName reports whether name consists of the characters that Azure allows in names of disk encryption sets.
func isEncryptionSetName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// hasASCII reports whether a text has an ASCII character. HyperShift accepts no resource group without one.
func hasASCII(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < utf8.RuneSelf })
}

// isASCII reports whether a text has no other characters.
func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isManagedGroupName reports whether HyperShift accepts name as a managed resource group: a resource group name of at least
// two characters, all ASCII.
func isManagedGroupName(name string) bool {
	return len(name) > 1 && isASCII(name) && IsResourceGroupName(name)
}

// isDNSLabel reports whether name consists of lower-case letters, digits and hyphens, starts with a letter and does not end
// with a hyphen.
func isDNSLabel(name string) bool {
	return isResourceName(name) && name == strings.ToLower(name)
}

// The messages for a malformed label or taint.
const (
	qualifiedNameMessage = "must consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric " +
		"character, be no more than 63 characters, and may have a DNS subdomain prefix and '/'"
	labelValueMessage = "must be empty or consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric " +
		"character, and be no more than 63 characters"
)

// isQualifiedName reports whether text is a Kubernetes qualified name: [DNS subdomain/]name.
func isQualifiedName(text string) bool {
	prefix, name, found := strings.Cut(text, "/")
	if !found {
		prefix, name = "", text
	}
	if found && !isSubdomain(prefix) {
		return false
	}
	return name != "" && isLabelValue(name)
}

// isLabelValue reports whether text is a Kubernetes label value.
func isLabelValue(text string) bool {
	if text == "" {
		return true
	}
	if len(text) > 63 || !isAlphanumeric(text[0]) || !isAlphanumeric(text[len(text)-1]) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// isSubdomain reports whether text is an RFC 1123 subdomain.
func isSubdomain(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
				return false
			}
		}
	}
	return true
}

// isRepository reports whether text names an image repository without a scheme, tag or digest: host[:port][/path…], in
// lower case.
func isRepository(text string) bool {
	host, path, hasPath := strings.Cut(text, "/")
	name, port, hasPort := strings.Cut(host, ":")
	if !isSubdomain(name) || hasPort && !isPort(port) {
		return false
	}
	if !hasPath {
		return true
	}
	for part := range strings.SplitSeq(path, "/") {
		if !isRepositoryPart(part) {
			return false
		}
	}
	return true
}

// isRepositoryPart reports whether text is a part of the path of an image repository: groups of lower-case letters and digits, between which
// there is '.', '_', "__" or a number of '-'. The ImageDigestMirrorSets of OpenShift accept no others.
func isRepositoryPart(text string) bool {
	if text == "" || !isLowerAlphanumeric(text[0]) || !isLowerAlphanumeric(text[len(text)-1]) {
		return false
	}
	separators := strings.FieldsFunc(text, func(r rune) bool { return r < utf8.RuneSelf && isLowerAlphanumeric(byte(r)) })
	return !slices.ContainsFunc(separators, func(separator string) bool {
		return separator != "." && separator != "_" && separator != "__" && strings.Trim(separator, "-") != ""
	})
}

func isDigest(text string) bool {
	hex, ok := strings.CutPrefix(text, "sha256:")
	if !ok || len(hex) != 64 {
		return false
	}
	for i := range len(hex) {
		if c := hex[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func isLowerAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}

// isPort reports whether text is the number of a port, 1 to 65535.
func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0 && text[0] != '0'
}

// isURI reports whether text contains only characters of a URI (RFC 3986, section 2), and % only before two digits.
func isURI(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case isAlphanumeric(c), strings.IndexByte("-._~:/?#[]@!$&'()*+,;=", c) >= 0:
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
		default:
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// parseCIDR parses an IPv4 CIDR in canonical form. It returns a message if text is something else.
func parseCIDR(text string) (prefix netip.Prefix, message string) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, "must be a valid IPv4 CIDR, as in 10.0.0.0/16"
	case !prefix.Addr().Is4():
		return netip.Prefix{}, "must be an IPv4 CIDR"
	case prefix.Masked() != prefix: // an IPv4 prefix has one text
		return netip.Prefix{}, "must be in canonical form: " + prefix.Masked().String()
	}
	return prefix, ""
}
