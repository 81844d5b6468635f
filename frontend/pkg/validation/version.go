package validation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// version is an OpenShift version; patch is -1 where only MAJOR.MINOR is meant.
type version struct {
	major, minor, patch int
	// before is what makes it a pre-release (Semantic Versioning 2.0.0, section 9), as in 0.nightly-2026-03-02-101500.
	before string
}

// maxVersion bounds the text of a version.
const maxVersion = 128

// parseVersion reads MAJOR.MINOR when parts is 2, and MAJOR.MINOR.PATCH, which may be followed by a pre-release, when it is 3.
func parseVersion(text string, parts int) (version, bool) {
	v := version{patch: -1}
	if len(text) > maxVersion {
		return version{}, false
	}
	if parts == 3 {
		numbers, before, isBefore := strings.Cut(text, "-")
		if isBefore && !isPreRelease(before) {
			return version{}, false
		}
		text, v.before = numbers, before
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

// isPreRelease reports whether text is identifiers with dots between, of which those that are numbers have no leading zeros.
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

// isNumber reports whether an identifier is one.
func isNumber(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
}

// comparePreReleases orders them (section 11); what is none comes after all that are.
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
		switch aIs, bIs := isNumber(a), isNumber(b); {
		case aIs && bIs && len(a) != len(b):
			return len(a) - len(b)
		case aIs && !bIs:
			return -1
		case bIs && !aIs:
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
	if v.before != "" {
		text += "-" + v.before
	}
	return text
}

// compare orders by major, minor, patch and pre-release; a version without a patch is equal to all of its patches.
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
	return comparePreReleases(v.before, other.before)
}

// firstMinorOf5 is where 5.0 stands in the sequence of minors: 4.22 is followed by 5.0, and 4.23 by 5.1.
const firstMinorOf5 = 23

// ordinal counts minors across the change of the major version.
func (v version) ordinal() int {
	if v.major >= 5 {
		return (v.major-5)*1000 + firstMinorOf5 + v.minor
	}
	return v.minor
}

// beforeMajor reports whether next is the release of the next major version to which v goes up: 5.0 from 4.22, 5.1 from 4.23.
func (v version) beforeMajor(next version) bool {
	return v.major == 4 && next.major == 5 && (v.minor == firstMinorOf5-1 || v.minor == firstMinorOf5) && next.ordinal() == v.ordinal()+1
}

// lowestVersion of those that can be read.
func lowestVersion(texts []string) (lowest version, found bool) {
	for _, text := range texts {
		if v, ok := parseVersion(text, 3); ok && (!found || v.compare(lowest) < 0) {
			lowest, found = v, true
		}
	}
	return lowest, found
}
