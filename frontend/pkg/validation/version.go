package validation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// version is an OpenShift version. patch is -1 for a version of the form MAJOR.MINOR.
type version struct {
	major, minor, patch int
	// preRelease is the pre-release (Semantic Versioning 2.0.0, section 9), for example 0.nightly-2026-03-02-101500.
	preRelease string
}

// maxVersion is the longest text of a version.
const maxVersion = 128

// parseVersion parses MAJOR.MINOR if parts is 2, and MAJOR.MINOR.PATCH with an optional pre-release if parts is 3.
func parseVersion(text string, parts int) (version, bool) {
	v := version{patch: -1}
	if len(text) > maxVersion {
		return version{}, false
	}
	if parts == 3 {
		numbers, preRelease, found := strings.Cut(text, "-")
		if found && !isPreRelease(preRelease) {
			return version{}, false
		}
		text, v.preRelease = numbers, preRelease
	}
	numbers := strings.Split(text, ".")
	if len(numbers) != parts {
		return version{}, false
	}
	into := []*int{&v.major, &v.minor, &v.patch}
	for i, number := range numbers {
		n, err := strconv.Atoi(number)
		if err != nil || strconv.Itoa(n) != number || n < 0 || n > 9999 {
			return version{}, false
		}
		*into[i] = n
	}
	return v, true
}

// parseRelease parses a version with a patch, an optional pre-release and an optional build (section 10), which does not
// count in comparisons.
func parseRelease(text string) (version, bool) {
	text, build, found := strings.Cut(text, "+")
	if found && !isBuild(build) {
		return version{}, false
	}
	return parseVersion(text, 3)
}

// parseClusterVersion parses MAJOR.MINOR or a full version.
func parseClusterVersion(text string) (version, bool) {
	if v, ok := parseVersion(text, 2); ok {
		return v, true
	}
	return parseRelease(text)
}

// isBuild reports whether text is a list of identifiers separated by dots.
func isBuild(text string) bool {
	if len(text) > maxVersion {
		return false
	}
	for identifier := range strings.SplitSeq(text, ".") {
		if identifier == "" || strings.ContainsFunc(identifier, func(c rune) bool { return c > 0x7f || !isAlphanumeric(byte(c)) && c != '-' }) {
			return false
		}
	}
	return true
}

// isPreRelease reports whether text is a list of identifiers separated by dots. Numeric ones must not have leading zeros.
func isPreRelease(text string) bool {
	for identifier := range strings.SplitSeq(text, ".") {
		if identifier == "" || isNumber(identifier) && len(identifier) > 1 && identifier[0] == '0' {
			return false
		}
		for i := range len(identifier) {
			if c := identifier[i]; !isAlphanumeric(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

// isNumber reports whether an identifier is numeric.
func isNumber(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
}

// comparePreReleases compares pre-releases (section 11). The empty one, of a release, is the greatest.
func comparePreReleases(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		switch aNumeric, bNumeric := isNumber(a), isNumber(b); {
		case aNumeric && bNumeric && len(a) != len(b):
			return len(a) - len(b)
		case aNumeric && !bNumeric:
			return -1
		case bNumeric && !aNumeric:
			return 1
		}
		return strings.Compare(a, b)
	})
}

func (v version) String() string {
	text := fmt.Sprintf("%d.%d", v.major, v.minor)
	if v.patch >= 0 {
		text += "." + strconv.Itoa(v.patch)
	}
	if v.preRelease != "" {
		text += "-" + v.preRelease
	}
	return text
}

// line returns the version without its patch.
func (v version) line() version { return version{major: v.major, minor: v.minor, patch: -1} }

// first returns the first release of the version's MAJOR.MINOR.
func (v version) first() version { return version{major: v.major, minor: v.minor} }

// compare compares by major, minor, patch and pre-release. A version without a patch equals all of its patches.
func (v version) compare(other version) int {
	if v.major != other.major {
		return v.major - other.major
	}
	if v.minor != other.minor {
		return v.minor - other.minor
	}
	if v.patch < 0 || other.patch < 0 {
		return 0
	}
	if v.patch != other.patch {
		return v.patch - other.patch
	}
	return comparePreReleases(v.preRelease, other.preRelease)
}

// firstMinorOf5 is the ordinal of 5.0: 5.0 follows 4.22, and 5.1 follows 4.23.
const firstMinorOf5 = 23

// ordinal returns the position in the sequence of minor versions, across major versions.
func (v version) ordinal() int {
	if v.major >= 5 {
		return (v.major-5)*1000 + firstMinorOf5 + v.minor
	}
	return v.minor
}

// beforeMajor reports whether v can be upgraded to next, of the next major version: 4.22 to 5.0, 4.23 to 5.1.
func (v version) beforeMajor(next version) bool {
	return v.major == 4 && next.major == 5 && (v.minor == firstMinorOf5-1 || v.minor == firstMinorOf5) && next.ordinal() == v.ordinal()+1
}

// lowestVersion returns the lowest of the valid versions.
func lowestVersion(texts []string) (lowest version, found bool) {
	lowest, _, found = versionRange(texts)
	return lowest, found
}

// versionRange returns the lowest and the highest of the valid versions.
func versionRange(texts []string) (lowest, highest version, found bool) {
	for _, text := range texts {
		v, ok := parseVersion(text, 3)
		if !ok {
			continue
		}
		if !found || v.compare(lowest) < 0 {
			lowest = v
		}
		if !found || v.compare(highest) > 0 {
			highest = v
		}
		found = true
	}
	return lowest, highest, found
}
