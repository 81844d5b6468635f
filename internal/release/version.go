package release

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// Version is MAJOR.MINOR.PATCH.
type Version struct{ Major, Minor, Patch int }

var versionPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})$`)

// ParseVersion reads MAJOR.MINOR.PATCH.
func ParseVersion(s string) (Version, error) {
	parts := versionPattern.FindStringSubmatch(s)
	if parts == nil {
		return Version{}, fmt.Errorf("%q is not MAJOR.MINOR.PATCH", s)
	}
	var v Version
	v.Major, _ = strconv.Atoi(parts[1])
	v.Minor, _ = strconv.Atoi(parts[2])
	v.Patch, _ = strconv.Atoi(parts[3])
	return v, nil
}

// ParseMinor reads MAJOR.MINOR as the first version of that minor.
func ParseMinor(s string) (Version, error) {
	v, err := ParseVersion(s + ".0")
	if err != nil {
		return Version{}, fmt.Errorf("%q is not MAJOR.MINOR", s)
	}
	return v, nil
}

// Compare returns -1, 0 or 1 if v is older than, equal to or newer than o.
func (v Version) Compare(o Version) int {
	return slices.Compare([]int{v.Major, v.Minor, v.Patch}, []int{o.Major, o.Minor, o.Patch})
}

// MinorID returns MAJOR.MINOR.
func (v Version) MinorID() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// String returns MAJOR.MINOR.PATCH.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// firstMinorOf5 is the ordinal of 5.0: 4.22 is followed by 5.0, and 4.23 by 5.1.
const firstMinorOf5 = 23

// Ordinal numbers minor versions across the change of the major version, so that the difference of two ordinals is the distance
// in minor versions.
func (v Version) Ordinal() int {
	if v.Major >= 5 {
		return (v.Major-5)*1000 + firstMinorOf5 + v.Minor
	}
	return v.Minor
}

// SameMinor reports whether both versions have the same minor version, so that an update between them is a z-stream update.
func (v Version) SameMinor(o Version) bool { return v.Major == o.Major && v.Minor == o.Minor }

// ReportsControlPlaneVersion reports whether a HostedCluster of this version sets status.controlPlaneVersion. HyperShift does so
// since 4.22, with backports to 4.20.15 and 4.21.1.
func (v Version) ReportsControlPlaneVersion() bool {
	switch {
	case v.Major != 4:
		return v.Major > 4
	case v.Minor == 20:
		return v.Patch >= 15
	case v.Minor == 21:
		return v.Patch >= 1
	}
	return v.Minor >= 22
}
