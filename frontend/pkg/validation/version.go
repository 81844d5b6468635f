package validation

import (
	"fmt"
	"strconv"
	"strings"
)

// version is an OpenShift version; patch is -1 where only MAJOR.MINOR is meant.
type version struct {
	major, minor, patch int
	suffix              string
}

// parseVersion reads MAJOR.MINOR when parts is 2, and MAJOR.MINOR.PATCH with an optional -suffix when it is 3.
func parseVersion(text string, parts int) (version, bool) {
	v := version{patch: -1}
	if parts == 3 {
		text, v.suffix, _ = strings.Cut(text, "-")
		for i := range len(v.suffix) {
			if c := v.suffix[i]; !isAlphanumeric(c) && c != '.' && c != '-' {
				return version{}, false
			}
		}
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

func (v version) String() string {
	text := fmt.Sprintf("%d.%d", v.major, v.minor)
	if v.patch >= 0 {
		text += "." + strconv.Itoa(v.patch)
	}
	return text
}

// compare orders by major, minor and patch; a version without a patch is equal to all of its patches.
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
	return v.patch - other.patch
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
