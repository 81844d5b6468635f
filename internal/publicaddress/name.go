package publicaddress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxNameLength is the length of the longest name in its canonical form, in bytes.
const MaxNameLength = 253

// CanonicalName returns a name in lower case, without the trailing dot of an absolute name, and with internationalized labels in ASCII form
// (IDNA 2008). A name has at least two labels of letters, digits and hyphens, and no wildcard. Addresses are refused in all forms that a
// resolver accepts, for example "127.1" and "0x7f.1". An error does not contain the name, which may have any content.
func CanonicalName(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case len(name) > 4*MaxNameLength: // before any work; a name in Unicode can be longer than its ASCII form
		return "", fmt.Errorf("the name has more than %d bytes", MaxNameLength)
	case !utf8.ValidString(name):
		return "", errors.New("the name is not UTF-8")
	}
	if address := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"); isAddress(address) {
		return "", errors.New("the name is an address")
	}
	// Bidirectional text, joiners and disallowed characters are errors of the profile; hyphens in the third and fourth place are not.
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true), idna.CheckJoiners(true), idna.ValidateLabels(true), idna.CheckHyphens(false))
	ascii, err := profile.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil {
		return "", errors.New("the name is not a DNS name of letters, digits and hyphens")
	}
	ascii = strings.ToLower(ascii)
	labels := strings.Split(ascii, ".")
	for _, label := range labels {
		if label == "" {
			return "", errors.New("a label of the name is empty")
		}
		if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return "", errors.New("a label of the name begins or ends with a hyphen")
		}
	}
	switch last := labels[len(labels)-1]; {
	case len(ascii) > MaxNameLength:
		return "", fmt.Errorf("the name has more than %d bytes", MaxNameLength)
	case len(labels) < 2:
		return "", errors.New("the name has one label only")
	case isNumber(last):
		return "", errors.New("the name is an address")
	}
	return ascii, nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// isNumber reports whether the last label of a name makes resolvers treat the name as an IPv4 address. No top-level domain begins with a digit.
func isNumber(label string) bool { return label != "" && label[0] >= '0' && label[0] <= '9' }
