package release

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func defaults(t testing.TB) *Catalog {
	t.Helper()
	catalog, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

func version(t testing.TB, s string) Version {
	t.Helper()
	v, err := ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLookup(t *testing.T) {
	const digest = "@sha256:a65e099f04964491ac8b98692b2bc5c4599b0b534ffc042d020f3f90153fccf2"
	cases := map[string]struct{ reason, image, want string }{
		"Digest":        {"the published digest", "quay.io/openshift-release-dev/ocp-release" + digest, "4.20.8"},
		"Mirror":        {"a mirror keeps the digest", "registry.example:5000/mirror/ocp-release" + digest, "4.20.8"},
		"DigestAndTag":  {"the digest decides", "quay.io/openshift-release-dev/ocp-release:4.22.0" + digest, "4.20.8"},
		"Tag":           {"a tag that is a version", "quay.io/openshift-release-dev/ocp-release:4.21.1", "4.21.1"},
		"TagWithArch":   {"a tag with an architecture", "quay.io/openshift-release-dev/ocp-release:4.21.1-multi", "4.21.1"},
		"UnknownTag":    {"no such version", "quay.io/openshift-release-dev/ocp-release:4.1.0", ""},
		"UnknownDigest": {"no such digest", "quay.io/openshift-release-dev/ocp-release@sha256:" + strings.Repeat("0", 64), ""},
		"NoTag":         {"neither a digest nor a tag", "quay.io/openshift-release-dev/ocp-release", ""},
		"Empty":         {"an empty image", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := defaults(t).Lookup(c.image)
			if c.want == "" {
				if !errors.Is(err, ErrUnknownImage) {
					t.Errorf("%s: %v, %v", c.reason, got, err)
				}
				return
			}
			if err != nil || got.Version.String() != c.want {
				t.Errorf("%s: %v, %v", c.reason, got, err)
			}
		})
	}
}

func TestNewest(t *testing.T) {
	tests := map[string]struct {
		reason, minor, group, want string
	}{
		"Newest patch":     {"the newest of the minor version", "4.20", "stable", "4.20.16"},
		"Only that minor":  {"a channel also carries the minor version before, which was not requested", "4.21", "fast", "4.21.4"},
		"Candidate":        {"a channel group may have newer ones", "4.21", "candidate", "4.21.6"},
		"Unknown minor":    {"nothing to choose", "4.99", "stable", ""},
		"Unknown group":    {"nothing to choose", "4.20", "nightly", ""},
		"Not a minor only": {"a full version is not a minor one", "4.20.8", "stable", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			found, ok := defaults(t).Newest(tc.minor, tc.group)
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
	for text, want := range map[string]bool{"4.19.20": false, "4.20.8": false, "4.20.15": true, "4.21.0": false, "4.21.1": true, "4.22.0": true, "5.0.0": true} {
		if version(t, text).ReportsControlPlaneVersion() != want {
			t.Errorf("%s reports: %v, want %v", text, !want, want)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for pair, want := range map[[2]string]int{{"4.20.1", "4.22.0"}: 2, {"4.22.3", "5.0.0"}: 1, {"4.23.0", "5.1.4"}: 1, {"4.21.1", "4.21.9"}: 0} {
		if got := version(t, pair[1]).Ordinal() - version(t, pair[0]).Ordinal(); got != want {
			t.Errorf("from %s to %s are %d minors, want %d", pair[0], pair[1], got, want)
		}
	}
}

func names(path []Update) string {
	var list []string
	for _, u := range path {
		name := u.Version.String()
		for _, r := range u.Risks {
			name += "!" + r.Name
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

func TestUpdates(t *testing.T) {
	for channel, want := range map[string]string{
		"stable-4.20":    "4.20.16 4.20.15",
		"candidate-4.20": "4.20.18 4.20.16 4.20.15",
		"stable-4.21":    "4.21.1!KubeletLeaksMounts 4.20.16 4.20.15",
		"stable-4.22":    "",
		"":               "",
	} {
		if got := names(defaults(t).Updates(version(t, "4.20.8"), channel)); got != want {
			t.Errorf("channel %q: %s, want %s", channel, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	tests := map[string]struct {
		reason, from, to, channel string
		risky                     bool
		want                      string
	}{
		"One step":       {"an edge leads there", "4.20.16", "4.21.4", "stable-4.21", false, "4.21.4"},
		"Two steps":      {"old releases go to the newest of their minor version first", "4.20.8", "4.21.4", "stable-4.21", false, "4.20.16 4.21.4"},
		"Risks avoided":  {"a path without risks is preferred even if it is longer", "4.21.1", "4.22.2", "stable-4.22", true, "4.21.4 4.22.2"},
		"Risks refused":  {"the only way has a risk", "4.20.15", "4.21.1", "stable-4.21", false, ""},
		"Risks accepted": {"the only way has a risk", "4.20.15", "4.21.1", "stable-4.21", true, "4.21.1!KubeletLeaksMounts"},
		"Down":           {"no edge leads to an older release", "4.21.4", "4.20.16", "stable-4.21", true, ""},
		"Nowhere":        {"the start is the target", "4.21.4", "4.21.4", "stable-4.21", true, ""},
		"Left behind":    {"the channel does not carry the start", "4.20.16", "4.22.2", "stable-4.22", true, ""},
		"No edge":        {"no edge begins at the old release", "4.19.20", "4.20.18", "stable-4.20", true, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := names(defaults(t).Path(version(t, tc.from), version(t, tc.to), tc.channel, tc.risky)); got != tc.want {
				t.Errorf("%s, want %s: %s", got, tc.want, tc.reason)
			}
		})
	}
	var reachable []string
	for _, r := range defaults(t).Reachable(version(t, "4.20.8"), "stable-4.21") {
		reachable = append(reachable, r.Version.String())
	}
	if diff := cmp.Diff([]string{"4.21.4", "4.20.16", "4.20.15"}, reachable); diff != "" {
		t.Error(diff)
	}
}

// TestGraphsGiveTheSameCatalogue serves the catalogue as update graphs and reads these back.
func TestGraphsGiveTheSameCatalogue(t *testing.T) {
	catalog := defaults(t)
	graphs := map[string]*Graph{}
	for _, channel := range catalog.Channels() {
		text, err := json.Marshal(catalog.Graph(channel, "multi"))
		if err != nil {
			t.Fatal(err)
		}
		var ignored []string
		if graphs[channel], ignored, err = ParseGraph(text); err != nil || len(ignored) > 0 {
			t.Fatal(err, ignored)
		}
	}
	again, ignored, err := FromGraphs(graphs)
	if err != nil || len(ignored) > 0 {
		t.Fatal(err, ignored)
	}
	if diff := cmp.Diff(catalog.Channels(), again.Channels()); diff != "" {
		t.Error(diff)
	}
	for _, from := range catalog.Releases() {
		read, known := again.Exact(from.Version.String())
		if !known || read.Image != from.Image || !cmp.Equal(read.Channels, from.Channels) {
			t.Errorf("release %s is read as %v", from.Version, read)
		}
		for _, channel := range catalog.Channels() {
			if got, want := names(again.Updates(from.Version, channel)), names(catalog.Updates(from.Version, channel)); got != want {
				t.Errorf("from %s in %s: %s, want %s", from.Version, channel, got, want)
			}
		}
	}
}

func TestGraph(t *testing.T) {
	catalog := defaults(t)
	if g := catalog.Graph("stable-4.99", "amd64"); len(g.Nodes)+len(g.Edges)+len(g.ConditionalEdges) != 0 || g.Nodes == nil {
		t.Errorf("an unknown channel has %v", g)
	}
	g := catalog.Graph("stable-4.21", "amd64")
	want := &Graph{Version: 1, Edges: [][2]int{{0, 1}, {0, 2}, {1, 2}, {1, 4}, {2, 4}, {3, 4}}}
	for _, v := range []string{"4.20.8", "4.20.15", "4.20.16", "4.21.1", "4.21.4"} {
		r, _ := catalog.Exact(v)
		want.Nodes = append(want.Nodes, Node{Version: v, Payload: r.Image, Metadata: map[string]string{metadataArch: "multi", metadataDigest: r.Digest, metadataChannels: strings.Join(r.Channels, ",")}})
	}
	risks := []GraphRisk{{URL: "https://example.com/risks/KubeletLeaksMounts", Name: "KubeletLeaksMounts",
		Message:       "Nodes of 4.21.1 keep mounts of deleted pods and run out of them after some weeks; 4.21.4 fixes this.",
		MatchingRules: []MatchingRule{{Type: "Always"}}}}
	for _, from := range []string{"4.20.8", "4.20.15"} {
		want.ConditionalEdges = append(want.ConditionalEdges, ConditionalEdge{Edges: []VersionEdge{{from, "4.21.1"}}, Risks: risks})
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Error(diff)
	}
}

const good = "repository: r\nreleases:\n- {version: 4.20.8, digest: 'sha256:" + "a65e099f04964491ac8b98692b2bc5c4599b0b534ffc042d020f3f90153fccf2" + "', kubelet: v1.33.5, architecture: Multi, channels: []}\n"

func TestBadCatalogs(t *testing.T) {
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	const risk = "risks: [{name: Bad, to: 4.20.8, from: .*, url: u, message: m, matchingRules: [{type: Always}]}]\n"
	cases := map[string]struct{ text, names string }{
		"UnknownField":    {good + "color: blue\n", "color"},
		"NoRepository":    {strings.Replace(good, "repository: r\n", "", 1), "repository"},
		"NoReleases":      {"repository: r\n", "releases"},
		"BadVersion":      {strings.Replace(good, "4.20.8", "four", 1), "releases[0].version"},
		"BadDigest":       {strings.Replace(good, "sha256:a65e", "sha256:xyz0", 1), "releases[0].digest"},
		"BadKubelet":      {strings.Replace(good, "v1.33.5", "new", 1), "releases[0].kubelet"},
		"BadArch":         {strings.Replace(good, "Multi", "vax", 1), "releases[0].architecture"},
		"BadChannel":      {strings.Replace(good, "[]", "[stable]", 1), "releases[0].channels"},
		"BadPrevious":     {strings.Replace(good, "[]", "[], previous: [4.20.1]", 1), "releases[0].previous"},
		"BadMinor":        {good + "minors: [{version: '4', endOfLife: 2027-01-01T00:00:00Z}]\n", "minors[0].version"},
		"Twice":           {good + strings.SplitAfterN(good, "releases:\n", 2)[1], "twice"},
		"EmptyEntry":      {"repository: r\nreleases:\n- null\n", "releases[0]"},
		"RiskWithoutEdge": {good + risk, "risks[0]"},
		"RiskPattern":     {good + strings.Replace(risk, ".*", "'('", 1), "risks[0].from"},
		"NotEvenYAML":     {"{", ""},
		"WrongTypeList":   {"repository: [r]\nreleases: []\n", "repository"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text)); err == nil || name != "WrongTypeList" && !strings.Contains(err.Error(), c.names) {
				t.Errorf("error does not name %q: %v", c.names, err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "releases.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if catalog, err := Load(file); err != nil || len(catalog.Releases()) != 1 {
		t.Errorf("loading a file: %v", err)
	}
	if _, err := Load(file + ".missing"); err == nil {
		t.Error("a missing file was loaded")
	}
}

// TestMalformedElementsOfGraphsAreIgnored adds one malformed element after the other to a graph: the other releases and edges stay, and the element is
// named.
func TestMalformedElementsOfGraphsAreIgnored(t *testing.T) {
	digest := func(c string) string { return "r@sha256:" + strings.Repeat(c, 64) }
	for name, c := range map[string]struct{ node, edge, conditional, want string }{
		"a node of another type":           {node: `7`, want: "nodes[2]"},
		"a version of another type":        {node: `{"version":4.21,"payload":"` + digest("c") + `"}`, want: "nodes[2]"},
		"a node without a version":         {node: `null`, want: "nodes[2]"},
		"metadata of another type":         {node: `{"version":"4.21.2","metadata":[]}`, want: "nodes[2]"},
		"a payload without a digest":       {node: `{"version":"4.21.2","payload":"r:latest"}`, want: "release 4.21.2"},
		"a payload with a short digest":    {node: `{"version":"4.21.2","payload":"r@sha256:abc"}`, want: "release 4.21.2"},
		"an edge to an unknown node":       {edge: `[0,9]`, want: "edges[1]"},
		"an edge with a negative index":    {edge: `[-1,0]`, want: "edges[1]"},
		"an edge with one end":             {edge: `[1]`, want: "edges[1]"},
		"an edge with three ends":          {edge: `[0,1,2]`, want: "edges[1]"},
		"an edge of texts":                 {edge: `["4.20.1","4.21.1"]`, want: "edges[1]"},
		"a conditional edge of a text":     {conditional: `"4.20.1"`, want: "conditionalEdges[0]"},
		"a risk of another type":           {conditional: `{"edges":[{"from":"4.20.1","to":"4.21.1"}],"risks":{}}`, want: "conditionalEdges[0]"},
		"an end of a conditional edge 4.2": {conditional: `{"edges":[{"from":4.2,"to":"4.21.1"}]}`, want: "conditionalEdges[0]"},
	} {
		nodes := `{"version":"4.20.1","payload":"` + digest("a") + `"},{"version":"4.21.1","payload":"` + digest("b") + `"}`
		if c.node != "" {
			nodes += "," + c.node
		}
		edges := `[0,1]`
		if c.edge != "" {
			edges += "," + c.edge
		}
		g, ignored, err := ParseGraph([]byte(`{"nodes":[` + nodes + `],"edges":[` + edges + `],"conditionalEdges":[` + c.conditional + `]}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		catalog, more, err := FromGraphs(map[string]*Graph{"stable-4.21": g})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if all := append(ignored, more...); len(all) != 1 || !strings.Contains(all[0], c.want) {
			t.Errorf("%s: ignored are %q, want one with %q", name, all, c.want)
		}
		if got := names(catalog.Updates(version(t, "4.20.1"), "stable-4.21")); got != "4.21.1" || len(catalog.Releases()) != 2 {
			t.Errorf("%s: updates are %q of %d releases", name, got, len(catalog.Releases()))
		}
	}
}

// TestReleaseWithTwoPayloadsIsIgnored: nobody can tell which payload is right, and the other releases stay.
func TestReleaseWithTwoPayloadsIsIgnored(t *testing.T) {
	node := func(version, digest string) Node {
		return Node{Version: version, Payload: "r@sha256:" + strings.Repeat(digest, 64)}
	}
	catalog, ignored, err := FromGraphs(map[string]*Graph{
		"stable-4.20": {Nodes: []Node{node("4.20.1", "a"), node("4.20.2", "b")}, Edges: [][2]int{{0, 1}}},
		"stable-4.21": {Nodes: []Node{node("4.20.1", "a"), node("4.20.2", "c"), node("4.21.1", "d")}, Edges: [][2]int{{0, 1}, {0, 2}, {1, 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ignored) != 1 || !strings.Contains(ignored[0], "4.20.2") {
		t.Errorf("ignored are %q", ignored)
	}
	if got := names(catalog.Updates(version(t, "4.20.1"), "stable-4.21")); got != "4.21.1" {
		t.Errorf("updates are %q", got)
	}
	if _, _, err := FromGraphs(map[string]*Graph{"stable-4.20": {Nodes: []Node{{Version: "4.20.1"}}}}); err == nil || !strings.Contains(err.Error(), "4.20.1") {
		t.Errorf("a graph without a usable release: %v", err)
	}
}

// TestWithoutPrevious checks the default edges: from the same minor version and from the one before.
func TestWithoutPrevious(t *testing.T) {
	text := "repository: r\nreleases:\n"
	for i, v := range []string{"4.20.1", "4.20.2", "4.21.0", "4.22.0"} {
		text += "- {version: " + v + ", digest: 'sha256:" + strings.Repeat(string(rune('a'+i)), 64) + "', channels: [stable-4.22]}\n"
	}
	catalog, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(catalog.Updates(version(t, "4.20.1"), "stable-4.22")); got != "4.21.0 4.20.2" {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(BuiltIn())
	f.Add([]byte("releases: [null]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		catalog, err := Parse(text)
		if err != nil {
			return
		}
		for _, r := range catalog.Releases() {
			if found, err := catalog.Lookup(r.Image); err != nil || found != r {
				t.Errorf("release %s is not found by its own image %q: %v", r.Version, r.Image, err)
			}
		}
	})
}

func FuzzParseGraph(f *testing.F) {
	text, err := json.Marshal(defaults(f).Graph("stable-4.21", "multi"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"nodes":[{"version":"4.20.1","payload":"x"}],"edges":[[0,1]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		g, _, err := ParseGraph(text)
		if err != nil {
			return
		}
		catalog, _, err := FromGraphs(map[string]*Graph{"stable-4.21": g})
		if err != nil {
			return
		}
		for _, r := range catalog.Releases() {
			for _, u := range catalog.Updates(r.Version, "stable-4.21") {
				if !r.LessThan(u.Release) {
					t.Errorf("an edge leads from %s down to %s", r.Version, u.Version)
				}
			}
		}
	})
}
