package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
)

func TestLoad(t *testing.T) {
	cases := map[string]struct {
		reason, content, want string
	}{
		"good":     {reason: "an offer", content: "vmSizes: [Standard_D8s_v3]\nclusterVersions: ['4.20']\n"},
		"unknown":  {reason: "an unknown field is named", content: "vmSizes: [a]\nvmSize: b\n", want: "vmSize"},
		"no sizes": {reason: "without sizes there are no node pools", content: "clusterVersions: []\n", want: "vmSizes"},
		"two":      {reason: "one document", content: "vmSizes: [a]\n---\nvmSizes: [b]\n", want: "more than one"},
		"not YAML": {reason: "YAML", content: "{", want: "yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(path)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := config.Load(""); err != nil {
		t.Errorf("the built-in configuration: %v", err)
	}
}
