package signature

import (
	"errors"
	"testing"
)

func TestReferenceNames(t *testing.T) {
	for reference, versions := range map[Reference]map[string]bool{
		NewReference("quay.io/openshift-release-dev/ocp-release", "4.20.8"): {"4.20.8": true, "4.20.80": false, "4.20": false, "0.8": false, "": false},
		"quay.io/openshift-release-dev/ocp-release:4.20.8-x86_64":           {"4.20.8": true},
		"quay.io/openshift-release-dev/ocp-release:4.1.0":                   {"4.1.0": true},
		"mirror.example:5000/ocp-release:4.20.8-s390x":                      {"4.20.8": true, "5000": false},
		"quay.io/openshift-release-dev/ocp-release:4.20.0-rc.1-x86_64":      {"4.20.0": false, "4.20.0-rc.1": true},
		"quay.io/openshift-release-dev/ocp-release:4.20.8-":                 {"4.20.8": false},
		"mirror.example:5000/ocp-release":                                   {"5000": false, "": false},
		"4.20.8":                                                            {"4.20.8": false},
	} {
		for version, want := range versions {
			if got := reference.Names(version); got != want {
				t.Errorf("%s names %q: %v, want %v", reference, version, got, want)
			}
		}
	}
}

// TestVerifyVersion: the publisher has signed a digest, and its messages name other versions, some of them, or the version.
func TestVerifyVersion(t *testing.T) {
	publisher, dir := newKey(t, KeyOptions{Name: "publisher"}), t.TempDir()
	if err := publisher.SignInto(dir, digestA, reference); err != nil {
		t.Fatal(err)
	}
	v := verifierOf(t, rootOf(t, publisher), "file://"+dir, nil, at(begin))
	for range 2 { // with and without a cached message
		var refused *Error
		if err := v.VerifyVersion(t.Context(), digestA, "4.20.9"); !errors.As(err, &refused) || refused.Unavailable {
			t.Fatalf("another version: got %v, want a refusal", err)
		}
		if err := v.VerifyVersion(t.Context(), digestA, "4.20.8"); err != nil {
			t.Fatalf("the version that is signed: %v", err)
		}
	}
	// The refusal of a version does not remove the message of another one.
	if err := v.VerifyVersion(t.Context(), digestA, "4.20.9"); err == nil {
		t.Fatal("another version is accepted")
	}
	if len(v.Messages()) != 1 {
		t.Errorf("%d messages are cached, want 1", len(v.Messages()))
	}
	// A key that has signed another reference signs the new one.
	if err := publisher.SignInto(dir, digestA, NewReference("quay.io/openshift-release-dev/ocp-release", "4.20.9")); err != nil {
		t.Fatal(err)
	}
	if err := v.VerifyVersion(t.Context(), digestA, "4.20.9"); err != nil {
		t.Error(err)
	}
}
