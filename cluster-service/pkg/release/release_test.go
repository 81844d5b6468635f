package release

import (
	"strings"
	"testing"
)

func TestNewest(t *testing.T) {
	catalog, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason, minor, group, want string
	}{
		"Newest patch":     {"the newest of the minor version", "4.20", "stable", "4.20.16"},
		"Only that minor":  {"a channel also carries the minor before, which is not what was asked for", "4.21", "fast", "4.21.4"},
		"Unknown minor":    {"nothing to choose", "4.99", "stable", ""},
		"Unknown group":    {"nothing to choose", "4.20", "nightly", ""},
		"Not a minor only": {"a full version is not a minor one", "4.20.8", "stable", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			found, ok := catalog.Newest(tc.minor, tc.group)
			got := ""
			if ok {
				got = found.Version.String()
			}
			if got != tc.want {
				t.Errorf("%q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestReportsControlPlaneVersion(t *testing.T) {
	for version, want := range map[string]bool{"4.19.20": false, "4.20.8": false, "4.20.15": true, "4.21.0": false, "4.21.1": true, "4.22.0": true, "5.0.0": true} {
		v, err := ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if v.ReportsControlPlaneVersion() != want {
			t.Errorf("%s reports: %v, want %v", version, !want, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const digest = "sha256:a65e099f04964491ac8b98692b2bc5c4599b0b534ffc042d020f3f90153fccf2"
	tests := map[string]struct{ reason, text, want string }{
		"Unknown field": {"a typing mistake is named", "repository: r\nreleases: [{version: 4.20.8, digset: x}]", "digset"},
		"Version":       {"not a version", "repository: r\nreleases: [{version: '4.20', digest: '" + digest + "'}]", "releases[0].version"},
		"Digest":        {"not a digest", "repository: r\nreleases: [{version: 4.20.8, digest: latest}]", "releases[0].digest"},
		"Twice":         {"which one would be meant", "repository: r\nreleases: [{version: 4.20.8, digest: '" + digest + "'}, {version: 4.20.8, digest: '" + digest + "'}]", "releases[1]"},
		"Empty":         {"nothing could be chosen", "repository: r", "releases"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want it to name %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(defaultCatalog)
	f.Fuzz(func(t *testing.T, text []byte) {
		if catalog, err := Parse(text); err == nil && len(catalog.releases) == 0 {
			t.Error("an empty catalogue was accepted")
		}
	})
}
