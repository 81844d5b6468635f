package signature

import (
	"slices"
	"strings"
)

// architectures are the architectures of releases. A release of the architecture multi has images of all of them.
var architectures = []string{"multi", "x86_64", "aarch64", "ppc64le", "s390x"}

// Reference is the pull specification of a release image that a publisher has signed, REPOSITORY:VERSION-ARCHITECTURE. Releases before
// 4.2 have the tag VERSION.
type Reference string

// NewReference returns the reference of a release image of all architectures. The image is a repository, with or without a digest.
func NewReference(image, version string) Reference {
	repository, _, _ := strings.Cut(image, "@")
	return Reference(repository + ":" + version + "-multi")
}

// Names reports whether the reference names a version of OpenShift, for example 4.20.8.
func (r Reference) Names(version string) bool {
	_, image, _ := strings.Cut(string(r), "/") // a registry can have a port
	_, tag, _ := strings.Cut(image, ":")
	rest, found := strings.CutPrefix(tag, version)
	if !found || version == "" {
		return false
	}
	architecture, found := strings.CutPrefix(rest, "-")
	return rest == "" || found && slices.Contains(architectures, architecture)
}
